package power_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

// siblings is a topology as Linux numbers it: core n has CPUs n and n+cores.
func siblings(cores int) model.Topology {
	var t model.Topology
	for core := range cores {
		t.Cores = append(t.Cores, model.Core{CPUs: units.NewCPUSet(core, core+cores)})
	}
	return t
}

func busy(use ...units.Cores) []model.CPURates {
	var cpus []model.CPURates
	for cpu, u := range use {
		cpus = append(cpus, model.CPURates{CPU: cpu, BusyCores: u})
	}
	return cpus
}

func TestAwakeCores(t *testing.T) {
	for name, c := range map[string]struct {
		cpus     []model.CPURates
		topology model.Topology
		want     units.Cores
	}{
		"nothing known":              {nil, siblings(2), 0},
		"no topology":                {busy(1, 1), model.Topology{}, 0},
		"asleep":                     {busy(0, 0, 0, 0), siblings(2), 0},
		"all busy":                   {busy(1, 1, 1, 1), siblings(2), 2},
		"one CPU busy":               {busy(1, 0, 0, 0), siblings(2), 1},
		"siblings share a core":      {busy(1, 0, 1, 0), siblings(2), 1},
		"two cores":                  {busy(1, 1, 0, 0), siblings(2), 2},
		"the busiest sibling counts": {busy(0.02, 0, 0.05, 0), siblings(2), 0.5},
		"a tenth keeps awake":        {busy(0.1, 0.3, 0, 0), siblings(2), 2},
		"a CPU that no core has":     {busy(0, 0, 0, 0, 1), siblings(2), 0},
		"a CPU without rates":        {busy(1), siblings(2), 1},
		"in another order":           {[]model.CPURates{{CPU: 3, BusyCores: 1}, {CPU: 1}, {CPU: 0, BusyCores: 0.05}, {CPU: 2}}, siblings(2), 1.5},
	} {
		if got := power.AwakeCores(c.cpus, c.topology); math.Abs(float64(got-c.want)) > 1e-12 {
			t.Errorf("%s: %v awake cores, want %v", name, got, c.want)
		}
	}
}

func TestLoadOf(t *testing.T) {
	thread := model.ThreadRates{SwitchesPerSecond: 100}
	rates := &model.NodeRates{
		CPUs: busy(1, 0.5, 0.25, 0),
		VMs: []model.VMRates{
			{VCPUs: []model.VCPURates{{ThreadRates: thread}, {ThreadRates: thread}}, Vhost: thread},
			{Emulator: thread, IOThreads: thread, Other: thread},
		},
	}
	want := power.Load{BusyCores: 1.75, WakeUps: 600, AwakeCores: 2}
	if diff := cmp.Diff(want, power.LoadOf(rates, siblings(2))); diff != "" {
		t.Errorf("load (-want +got):\n%s", diff)
	}
}

func TestLoadBetween(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	first := model.Totals{Since: since, Seconds: 100, BusyCoreSeconds: 50, AwakeCoreSeconds: 30, WakeUps: 1000}
	second := model.Totals{Since: since, Seconds: 110, BusyCoreSeconds: 80, AwakeCoreSeconds: 50, WakeUps: 6000}
	load, seconds, ok := power.LoadBetween(&first, &second)
	if want := (power.Load{BusyCores: 3, WakeUps: 500, AwakeCores: 2}); !ok || seconds != 10 || load != want {
		t.Errorf("%+v over %v s, %v; want %+v over 10 s", load, seconds, ok, want)
	}

	changed := func(change func(*model.Totals)) *model.Totals {
		totals := second
		change(&totals)
		return &totals
	}
	for name, to := range map[string]*model.Totals{
		"none":               nil,
		"no time":            &first,
		"back in time":       changed(func(t *model.Totals) { t.Seconds = 90 }),
		"started over":       changed(func(t *model.Totals) { t.Since = since.Add(time.Second) }),
		"busy went back":     changed(func(t *model.Totals) { t.BusyCoreSeconds = 0 }),
		"wake-ups went back": changed(func(t *model.Totals) { t.WakeUps = 0 }),
		"awake went back":    changed(func(t *model.Totals) { t.AwakeCoreSeconds = 0 }),
	} {
		if load, seconds, ok := power.LoadBetween(&first, to); ok {
			t.Errorf("%s: %+v over %v s, want nothing", name, load, seconds)
		}
	}
	if _, _, ok := power.LoadBetween(nil, &second); ok {
		t.Error("a load since nothing")
	}
	// The same moment, in another zone, is the same start.
	elsewhere := changed(func(t *model.Totals) { t.Since = since.In(time.FixedZone("", 3600)) })
	if _, _, ok := power.LoadBetween(&first, elsewhere); !ok {
		t.Error("the zone of a time decides")
	}
}
