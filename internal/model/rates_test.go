package model_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// TestSumsOfAVM: each kind of thread and both directions of each tap count once.
func TestSumsOfAVM(t *testing.T) {
	threads := func(cores units.Cores, switches units.PerSecond) model.ThreadRates {
		// Waiting costs nothing.
		return model.ThreadRates{RunCores: cores, WaitCores: 99, SwitchesPerSecond: switches}
	}
	traffic := func(by float64) model.TrafficRates {
		return model.TrafficRates{
			BitsPerSecond: units.BitsPerSecond(8000 * by), PacketsPerSecond: units.PacketsPerSecond(by), DropsPerSecond: units.PacketsPerSecond(by / 4),
		}
	}
	vm := model.VMRates{
		VCPUs:    []model.VCPURates{{ThreadRates: threads(1, 10)}, {Index: 5, ThreadRates: threads(0.5, 20)}},
		Emulator: threads(0.25, 40), IOThreads: threads(0.125, 80), Vhost: threads(2, 160), Other: threads(4, 320),
		Taps: []model.TapRates{{ToVM: traffic(4), FromVM: traffic(8)}, {Name: "tap1", ToVM: traffic(16), FromVM: traffic(32)}},
	}
	if got := vm.Busy(); got != 7.875 {
		t.Errorf("busy %v cores, want 7.875", got)
	}
	if got := vm.WakeUps(); got != 630 {
		t.Errorf("%v wake-ups/s, want 630", got)
	}
	if diff := cmp.Diff(traffic(60), vm.Traffic()); diff != "" {
		t.Errorf("traffic (-want +got):\n%s", diff)
	}
	var none model.VMRates
	if none.Busy() != 0 || none.WakeUps() != 0 || none.Traffic() != (model.TrafficRates{}) {
		t.Error("a VM without threads and taps does something")
	}
}

func TestOnline(t *testing.T) {
	topology := model.Topology{Cores: []model.Core{{CPUs: units.NewCPUSet(0, 4)}, {CPUs: units.NewCPUSet(2)}}}
	if got := topology.Online(); !got.Equal(units.NewCPUSet(0, 2, 4)) {
		t.Errorf("online are %v", got)
	}
	if got := (model.Topology{}).Online(); got.Len() != 0 {
		t.Errorf("online are %v of no cores", got)
	}
}

// TestOnlyMetersMeasure: a model judges no saving, nor does a source that nobody
// knows.
func TestOnlyMetersMeasure(t *testing.T) {
	for source, want := range map[v1alpha1.PowerSource]bool{
		v1alpha1.PowerPrometheus: true, v1alpha1.PowerRAPL: true, v1alpha1.PowerModel: false, "": false, "Other": false,
	} {
		if source.Measures() != want {
			t.Errorf("%q measures: %v", source, !want)
		}
	}
}
