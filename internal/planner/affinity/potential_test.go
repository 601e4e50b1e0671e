package affinity

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// running has the VMs of a scenario bound as decided, or not at all, and use what the model
// says that they use then, beside what else each CPU does.
func running(s scenario, beside units.Cores, decisions []Decision) scenario {
	next := scenario{Node: s.Node, VMs: append([]VM(nil), s.VMs...)}
	next.Node.CPUs = append([]model.CPURates(nil), s.Node.CPUs...)
	for i := range next.Node.CPUs {
		next.Node.CPUs[i].BusyCores = beside
	}
	for i := range next.VMs {
		vm, remains := &next.VMs[i], 1.0
		switch decisions[i].Reason {
		case v1alpha1.ReasonPinned:
			remains -= s.Node.Costs.Pinned
		case v1alpha1.ReasonSeparated:
			remains -= s.Node.Costs.Separated
		}
		rates := *vm.Rates
		rates.VCPUs = append([]model.VCPURates(nil), rates.VCPUs...)
		threads := []*model.ThreadRates{&rates.Emulator, &rates.IOThreads, &rates.Vhost, &rates.Other}
		for k := range rates.VCPUs {
			rates.VCPUs[k].CPUs = rates.AllowedCPUs
			if pins := decisions[i].Pins; len(pins) > 0 {
				rates.VCPUs[k].CPUs = pins[k].CPUs
			}
			threads = append(threads, &rates.VCPUs[k].ThreadRates)
		}
		for _, t := range threads {
			t.RunCores *= units.Cores(remains)
			t.SwitchesPerSecond *= units.PerSecond(remains)
		}
		vm.Rates, vm.Current, vm.CurrentThreads = &rates, decisions[i].Pins, decisions[i].Threads
		vm.Separated = decisions[i].Reason == v1alpha1.ReasonSeparated
	}
	next.run()
	return next
}

// unbound is a random scenario in which nothing is bound.
func unbound(r *rand.Rand, shape shape) scenario {
	s := randomScenario(r, shape, 1+r.IntN(8), 4)
	s.Node.Settled = false
	for i := range s.VMs {
		s.VMs[i].Alone, s.VMs[i].Within = false, units.CPUSet{}
		s.VMs[i].Rates.AllowedCPUs = s.Node.Topology.Online()
	}
	return running(s, units.Cores(0.1*r.Float64()), make([]Decision, len(s.VMs)))
}

// Where nothing is bound, what binding could save is what the plan that is made saves.
func TestPotentialIsThePlans(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := unbound(r, shapes()[seed%5])
		if diff := cmp.Diff(Place(s.Node, s.VMs), Potential(s.Node, s.VMs)); diff != "" {
			t.Fatalf("seed %d (-plan +potential):\n%s", seed, diff)
		}
	}
}

// Once the plan is in force, what the VMs would draw unbound is the same, and so is what
// could be saved, but for where a search ends that is not exact. Nodes and cpusets of one
// core, whose pins restrict nothing, are left out.
func TestPotentialStays(t *testing.T) {
	const beside = 0.05
	var saved, differs float64
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 6))
		s := unbound(r, shapes()[1+seed%4])
		// What a busy core costs is learned anew once work runs at other clocks: not here.
		s.Node.Topology.Clocks = model.Clocks{}
		s = running(s, beside, make([]Decision, len(s.VMs)))
		before := Potential(s.Node, s.VMs)
		next := running(s, beside, before.Decisions)
		after := Potential(next.Node, next.VMs)
		if diff := float64(after.Before/before.Before) - 1; math.Abs(diff) > 0.02 {
			t.Errorf("seed %d: unbound the VMs are to draw %.3f W, and %.3f W once they are bound", seed, before.Before, after.Before)
		}
		was, is := float64(before.Before-before.After), float64(after.Before-after.After)
		saved, differs = saved+was, differs+math.Abs(is-was)
	}
	if saved < 60 || differs > 0.05*saved {
		t.Errorf("of %.1f W on 60 nodes %.1f W differ once they are saved", saved, differs)
	}
}
