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

func turbo() model.Clocks {
	return model.Clocks{Governor: "schedutil", FollowLoad: true, Lowest: 800, Highest: 3500, Base: 2500}
}

// coresOf counts the cores that VMs are pinned to.
func coresOf(decisions []affinity.Decision) int {
	used := map[string]bool{}
	for _, d := range decisions {
		for _, pin := range d.Pins {
			used[pin.CPUs.String()] = true
		}
	}
	return len(used)
}

// fleet is a server with room to spare, whose VMs work a little each.
func fleet(clocks model.Clocks) affinitytest.Scenario {
	node := affinitytest.NewNode(affinitytest.Shape{Packages: 1, CachesPerPackage: 1, CoresPerCache: 16, Siblings: 2})
	node.Topology.Clocks = clocks
	node.Costs.PerAwakeCore = 0.3
	s := affinitytest.Scenario{Node: node}
	for i := range 40 {
		s.VMs = append(s.VMs, vm(node, model.AffinityAuto, units.Cores(0.06+0.004*float64(i%10)), 0.08))
	}
	s.Run()
	return s
}

// How far to pack is decided by the price: not at all where a core that is used more is much
// dearer, onto some cores where it is a little, and onto few where clocks do not matter.
func TestClocksDecideHowFarToPack(t *testing.T) {
	count := func(change func(*model.Clocks)) int {
		clocks := turbo()
		change(&clocks)
		s := fleet(clocks)
		return coresOf(affinity.Place(s.Node, s.VMs).Decisions)
	}
	wide := count(func(*model.Clocks) {})
	narrow := count(func(c *model.Clocks) { c.Lowest, c.Highest = 2300, 2700 })
	fixed := count(func(c *model.Clocks) { c.FollowLoad = false })
	none := count(func(c *model.Clocks) { *c = model.Clocks{} })
	flat := count(func(c *model.Clocks) { c.Lowest = c.Highest })
	t.Logf("cores with pins: %d by wide clocks, %d by narrow ones, %d by fixed ones", wide, narrow, fixed)
	if wide <= narrow || narrow <= fixed {
		t.Errorf("%d cores have pins by wide clocks, %d by narrow ones, %d by fixed ones: want fewer each time", wide, narrow, fixed)
	}
	if none != fixed || flat != fixed {
		t.Errorf("%d cores have pins where clocks are not known, %d where there is one only, %d where they are fixed", none, flat, fixed)
	}
}

// What is predicted of a plan is no more than without, whatever the clocks: but for wishes.
func TestPlansDrawNoMore(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 32))
		s := affinitytest.Random(r, shapes()[seed%5], 1+r.IntN(14), 4)
		s.Node.Topology.Clocks = turbo()
		for i := range s.VMs {
			s.VMs[i].Preference, s.VMs[i].Within = model.AffinityAuto, units.CPUSet{}
		}
		placed := affinity.Place(s.Node, s.VMs)
		if placed.After > placed.Before+1e-9 {
			t.Errorf("seed %d: %.3f W with the plan, %.3f W without", seed, placed.After, placed.Before)
		}
	}
}

// Clocks that cannot be are none.
func TestOddClocks(t *testing.T) {
	want := affinity.Place(fleet(model.Clocks{}).Node, fleet(model.Clocks{}).VMs)
	for name, clocks := range map[string]model.Clocks{
		"no range":            {FollowLoad: true},
		"highest below base":  {FollowLoad: true, Lowest: 3000, Highest: 2000, Base: 2500},
		"negative":            {FollowLoad: true, Lowest: -1, Highest: -3000, Base: -5},
		"lowest above others": {FollowLoad: true, Lowest: 9000, Highest: 3000, Base: 2500},
	} {
		s := fleet(clocks)
		if diff := cmp.Diff(want, affinity.Place(s.Node, s.VMs)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
