package affinity_test

import (
	"math/rand/v2"
	"testing"

	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/planner/affinity/affinitytest"
	"github.com/joulevirt/joulevirt/internal/units"
)

// load is what wants CPU time on some cores.
type load struct {
	want  float64
	cores []int
}

// unmet returns how much of all demand does not fit on the cores where it may run,
// however the kernel shares it out: all, less the greatest flow from loads to cores.
func unmet(loads []load, room []float64) float64 {
	given := make([][]float64, len(loads))
	left, total := make([]float64, len(loads)), 0.0
	for i := range loads {
		given[i], left[i] = make([]float64, len(room)), loads[i].want
		total += loads[i].want
	}
	// give finds room for some more of a load, taking that of others that may move on.
	var give func(i int, most float64, seen []bool) float64
	give = func(i int, most float64, seen []bool) float64 {
		for _, core := range loads[i].cores {
			if seen[core] {
				continue
			}
			seen[core] = true
			if got := min(most, room[core]); got > 1e-9 {
				room[core] -= got
				given[i][core] += got
				return got
			}
			for j := range loads {
				if given[j][core] <= 1e-9 {
					continue
				}
				if got := give(j, min(most, given[j][core]), seen); got > 0 {
					given[j][core] -= got
					given[i][core] += got
					return got
				}
			}
		}
		return 0
	}
	for i := range loads {
		for left[i] > 1e-9 {
			got := give(i, left[i], make([]bool, len(room)))
			if got == 0 {
				break
			}
			left[i] -= got
			total -= got
		}
	}
	return total
}

// loadsOf are the loads of VMs, where decisions let them run: without, anywhere.
func loadsOf(s *affinitytest.Scenario, decisions []affinity.Decision) (loads []load) {
	add := func(want units.Cores, set, otherwise units.CPUSet) {
		if set.IsEmpty() {
			set = otherwise
		}
		l := load{want: float64(want)}
		for i, core := range s.Node.Topology.Cores {
			if !core.CPUs.Intersection(set).IsEmpty() {
				l.cores = append(l.cores, i)
			}
		}
		loads = append(loads, l)
	}
	for i, vm := range s.VMs {
		var d affinity.Decision
		if decisions != nil {
			d = decisions[i]
		}
		for k, c := range vm.Rates.VCPUs {
			var set units.CPUSet
			if len(d.Pins) > 0 {
				set = d.Pins[k].CPUs
			}
			add(c.RunCores, set, vm.Rates.AllowedCPUs)
		}
		add(vm.Rates.Emulator.RunCores, d.Threads.Emulator, vm.Rates.AllowedCPUs)
		add(vm.Rates.IOThreads.RunCores, d.Threads.IOThreads, vm.Rates.AllowedCPUs)
		add(vm.Rates.Vhost.RunCores, d.Threads.Vhost, vm.Rates.AllowedCPUs)
		add(vm.Rates.Other.RunCores, units.CPUSet{}, vm.Rates.AllowedCPUs)
	}
	return loads
}

// Where all that runs finds room without a plan, it does with one: nobody starves for
// somebody's pins. Outside of pools, which take from some on purpose.
func TestPlansLeaveRoomForAll(t *testing.T) {
	tried := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 21))
		s := affinitytest.Random(r, shapes()[seed%5], 1+r.IntN(14), 4)
		room := func() []float64 {
			all := make([]float64, len(s.Node.Topology.Cores))
			for i, core := range s.Node.Topology.Cores {
				all[i] = float64(core.CPUs.Len())
			}
			return all
		}
		for i := range s.VMs {
			s.VMs[i].Within = units.CPUSet{}
		}
		before := unmet(loadsOf(&s, nil), room())
		after := unmet(loadsOf(&s, affinity.Place(s.Node, s.VMs).Decisions), room())
		if before < 1e-6 {
			tried++
		}
		if after > before+1e-6 {
			t.Errorf("seed %d: %.3f CPUs' work finds no room with a plan, %.3f without", seed, after, before)
		}
	}
	if tried < 100 {
		t.Errorf("only %d nodes had room for all", tried)
	}
}
