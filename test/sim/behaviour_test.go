package sim

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

func TestACrowdedCoreLosesTraffic(t *testing.T) {
	served := func(mask units.CPUSet) (float64, *Host) {
		h := study(t, KVM())
		for range 10 {
			add(t, h, VM{Traffic: Traffic{ToVM: 250 * mbit, FromVM: 250 * mbit}})
			if err := h.SetAffinity(h.vms[len(h.vms)-1].threads[1].id, mask); err != nil {
				t.Fatal(err)
			}
		}
		h.Advance(time.Minute)
		truth, err := h.VMTruth(h.vms[3].PodUID)
		if err != nil {
			t.Fatal(err)
		}
		return truth.Served, h
	}
	free, spread := served(units.NewCPUSet(0, 1, 2, 3))
	part, crowded := served(units.NewCPUSet(0))
	t.Logf("handled: %.3f on all cores, %.3f on one", free, part)
	if free != 1 || part > 0.95 {
		t.Errorf("handled: %.3f on all cores, %.3f on one", free, part)
	}
	rx := &crowded.vms[3].toVM
	if want := 1 - part; math.Abs(rx.drops/(rx.drops+rx.packets)-want) > 0.05 {
		t.Errorf("dropped %v of %v packets, want %.2f", rx.drops, rx.drops+rx.packets, want)
	}
	if got, was := crowded.vms[3].threads[1].wait, spread.vms[3].threads[1].wait; got < 1.5*was || got < 45 {
		t.Errorf("a vCPU waited %v s of 60 on a crowded core, %v s otherwise", got, was)
	}
}

func TestSiblingsShareACore(t *testing.T) {
	computing := func(a, b int) float64 {
		h := server(t, nil)
		for i, cpu := range []int{a, b} {
			// Less than a whole CPU's work, which a shared core does not get done.
			process, err := h.AddVM(VM{Namespace: "a", Name: string(rune('a' + i)), Compute: Compute{Cores: 0.6}})
			if err != nil {
				t.Fatal(err)
			}
			if err := h.SetAffinity(vcpuOf(t, h, process), units.NewCPUSet(cpu)); err != nil {
				t.Fatal(err)
			}
		}
		h.Advance(time.Minute)
		return h.vms[0].threads[1].last.run
	}
	apart, together := computing(0, 1), computing(0, 16)
	if apart > 0.65 || together < 1.2*apart {
		t.Errorf("the same work takes %.2f CPUs on two cores and %.2f on one core's siblings", apart, together)
	}
}

func TestProgrammes(t *testing.T) {
	const day = 24 * time.Hour
	for name, programme := range map[string]Programme{
		"constant": {}, "diurnal": {Pattern: Diurnal}, "bursty": {Pattern: Bursty, Swing: 0.25},
	} {
		h := study(t, KVM())
		add(t, h, VM{Traffic: Traffic{ToVM: 10 * mbit, Programme: programme}})
		tap := &h.vms[0].toVM
		low, high, last := math.Inf(1), 0.0, 0.0
		for range 24 * 60 {
			h.Advance(time.Minute)
			got := 8 * (tap.bytes - last) / 60 / mbit
			last = tap.bytes
			low, high = min(low, got), max(high, got)
		}
		mean := 8 * last / day.Seconds() / mbit
		want := map[string][3]float64{"constant": {10, 10, 10}, "diurnal": {5, 10, 15}, "bursty": {0, 2.5, 10}}[name]
		for i, got := range []float64{low, mean, high} {
			if math.Abs(got-want[i]) > 0.35+1e-6 && name != "constant" || name == "constant" && math.Abs(got-10) > 1e-6 {
				t.Errorf("%s: least, mean and greatest Mbit/s %.2f %.2f %.2f, want %v", name, low, mean, high, want)
			}
		}
	}
}

// TestStepsOfAnyLength: how often a host is stepped changes little of what
// happens, and nothing of what does not depend on chance.
func TestStepsOfAnyLength(t *testing.T) {
	energy := func(step time.Duration) float64 {
		h := study(t, KVM())
		add(t, h, VM{Traffic: Traffic{ToVM: 300 * mbit, Programme: Programme{Pattern: Diurnal, Period: time.Hour}}})
		for elapsed := time.Duration(0); elapsed < 10*time.Minute; elapsed += step {
			h.Advance(step)
		}
		return float64(h.Joules())
	}
	want := energy(time.Second)
	for _, step := range []time.Duration{100 * time.Millisecond, 15 * time.Second, 10 * time.Minute} {
		if off := relative(energy(step), want); off < -0.5 || off > 0.5 {
			t.Errorf("steps of %v change the energy by %.2f %%", step, off)
		}
	}
}

func TestNothingIsAllocatedByAStep(t *testing.T) {
	h := server(t, nil)
	populate(t, h, 50)
	h.Advance(time.Minute)
	if n := testing.AllocsPerRun(100, func() { h.Advance(time.Second) }); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}
