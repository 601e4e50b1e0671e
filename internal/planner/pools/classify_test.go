package pools

import (
	"math"
	"testing"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// behaving is a VM that moves packets, and runs and waits.
func behaving(rate units.PacketsPerSecond, run, wait units.Cores) *model.VMRates {
	return &model.VMRates{
		VCPUs: []model.VCPURates{{ThreadRates: model.ThreadRates{RunCores: run, WaitCores: wait}}},
		Taps:  []model.TapRates{{ToVM: model.TrafficRates{PacketsPerSecond: rate / 2}, FromVM: model.TrafficRates{PacketsPerSecond: rate / 2}}},
	}
}

func TestClassify(t *testing.T) {
	const none, network, compute = model.PoolNone, model.PoolNetwork, model.PoolCompute
	const interactive, throughput, deferrable = model.TrafficInteractive, "Throughput", model.TrafficDeferrable
	for name, tc := range map[string]struct {
		rate      units.PacketsPerSecond
		run, wait units.Cores
		class     model.TrafficClass
		current   model.Pool
		disturbed model.Interference
		want      model.Pool
	}{
		"a router":   {rate: 50_000, run: 0.8, class: throughput, want: network},
		"a compiler": {rate: 20, run: 1, class: throughput, want: compute},
		"a compiler whose owner calls it otherwise": {rate: 20, run: 1, class: interactive, want: compute},
		"it encodes what it streams":                {rate: 2000, run: 1, class: throughput, want: compute},
		"a shop's front end":                        {rate: 300, run: 0.3, class: interactive, want: network},
		"the same without anybody waiting":          {rate: 300, run: 0.3, class: throughput, want: compute},
		"a backup":                                  {rate: 5000, run: 0.3, class: deferrable, want: compute},
		"a backup at full rate":                     {rate: 50_000, run: 0.8, class: deferrable, want: network},
		"no class is like Throughput":               {rate: 1000, run: 0.3, want: network},

		"quiet, new":                           {rate: 2, run: 0.01, class: interactive, want: compute},
		"quiet, new, with some traffic":        {rate: 5, run: 0.04, class: interactive, want: network},
		"the same of another class":            {rate: 5, run: 0.04, class: throughput, want: compute},
		"quiet, was a network VM":              {rate: 0, run: 0.01, class: throughput, current: network, want: network},
		"quiet, was a compute VM":              {rate: 5, run: 0.01, class: interactive, current: compute, want: compute},
		"slower than it entered by":            {rate: 250, run: 0.2, class: throughput, current: network, want: network},
		"much slower":                          {rate: 249, run: 0.2, class: throughput, current: network, want: compute},
		"costlier than it entered by":          {rate: 1000, run: 0.9, class: throughput, current: network, want: network},
		"much costlier":                        {rate: 1000, run: 0.91, class: throughput, current: network, want: compute},
		"not fast enough to come":              {rate: 999, run: 0.2, class: throughput, current: compute, want: compute},
		"too costly to come":                   {rate: 1000, run: 0.301, class: throughput, current: compute, want: compute},
		"it starves: a third of its rate":      {rate: 400, run: 0.1, wait: 0.2, class: throughput, want: network},
		"it starves, and is in":                {rate: 150, run: 0.11, wait: 0, class: throughput, current: network, disturbed: model.InterferenceCoRunner, want: network},
		"it waits, and computes":               {rate: 10, run: 0.5, wait: 0.5, class: throughput, current: network, disturbed: model.InterferenceCoRunner, want: compute},
		"hardly any packet in ages of waiting": {rate: 50, run: 0.01, wait: 0.99, class: throughput, want: compute},

		"no rate can be so":   {rate: units.PacketsPerSecond(math.NaN()), run: 1, current: network, want: network},
		"no use can be so":    {rate: 1e6, run: units.Cores(math.Inf(1)), want: compute},
		"nor below nothing":   {rate: 1e6, run: -1, current: compute, want: compute},
		"unsound wait counts": {rate: 1e6, run: 1, wait: units.Cores(math.NaN()), want: network},
	} {
		vm := VM{Rates: behaving(tc.rate, tc.run, tc.wait), Class: tc.class, Current: tc.current, Disturbance: tc.disturbed}
		if got := Classify(vm); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if got := Classify(VM{}); got != compute {
		t.Errorf("a VM without rates: %s", got)
	}
	if got := Classify(VM{Current: network}); got != network {
		t.Errorf("a network VM without rates: %s", got)
	}
	if SliceOf(network) != NetworkSlice || SliceOf(compute) != ComputeSlice || SliceOf(none) != 0 {
		t.Error("slices of the pools are mixed up")
	}
}

// A VM stays in the pool that it entered while what it does changes by a fifth either
// way, whatever that is.
func FuzzClassifyIsStable(f *testing.F) {
	f.Add(1000.0, 0.3, 0.2, 0.8, 1.2, uint8(1))
	f.Add(60.0, 0.05, 0.0, 1.2, 0.8, uint8(0))
	f.Add(5.0, 0.0499, 0.0, 0.8, 1.2, uint8(0))
	f.Fuzz(func(t *testing.T, rate, run, wait, rateBy, runBy float64, class uint8) {
		vm := VM{
			Rates: behaving(units.PacketsPerSecond(rate), units.Cores(run), units.Cores(wait)),
			Class: []model.TrafficClass{model.TrafficInteractive, "Throughput", model.TrafficDeferrable}[class%3],
		}
		vm.Current = Classify(vm)
		if vm.Current != model.PoolNetwork && vm.Current != model.PoolCompute {
			t.Fatalf("pool %q", vm.Current)
		}
		if again := Classify(vm); again != vm.Current {
			t.Fatalf("%s becomes %s while nothing changes", vm.Current, again)
		}
		steady := func(by float64) bool { return by >= 0.8 && by <= 1.2 }
		if vm.Current != model.PoolNetwork || !steady(rateBy) || !steady(runBy) {
			return
		}
		vm.Rates = behaving(units.PacketsPerSecond(rate*rateBy), units.Cores(run*runBy), units.Cores(wait*runBy))
		if again := Classify(vm); again != vm.Current {
			t.Fatalf("%s becomes %s by a change of a fifth", vm.Current, again)
		}
	})
}
