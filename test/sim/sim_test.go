package sim

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// server is a host of two packages with siblings.
func server(t testing.TB, change func(*Config)) *Host {
	t.Helper()
	cfg := Config{
		Name: "server", Seed: 7, Start: time.Unix(1e9, 0).UTC(), CPUModel: "server",
		Shape: Shape{Packages: 2, NUMAPerPackage: 2, CoresPerPackage: 8, CoresPerLLC: 4, ThreadsPerCore: 2},
		Meter: Meter{DRAM: true, Platform: true},
	}
	if change != nil {
		change(&cfg)
	}
	h, err := NewHost(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// populate adds n VMs of all kinds.
func populate(t testing.TB, h *Host, n int) {
	t.Helper()
	for i := range n {
		vm := VM{
			Namespace: "shop", Name: fmt.Sprintf("vm-%d", i), VCPUs: 1 + i%4, IOThreads: i % 2,
			Traffic: Traffic{ToVM: 20 * mbit, FromVM: 10 * mbit, PacketBytes: 800},
		}
		switch i % 5 {
		case 1:
			vm.Traffic.Programme = Programme{Pattern: Diurnal, Period: time.Hour}
		case 2:
			vm.Traffic.Programme = Programme{Pattern: Bursty}
		case 3:
			vm.Compute = Compute{Cores: 0.3, Heat: 1.4, Programme: Programme{Pattern: Bursty, Period: 30 * time.Second}}
		case 4:
			vm.Traffic = Flood(0.5 * mbit)
		}
		if _, err := h.AddVM(vm); err != nil {
			t.Fatal(err)
		}
	}
}

// everything that can be read of a host.
type everything struct {
	CPUs      []host.CPUTimes
	Zones     []host.EnergyZone
	Processes []host.Process
	Samples   []host.ProcessSample
	Truth     Truth
}

func read(t testing.TB, h *Host) everything {
	t.Helper()
	var e everything
	var errs [3]error
	e.CPUs, errs[0] = h.CPUTimes()
	e.Zones, errs[1] = h.EnergyZones()
	e.Processes, errs[2] = h.Processes()
	e.Truth = h.Truth()
	for _, p := range e.Processes {
		sample, err := h.Sample(p.ID)
		if err != nil {
			t.Fatal(err)
		}
		e.Samples = append(e.Samples, sample)
	}
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return e
}

// cpuSets lets go-cmp compare sets.
func cpuSets() cmp.Option {
	return cmp.Comparer(func(a, b units.CPUSet) bool { return a.Equal(b) })
}

func TestSameSeedSameCounters(t *testing.T) {
	fleet := func(seed uint64, workers int, reading bool) []everything {
		var hosts []*Host
		for i := range 8 {
			h := server(t, func(c *Config) { c.Name, c.Seed = fmt.Sprintf("node-%d", i), seed })
			populate(t, h, 20)
			hosts = append(hosts, h)
		}
		for range 60 {
			var group errgroup.Group
			group.SetLimit(workers)
			for _, h := range hosts {
				group.Go(func() error {
					h.Advance(time.Second)
					return nil
				})
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
			if reading {
				for _, h := range hosts {
					read(t, h)
				}
			}
		}
		var all []everything
		for _, h := range hosts {
			all = append(all, read(t, h))
		}
		return all
	}
	want := fleet(1, 1, false)
	if diff := cmp.Diff(want, fleet(1, 4, true), cpuSets()); diff != "" {
		t.Errorf("other counters when stepped by 4 goroutines and read in between:\n%s", diff)
	}
	if other := fleet(2, 1, false); cmp.Equal(want, other, cpuSets()) {
		t.Error("the same counters from another seed")
	}
	if cmp.Equal(want[0], want[1], cpuSets()) {
		t.Error("two hosts of a fleet have the same counters")
	}
}

func TestMeterShowsTheTruth(t *testing.T) {
	h := server(t, func(c *Config) { c.Shape.Packages = 1; c.Meter.Range = 1 << 50 })
	populate(t, h, 10)
	h.Advance(time.Minute)
	before := read(t, h).Zones[0].Microjoules
	h.Advance(10 * time.Second)
	watts := float64(read(t, h).Zones[0].Microjoules-before) / 1e7 // over 10 s
	if got := watts / float64(h.Truth().Packages); got < 0.98 || got > 1.02 {
		t.Errorf("the counter says %.3f of the truth", got)
	}
}

func TestZones(t *testing.T) {
	var got []string
	for _, zone := range read(t, server(t, nil)).Zones {
		got = append(got, zone.ID+" "+zone.Name)
	}
	want := []string{
		"intel-rapl:0 package-0", "intel-rapl:0:0 dram", "intel-rapl:1 package-1", "intel-rapl:1:0 dram", "intel-rapl:2 psys",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for name, change := range map[string]func(*Config){
		"without counters": func(c *Config) { c.Meter.Absent = true },
	} {
		if _, err := server(t, change).EnergyZones(); !errors.Is(err, host.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCounterWrapsAndComesInSteps(t *testing.T) {
	h := server(t, func(c *Config) { c.Shape.Packages = 1; c.Meter = Meter{Range: 100_000_000} })
	wraps := 0
	last := read(t, h).Zones[0].Microjoules
	for range 200 {
		h.Advance(time.Second)
		zone := read(t, h).Zones[0]
		if zone.Microjoules >= zone.Range {
			t.Fatalf("counter %d is not below its range %d", zone.Microjoules, zone.Range)
		}
		if zone.Microjoules < last {
			wraps++
		}
		last = zone.Microjoules
		if over := float64(zone.Microjoules) / step; over-float64(int64(over+0.5)) > 0.1 {
			t.Fatalf("counter %d is not a multiple of %v", zone.Microjoules, step)
		}
	}
	if want := int(float64(h.Joules()) / 100); wraps < want-1 || wraps > want+1 {
		t.Errorf("%d wraps after %v J with a range of 100 J", wraps, h.Joules())
	}
}
