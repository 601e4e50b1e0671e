package pools

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
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
	const none, network, compute = v1alpha1.PoolNone, v1alpha1.PoolNetwork, v1alpha1.PoolCompute
	const interactive, throughput, deferrable = v1alpha1.TrafficInteractive, "Throughput", v1alpha1.TrafficDeferrable
	for name, tc := range map[string]struct {
		rate      units.PacketsPerSecond
		run, wait units.Cores
		class     v1alpha1.TrafficClass
		current   v1alpha1.Pool
		disturbed v1alpha1.Cause
		want      v1alpha1.Pool
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
		"it starves, and is in":                {rate: 150, run: 0.11, wait: 0, class: throughput, current: network, disturbed: v1alpha1.CauseNeighbour, want: network},
		"it waits, and computes":               {rate: 10, run: 0.5, wait: 0.5, class: throughput, current: network, disturbed: v1alpha1.CauseNeighbour, want: compute},
		"hardly any packet in ages of waiting": {rate: 50, run: 0.01, wait: 0.99, class: throughput, want: compute},
	} {
		vm := VM{Rates: behaving(tc.rate, tc.run, tc.wait), Class: tc.class, Current: tc.current, Disturbance: tc.disturbed}
		if got := Classify(vm); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if SliceOf(network, true) != NetworkSlice || SliceOf(compute, true) != NetworkSlice || SliceOf(compute, false) != ComputeSlice || SliceOf(none, true) != 0 {
		t.Error("slices of the pools are mixed up")
	}
}

// A VM stays in the pool that it entered while what it does changes by a fifth either way,
// whatever that is.
func TestClassifyIsStable(t *testing.T) {
	for seed := range uint64(10_000) {
		r := rand.New(rand.NewPCG(seed, 4))
		rate, run, wait := units.PacketsPerSecond(math.Exp(12*r.Float64())), units.Cores(math.Exp(-8*r.Float64())), units.Cores(r.Float64()*r.Float64())
		vm := VM{
			Rates: behaving(rate, run, wait),
			Class: []v1alpha1.TrafficClass{v1alpha1.TrafficInteractive, "Throughput", v1alpha1.TrafficDeferrable}[seed%3],
		}
		vm.Current = Classify(vm)
		if again := Classify(vm); again != vm.Current {
			t.Fatalf("seed %d: %s becomes %s while nothing changes", seed, vm.Current, again)
		}
		rateBy, runBy := units.PacketsPerSecond(0.8+0.4*r.Float64()), units.Cores(0.8+0.4*r.Float64())
		vm.Rates = behaving(rate*rateBy, run*runBy, wait*runBy)
		if again := Classify(vm); vm.Current == v1alpha1.PoolNetwork && again != vm.Current {
			t.Fatalf("seed %d: %s becomes %s by a change of a fifth", seed, vm.Current, again)
		}
	}
}
