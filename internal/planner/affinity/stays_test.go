package affinity_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/planner/affinity/affinitytest"
)

// A VM that stays keeps its pins or loses them, whatever others do, and loses them only
// where a limit is broken; one without pins gets none.
func TestStays(t *testing.T) {
	kept, lost := 0, 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := affinitytest.Random(r, shapes()[seed%5], 2+r.IntN(12), 4)
		s = s.Adopt(affinity.Place(s.Node, s.VMs).Decisions)
		for i := range s.VMs {
			s.VMs[i].Stays = r.IntN(2) == 0
			for k := range s.VMs[i].Rates.VCPUs {
				c := &s.VMs[i].Rates.VCPUs[k]
				c.RunCores = min(1, c.RunCores*2)
			}
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			for i, d := range affinity.Place(s.Node, s.VMs).Decisions {
				vm := &s.VMs[i]
				switch {
				case !vm.Stays:
				case len(d.Pins) == 0:
					lost += min(1, len(vm.Current))
				case !cmp.Equal(d.Pins, vm.Current):
					t.Errorf("VM %d has pins %v, had %v", i, d.Pins, vm.Current)
				default:
					kept++
				}
			}
		})
	}
	if kept == 0 || lost == 0 {
		t.Errorf("%d VMs kept their pins and %d lost them: want some of both", kept, lost)
	}
}

// Heat is what takes pins: at rest all keep them.
func TestStaysWithoutHeat(t *testing.T) {
	const auto = "Auto"
	node := desktop()
	vms := []affinity.VM{vm(node, auto, 0.3, 0.3), vm(node, auto, 0.02), vm(node, auto, 0.4)}
	s := affinitytest.Scenario{Node: node, VMs: vms}
	s = s.Adopt(affinity.Place(node, vms).Decisions)
	bound := 0
	for i := range s.VMs {
		s.VMs[i].Stays = true
		bound += min(1, len(s.VMs[i].Current))
	}
	if bound == 0 {
		t.Fatal("no VM is bound")
	}
	for i, d := range affinity.Place(s.Node, s.VMs).Decisions {
		if !cmp.Equal(d.Pins, s.VMs[i].Current) {
			t.Errorf("VM %d has pins %v, had %v", i, d.Pins, s.VMs[i].Current)
		}
	}
}
