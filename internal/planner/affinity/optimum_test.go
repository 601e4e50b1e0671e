package affinity

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// optimum finds the best of all placements by trying each.
type optimum struct {
	*state
	best float64
}

// try goes on with the VMs from one on, unless what is placed already costs more than the
// best: nothing becomes cheaper, and no limit is kept again, when more is placed.
func (o *optimum) try(at int) {
	if o.total >= o.best || o.broken() > 0 {
		return
	}
	if at == len(o.vms) {
		o.best = o.total
		return
	}
	v := o.vms[at]
	try := func(b binding) {
		o.bind(v, b)
		o.try(at + 1)
		o.unbind(v)
	}
	if v.mayBe(pinned) {
		for _, cores := range v.scope.pinnable {
			o.pinnings(v, cores, nil, try)
		}
	}
	if v.mayBe(separated) {
		for _, p := range v.scope.parts {
			try(binding{mode: separated, part: p})
		}
	}
	if v.mayBe(floating) {
		try(floatingBinding(v))
	}
}

// pinnings tries all ways to pin the vCPUs that follow some.
func (o *optimum) pinnings(v *vm, cores, pins []int, try func(binding)) {
	if len(pins) == len(v.vcpus) {
		try(binding{mode: pinned, part: o.node.besidePins(v.scope, pins), pins: pins})
		return
	}
	for _, core := range cores {
		if o.mayShare(v, core) {
			o.pinnings(v, cores, append(slices.Clone(pins), core), try)
		}
	}
}

// unmet splits a price in the number of wishes that are not met, and the rest.
func (s *state) unmet(price float64) (wishes, rest float64) {
	wishes = math.Floor(price / s.node.prices.wish)
	return wishes, price - wishes*s.node.prices.wish
}

// No placement of a small node costs more than 3 % above the best of all that meet as many
// wishes, and none breaks a limit.
func TestGapToOptimum(t *testing.T) {
	const within, seeds = 0.03, 3000
	worst, sum := 0.0, 0.0
	for seed := range uint64(seeds) {
		sc := smallScenario(rand.New(rand.NewPCG(seed, 2)))
		n := newNode(sc.Node)
		use := n.unmanaged(sc.VMs)
		s := n.place(sc.VMs, use, false)
		o := optimum{newState(n, sc.VMs, use), math.Inf(1)}
		o.try(0)
		wishes, price := s.unmet(s.total)
		bestWishes, bestPrice := s.unmet(o.best)
		gap := price/bestPrice - 1
		if s.broken() > 0 || wishes > bestWishes || gap > within {
			t.Errorf("seed %d: %d limits broken, %v wishes unmet at %.4f, the best is %v at %.4f: %.2f %% more",
				seed, s.broken(), wishes, price, bestWishes, bestPrice, 100*gap)
		}
		worst, sum = max(worst, gap), sum+gap
	}
	t.Logf("%d nodes: worst %.2f %%, mean %.4f %%", seeds, 100*worst, 100*sum/seeds)
	t.Logf("figure affinity_gap_to_optimum_pct %.2f %%", 100*worst)
}

// TestPlanTime measures the first plan for a node of 128 CPUs with 200 VMs, before which none
// has pins, and the next.
func TestPlanTime(t *testing.T) {
	const plans = 11
	s := largeScenario(rand.New(rand.NewPCG(1, 1)))
	worst := 0.0
	for range 2 {
		var placed Placement
		var took []time.Duration
		for range plans {
			start := time.Now()
			placed = Place(s.Node, s.VMs)
			took = append(took, time.Since(start))
		}
		bound := 0
		for _, d := range placed.Decisions {
			bound += min(1, len(d.Pins))
		}
		if bound < len(s.VMs)/2 {
			t.Errorf("only %d of %d VMs are bound", bound, len(s.VMs))
		}
		slices.Sort(took)
		worst = max(worst, took[plans/2].Seconds()*1e3)
		s = s.adopt(placed.Decisions)
	}
	t.Logf("figure affinity_plan_128cpu_200vm_ms %.1f ms", worst)
}
