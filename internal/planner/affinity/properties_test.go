package affinity_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/planner/affinity/affinitytest"
	"github.com/joulevirt/joulevirt/internal/units"
)

// verify checks what must hold of every placement.
func verify(t *testing.T, s *affinitytest.Scenario, placed affinity.Placement) {
	t.Helper()
	if len(placed.Decisions) != len(s.VMs) {
		t.Fatalf("%d decisions for %d VMs", len(placed.Decisions), len(s.VMs))
	}
	predicted, err := s.Predict(placed.Decisions)
	if err != nil {
		t.Fatal(err)
	}
	if diff := float64(placed.After) - predicted.Watts; diff > 1e-6 || diff < -1e-6 {
		t.Fatalf("%v W are predicted, the design says %v", placed.After, predicted.Watts)
	}
	for i, d := range placed.Decisions {
		vm := &s.VMs[i]
		bound := d.Reason == model.ReasonPinned || d.Reason == model.ReasonSeparated
		switch {
		case bound != (len(d.Pins) > 0):
			t.Fatalf("VM %d: %d pins, reason %s", i, len(d.Pins), d.Reason)
		case !bound && !vm.Within.IsEmpty() && d.Reason != model.ReasonNoAllowedCore && d.Reason != model.ReasonNotRunning:
			t.Fatalf("VM %d is confined to %s and has no pins: %s", i, vm.Within, d.Reason)
		}
	}
}

// shapes from a small desktop to a server of two packages.
func shapes() []affinitytest.Shape {
	return []affinitytest.Shape{
		{Packages: 1, CachesPerPackage: 1, CoresPerCache: 1, Siblings: 1}, {Packages: 1, CachesPerPackage: 1, CoresPerCache: 4, Siblings: 2},
		{Packages: 1, CachesPerPackage: 3, CoresPerCache: 4, Siblings: 1}, {Packages: 2, CachesPerPackage: 1, CoresPerCache: 6, Siblings: 2},
		{Packages: 2, CachesPerPackage: 3, CoresPerCache: 2, Siblings: 2},
	}
}

func TestPlaceProperties(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := affinitytest.Random(r, shapes()[seed%5], 1+r.IntN(14), 4)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			first := affinity.Place(s.Node, s.VMs)
			verify(t, &s, first)
			if diff := cmp.Diff(first, affinity.Place(s.Node, s.VMs)); diff != "" {
				t.Fatalf("not deterministic (-first +second):\n%s", diff)
			}
			settles(t, s, first.Decisions)
		})
	}
}

// settles wants the plan to come to rest under constant rates. It may take some rounds:
// few VMs move in each, VMs that were rejected may find room then, and what is measured
// of threads with pins tells better what else runs where.
func settles(t *testing.T, s affinitytest.Scenario, decisions []affinity.Decision) {
	t.Helper()
	rounds := 10 + len(s.VMs)
	for range rounds {
		s = s.Adopt(decisions)
		next := affinity.Place(s.Node, s.VMs)
		verify(t, &s, next)
		if cmp.Equal(decisions, next.Decisions) {
			return
		}
		decisions = next.Decisions
	}
	t.Fatalf("the plan still changes after %d rounds of equal rates", rounds)
}

// Two busy vCPUs never share a core while one that both may have idles.
func TestNoHotSpot(t *testing.T) {
	const busy, idle = 0.3, 0.1
	shared := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := affinitytest.Random(r, shapes()[seed%5], 1+r.IntN(10), 4)
		for i := range s.VMs {
			// Of others none shares: they run anywhere rather.
			s.VMs[i].Preference = []model.AffinityPreference{model.AffinityPinned, model.AffinityAuto}[r.IntN(2)]
		}
		decisions := affinity.Place(s.Node, s.VMs).Decisions
		predicted, err := s.Predict(decisions)
		if err != nil {
			t.Fatal(err)
		}
		for _, vcpu := range busyPins(&s, decisions, busy) {
			for _, other := range busyPins(&s, decisions, busy) {
				if other.key() == vcpu.key() || !other.cpus.Equal(vcpu.cpus) {
					continue
				}
				shared++
				for core, c := range s.Node.Topology.Cores {
					if predicted.Use[core] < idle && mayHave(&s, s.VMs[vcpu.vm], c) && c.Class == classOf(&s, vcpu.cpus) {
						t.Errorf("seed %d: VMs %d and %d have busy vCPUs on %s while %s idles", seed, vcpu.vm, other.vm, vcpu.cpus, c.CPUs)
					}
				}
			}
		}
	}
	if shared == 0 {
		t.Error("no two busy vCPUs ever shared a core: nothing was seen")
	}
}

type busyPin struct {
	vm, vcpu int
	cpus     units.CPUSet
}

func (p busyPin) key() string { return fmt.Sprint(p.vm, p.vcpu) }

func busyPins(s *affinitytest.Scenario, decisions []affinity.Decision, busy units.Cores) []busyPin {
	var pins []busyPin
	for i, d := range decisions {
		for k, pin := range d.Pins {
			if d.Reason == model.ReasonPinned && s.VMs[i].Rates.VCPUs[k].Demand() >= busy {
				pins = append(pins, busyPin{i, k, pin.CPUs})
			}
		}
	}
	return pins
}

func mayHave(s *affinitytest.Scenario, vm affinity.VM, core model.Core) bool {
	return core.CPUs.IsSubsetOf(vm.Rates.AllowedCPUs) && core.CPUs.Intersection(s.Node.Excluded).IsEmpty() &&
		(vm.Within.IsEmpty() || core.CPUs.IsSubsetOf(vm.Within))
}

func classOf(s *affinitytest.Scenario, cpus units.CPUSet) model.CoreClass {
	for _, core := range s.Node.Topology.Cores {
		if core.CPUs.Equal(cpus) {
			return core.Class
		}
	}
	return ""
}

// With noise of 20 % on constant loads the pins of a settled node hardly ever change,
// but where what is measured makes a core hot.
func TestNoiseMovesNothing(t *testing.T) {
	const nodes, rounds, most = 30, 40, 0.02
	changed, forced := 0, 0
	for seed := range uint64(nodes) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := affinitytest.Random(r, shapes()[seed%5], 2+r.IntN(8), 3)
		for range 4 {
			s = s.Adopt(affinity.Place(s.Node, s.VMs).Decisions)
		}
		settled := affinity.Place(s.Node, s.VMs).Decisions
		for range rounds {
			noisy := s.AdoptWith(settled, func(c units.Cores) units.Cores { return c * units.Cores(0.8+0.4*r.Float64()) })
			next := affinity.Place(noisy.Node, noisy.VMs).Decisions
			if cmp.Equal(settled, next) {
				continue
			}
			if _, err := noisy.Predict(settled); err != nil {
				forced++
			} else {
				changed++
			}
			settled, s = next, s.Adopt(next)
		}
	}
	t.Logf("of %d rounds, pins changed in %d by choice and in %d because a limit was broken", nodes*rounds, changed, forced)
	if float64(changed) > most*nodes*rounds {
		t.Errorf("pins changed by noise alone in %d of %d rounds", changed, nodes*rounds)
	}
}

func FuzzPlace(f *testing.F) {
	f.Add(uint64(1), uint8(4), uint8(3))
	f.Add(uint64(9), uint8(1), uint8(9))
	f.Fuzz(func(t *testing.T, seed uint64, shape, vms uint8) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := affinitytest.Random(r, shapes()[shape%5], 1+int(vms%24), 6)
		placed := affinity.Place(s.Node, s.VMs)
		verify(t, &s, placed)
		settles(t, s, placed.Decisions)
	})
}
