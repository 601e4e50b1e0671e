package curve

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func threads(run, wait units.Cores, switches units.PerSecond) model.ThreadRates {
	return model.ThreadRates{RunCores: run, WaitCores: wait, SwitchesPerSecond: switches}
}

// busyVM has two vCPUs and a vhost worker.
func busyVM() model.VMRates {
	return model.VMRates{
		PodUID: "pod",
		VCPUs: []model.VCPURates{
			{Index: 0, ThreadRates: threads(0.3, 0.05, 1000)},
			{Index: 1, ThreadRates: threads(0.1, 0.05, 500)},
		},
		Vhost:    threads(0.2, 0, 2000),
		Emulator: threads(0.2, 0.1, 10),
		Taps: []model.TapRates{{
			ToVM:   model.TrafficRates{BitsPerSecond: 3e6, PacketsPerSecond: 300},
			FromVM: model.TrafficRates{BitsPerSecond: 5e6, PacketsPerSecond: 700},
		}},
	}
}

func TestOfVM(t *testing.T) {
	const window = 250 * time.Microsecond
	approximate := cmp.Options{
		cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }),
		cmp.Comparer(func(a, b units.Cores) bool { return math.Abs(float64(a-b)) < 1e-9 }),
	}
	busy := busyVM()
	got, ok := OfVM(&busy, window)
	want := Observation{
		Key:       Key{Class: "2-vcpus", Window: window},
		VM:        "pod",
		Rate:      Rate{Packets: 1000, Bits: 8e6},
		HostCores: 0.8, WakeUps: 3510, VCPUUse: 0.3, VhostUse: 0.2, WaitShare: 0.2,
	}
	if diff := cmp.Diff(want, got, approximate); !ok || diff != "" {
		t.Errorf("observation: %v\n%s", ok, diff)
	}

	for name, tc := range map[string]struct {
		change func(*model.VMRates)
		class  string
		ok     bool
	}{
		"vhost workers that are not seen": {func(vm *model.VMRates) { vm.Vhost = model.ThreadRates{} }, "2-vcpus-no-vhost", true},
		"no traffic, so no vhost":         {func(vm *model.VMRates) { vm.Vhost, vm.Taps[0] = model.ThreadRates{}, model.TapRates{} }, "2-vcpus", true},
		"no tap: traffic is not counted":  {func(vm *model.VMRates) { vm.Taps = nil }, "", false},
		"first round: nothing counted yet": {
			func(vm *model.VMRates) { *vm = model.VMRates{Taps: vm.Taps, VCPUs: make([]model.VCPURates, 2)} }, "", false,
		},
	} {
		vm := busyVM()
		tc.change(&vm)
		got, ok := OfVM(&vm, 0)
		if ok != tc.ok || (ok && got.Key.Class != tc.class) {
			t.Errorf("%s: %v of class %q, want %v of %q", name, ok, got.Key.Class, tc.ok, tc.class)
		}
	}
	if n := testing.AllocsPerRun(100, func() { OfVM(&busy, 0) }); n != 0 {
		t.Errorf("%v allocations an observation", n)
	}
}

func TestClassOf(t *testing.T) {
	for vcpus, want := range map[int]string{
		0: "1-vcpu", 1: "1-vcpu", 2: "2-vcpus", 3: "3-4-vcpus", 4: "3-4-vcpus", 5: "5-8-vcpus", 8: "5-8-vcpus",
		9: "9-vcpus-and-more", 256: "9-vcpus-and-more",
	} {
		if got := ClassOf(vcpus, true); got != want {
			t.Errorf("%d vCPUs with vhost: %s, want %s", vcpus, got, want)
		}
		if got := ClassOf(vcpus, false); got != want+"-no-vhost" {
			t.Errorf("%d vCPUs without vhost: %s, want %s-no-vhost", vcpus, got, want)
		}
	}
}
