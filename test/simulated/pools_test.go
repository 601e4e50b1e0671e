package simulated

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// TestPoolsCureStarvation: small network VMs starve beside larger pods on hosts that
// have less CPU time than is wanted. Manager and agent give them cores of their own:
// they get their throughput back, 87 % of that alone at least, no core of theirs gets
// hot, and the plan stays.
func TestPoolsCureStarvation(t *testing.T) {
	t.Parallel()
	sixteen := sim.Shape{CoresPerPackage: 16}
	for _, test := range []struct {
		Neighbours
		hours int
		// starved is the most of the traffic that is handled without pools, and lost
		// the most of the computing that pools take.
		starved, lost float64
	}{
		// Each hog has all of its pod's weight on its core. One core of 16 is 6 %.
		{Neighbours{Name: "one busy vCPU a pod", Shape: sixteen, Network: 1, Compute: 18, VCPUs: 8, Cores: 1, Pattern: sim.Diurnal}, 2, 0.4, 0.08},
		{Neighbours{Name: "siblings", Shape: sim.Shape{CoresPerPackage: 16, ThreadsPerCore: 2}, Network: 2, Compute: 10, VCPUs: 8, Cores: 4, Pattern: sim.Diurnal}, 2, 0.8, 0.08},
		{Neighbours{Name: "bursts, without slices", Shape: sixteen, Network: 1, Compute: 8, VCPUs: 8, Cores: 3, Pattern: sim.Bursty, NoSlices: true}, 2, 0.95, 0.08},
		// A core is a quarter of this host: as little as pools can take.
		{Neighbours{Name: "small host", Shape: sim.Shape{CoresPerPackage: 4}, Network: 1, Compute: 8, VCPUs: 2, Cores: 0.6, Pattern: sim.Diurnal}, 4, 0.75, 0.25},
	} {
		n := test.Neighbours
		n.Seed, n.Rate = 1, 300*mbit
		alone, err := n.Alone(10 * time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		p, err := n.Pool(test.hours)
		if err != nil {
			t.Fatal(err)
		}
		plan := p.Managed.Plan
		lost := 1 - float64(p.After.Computed/p.Before.Computed)
		t.Logf("simulated %s: alone %v; beside others %v\nwith pools (network %s) %v: computing loses %.1f %%; %d changes of the plan", n.Name,
			alone, p.Before, plan.Pools.Network, p.After, 100*lost, p.Changes)
		if p.Before.Served > test.starved {
			t.Errorf("simulated %s: %.3f is handled without pools: nobody starves", n.Name, p.Before.Served)
		}
		if p.After.Served < 0.87*alone.Served || lost > test.lost {
			t.Errorf("simulated %s: with pools %v, before %v", n.Name, p.After, p.Before)
		}
		if use := p.After.Busiest(plan.Pools.Network); plan.Pools.Shared() || use > EnforcePolicy().MaxCoreUtilization {
			t.Errorf("simulated %s: pools %v, with use of %.2f", n.Name, plan.Pools, use)
		}
		if p.Late != 0 {
			t.Errorf("simulated %s: the plan changed %d times after the first hour", n.Name, p.Late)
		}
		checkSlices(t, n, plan)
	}
}

// checkSlices tells whether each pool has its slice, or none where there are none.
func checkSlices(t *testing.T, n Neighbours, plan *model.Plan) {
	t.Helper()
	want := map[model.Pool]time.Duration{model.PoolNetwork: time.Millisecond, model.PoolCompute: 30 * time.Millisecond}
	for i := range plan.VMs {
		vm := &plan.VMs[i]
		if n.NoSlices {
			want[vm.Pool] = 0
		}
		if vm.Slice != want[vm.Pool] || vm.Pool == model.PoolNone {
			t.Errorf("simulated %s: %s of pool %q has slice %v", n.Name, vm.Name, vm.Pool, vm.Slice)
		}
	}
}

// TestPlannedAffinitySaves: plans of the product save on the study's hosts, and on a
// larger one, about what pins by hand do, and stay.
func TestPlannedAffinitySaves(t *testing.T) {
	t.Parallel()
	for _, s := range StudiedAffinity(1) {
		o, err := s.PlanAffinity()
		if err != nil {
			t.Fatal(err)
		}
		cores := s.Shape.CoresPerPackage
		byHand, err := s.Place(func(vm int) units.CPUSet {
			cpus := units.NewCPUSet(vm % cores)
			if s.Shape.ThreadsPerCore > 1 {
				cpus = units.NewCPUSet(vm%cores, vm%cores+cores)
			}
			return cpus
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("simulated %s: unbound %v\nby hand %v, %.1f %% less\nplanned %v, %.1f %% less; %d of %d VMs bound, %d changes of the plan", s.Name,
			o.Unbound, byHand, 100*byHand.Saved(o.Unbound), o.Planned, 100*o.Saved(), o.Bound, s.VMs, o.Changes)
		if o.Saved() < 0.8*byHand.Saved(o.Unbound) || o.Planned.Served < 0.999 {
			t.Errorf("simulated %s: planned %v, by hand %v", s.Name, o.Planned, byHand)
		}
		if limit := EnforcePolicy().MaxCoreUtilization; o.Planned.Busiest > limit || o.Changes > 3 {
			t.Errorf("simulated %s: the busiest CPU is used %.2f, and the plan changed %d times", s.Name, o.Planned.Busiest, o.Changes)
		}
	}
}
