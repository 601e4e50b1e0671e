package simulated

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/sim"
)

// neighbours are small network VMs beside large computing ones on one host, that together want
// more CPU time than there is.
type neighbours struct {
	name string
	sim.Shape
	// network VMs have one vCPU.
	network int
	// compute VMs have vcpus each, and want cores each, more and less by turns.
	compute, vcpus int
	cores          units.Cores
	pattern        sim.Pattern
	noSlices       bool
	// hours that they are steered.
	hours int
	// starved is the most of the traffic that is handled without pools, and lost
	// the most of the computing that pools take.
	starved, lost float64
}

// machine with the VMs, network VMs first. A swing of a tenth within a quarter of an hour or so,
// or bursts of some minutes that leave a tenth of the time.
func (n neighbours) machine() machine {
	m := machine{name: n.name, seed: 1, Shape: n.Shape, noSlices: n.noSlices}
	for i := range n.network {
		m.vms = append(m.vms, sim.VM{Name: fmt.Sprintf("network-%d", i), VCPUs: 1, Traffic: sim.Traffic{
			Programme: sim.Programme{Pattern: sim.Diurnal, Period: time.Duration(31+i) * time.Minute, Swing: 0.2}, ToVM: 300 * mbit,
		}})
	}
	for i := range n.compute {
		programme := sim.Programme{Pattern: n.pattern, Period: time.Duration(17+i) * time.Minute, Swing: 0.1}
		if n.pattern == sim.Bursty {
			programme.Period, programme.Swing = time.Duration(120+10*i)*time.Second, 0.9
		}
		m.vms = append(m.vms, sim.VM{
			Name: fmt.Sprintf("compute-%d", i), VCPUs: n.vcpus, Compute: sim.Compute{Programme: programme, Cores: n.cores},
		})
	}
	return m
}

// TestPoolsCureStarvation: small network VMs starve beside larger pods on hosts that
// have less CPU time than is wanted. Manager and agent give them cores of their own:
// they get their throughput back, 87 % of that alone at least, no core of theirs gets
// hot, and the plan stays.
func TestPoolsCureStarvation(t *testing.T) {
	t.Parallel()
	sixteen := sim.Shape{CoresPerPackage: 16}
	for _, n := range []neighbours{
		// Each hog has all of its pod's weight on its core. One core of 16 is 6 %.
		{"one busy vCPU a pod", sixteen, 1, 18, 8, 1, sim.Diurnal, false, 2, 0.4, 0.08},
		{"siblings", sim.Shape{CoresPerPackage: 16, ThreadsPerCore: 2}, 2, 10, 8, 4, sim.Diurnal, false, 2, 0.8, 0.08},
		{"bursts, without slices", sixteen, 1, 8, 8, 3, sim.Bursty, true, 2, 0.95, 0.08},
		// A core is a quarter of this host: as little as pools can take.
		{"small host", sim.Shape{CoresPerPackage: 4}, 1, 8, 2, 0.6, sim.Diurnal, false, 4, 0.75, 0.25},
	} {
		m := n.machine()
		without := m
		without.vms = slices.Clone(m.vms[:n.network])
		alone := alone(t, without, nil)
		managed := manage(t, m, EnforcePolicy(v1alpha1.LeverAffinity, v1alpha1.LeverSlice), nil)
		before := must[measured](t)(measure(managed.Host, m.named(), settling, managed.Second))
		if err := managed.Steer(time.Hour); err != nil {
			t.Fatal(err)
		}
		early := managed.Changes
		after := steer(t, managed, m, time.Duration(n.hours-2)*time.Hour, time.Hour)
		plan := managed.Plan
		lost := 1 - float64(after.computed/before.computed)
		t.Logf("simulated %s: alone %v; beside others %v\nwith pools (network %s) %v: computing loses %.1f %%; %d changes of the plan", n.name,
			alone, before, plan.Pools.Network, after, 100*lost, managed.Changes)
		if before.served > n.starved {
			t.Errorf("simulated %s: %.3f is handled without pools: nobody starves", n.name, before.served)
		}
		if after.served < 0.87*alone.served || lost > n.lost {
			t.Errorf("simulated %s: with pools %v, before %v", n.name, after, before)
		}
		if use := after.busiest(plan.Pools.Network); plan.Pools.Shared() || use > managed.Policy.MaxCoreUtilization {
			t.Errorf("simulated %s: pools %v, with use of %.2f", n.name, plan.Pools, use)
		}
		if late := managed.Changes - early; late != 0 {
			t.Errorf("simulated %s: the plan changed %d times after the first hour", n.name, late)
		}
		slices := map[v1alpha1.Pool]time.Duration{v1alpha1.PoolNetwork: time.Millisecond, v1alpha1.PoolCompute: 30 * time.Millisecond}
		for i := range plan.VMs {
			vm := &plan.VMs[i]
			if n.noSlices {
				slices[vm.Pool] = 0
			}
			if vm.Slice != slices[vm.Pool] || vm.Pool == v1alpha1.PoolNone {
				t.Errorf("simulated %s: %s of pool %q has slice %v", n.name, vm.Name, vm.Pool, vm.Slice)
			}
		}
	}
}
