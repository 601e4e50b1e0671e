package affinity_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/planner/affinity/affinitytest"
	"github.com/joulevirt/joulevirt/internal/units"
)

// idle has so many VMs of two vCPUs that do next to nothing, on a node of four cores.
func idle(vms int) affinitytest.Scenario {
	s := affinitytest.Scenario{Node: affinitytest.NewNode(shapes()[1])}
	for i := range vms {
		vm := affinitytest.NewVM(string(rune('a'+i)), s.Node.Topology.Online(), 0.02, 0.02)
		vm.Preference = model.AffinityPinned
		s.VMs = append(s.VMs, vm)
	}
	s.Run()
	return s
}

// sharers returns the most vCPUs that are pinned to a core of a VM's vCPUs, itself too.
func sharers(placed affinity.Placement, vm int) int {
	most := 0
	for _, mine := range placed.Decisions[vm].Pins {
		on := 0
		for _, d := range placed.Decisions {
			for _, pin := range d.Pins {
				if pin.CPUs.Equal(mine.CPUs) {
					on++
				}
			}
		}
		most = max(most, on)
	}
	return most
}

// VMs that waited where they were bound get CPUs of their own, and those that are stacked
// with them make room; when there is no room they run anywhere.
func TestVMsThatWaitedShareNoCPU(t *testing.T) {
	stacked := idle(12)
	first := affinity.Place(stacked.Node, stacked.VMs)
	if sharers(first, 0) <= 2 {
		t.Fatalf("nothing is stacked: %+v", first.Decisions)
	}
	next := stacked.Adopt(first.Decisions)
	next.VMs[0].Waited = true
	moved := affinity.Place(next.Node, next.VMs)
	if got := sharers(moved, 0); got != 2 && got != 1 {
		t.Errorf("%d vCPUs share its cores: %+v", got, moved.Decisions)
	}
	for i := range next.VMs {
		next.VMs[i].Waited = true
		if len(moved.Decisions[i].Pins) == 0 {
			t.Errorf("VM %d is bound no more: %s", i, moved.Decisions[i].Reason)
		}
	}
	bound := 0
	all := affinity.Place(next.Node, next.VMs)
	for i, d := range all.Decisions {
		switch {
		case len(d.Pins) > 0:
			bound++
			if got := sharers(all, i); got > 2 {
				t.Errorf("VM %d: %d vCPUs share its cores", i, got)
			}
		case d.Reason != model.ReasonWouldWait:
			t.Errorf("VM %d runs anywhere: %s", i, d.Reason)
		}
	}
	if bound == 0 || bound > 4 {
		t.Errorf("%d VMs are bound to eight CPUs", bound)
	}
}

// Whoever waited, no core that one of them is pinned to has more vCPUs than CPUs, and a
// plan in force that nothing happened to stays.
func TestWaitedProperties(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := affinitytest.Random(r, shapes()[seed%5], 1+r.IntN(14), 4)
		for i := range s.VMs {
			s.VMs[i].Waited = r.IntN(3) == 0
		}
		placed := affinity.Place(s.Node, s.VMs)
		if diff := cmp.Diff(placed, affinity.Place(s.Node, s.VMs)); diff != "" {
			t.Fatalf("seed %d: not deterministic (-first +second):\n%s", seed, diff)
		}
		for i, d := range placed.Decisions {
			if d.Reason != model.ReasonPinned || !s.VMs[i].Waited {
				continue
			}
			for _, pin := range d.Pins {
				if on := vcpusOn(&placed, pin.CPUs); on > pin.CPUs.Len() {
					t.Errorf("seed %d: VM %d waited, and %d vCPUs share CPUs %s", seed, i, on, pin.CPUs)
				}
			}
		}
	}
}

// vcpusOn counts the vCPUs that are pinned to a core.
func vcpusOn(placed *affinity.Placement, core units.CPUSet) (on int) {
	for _, d := range placed.Decisions {
		for _, pin := range d.Pins {
			if d.Reason == model.ReasonPinned && pin.CPUs.Equal(core) {
				on++
			}
		}
	}
	return on
}
