package planner

import (
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/planner/pools"
	"github.com/joulevirt/joulevirt/internal/units"
)

// classify counts each VM that may be bound, or whose slice may be set, to a pool. A VM of
// which the agent saw no threads stays in its own.
func (w *work) classify() {
	for i, vm := range w.vms {
		if !slices.Contains(w.affinity, i) && !slices.Contains(w.slicing, i) {
			continue
		}
		w.VMs[i].Pool = w.kept[i].pool
		rates := w.node.Rates.VM(vm.PodUID)
		if rates == nil || len(rates.VCPUs) == 0 {
			continue
		}
		pool := pools.Classify(pools.VM{
			Rates: rates, Class: vm.TrafficClass, Preference: vm.Pool, Current: w.kept[i].pool, Disturbance: vm.Disturbance.Verdict,
		})
		// What a VM does in a second is no reason to leave the network pool at once: rates
		// of bursts go far beyond what levels can keep apart.
		if w.kept[i].pool != v1alpha1.PoolNetwork || w.node.Review || vm.Pool == v1alpha1.PoolAlwaysCompute {
			w.VMs[i].Pool = pool
		}
	}
}

// dividePools decides which cores each pool has. A VM that is bound and of which the agent
// saw no threads runs all the same: cores in force then stay as they are.
func (w *work) dividePools() {
	var members []pools.Member
	for i, vm := range w.vms {
		rates := w.node.Rates.VM(vm.PodUID)
		if rates == nil || len(rates.VCPUs) == 0 {
			if slices.Contains(w.affinity, i) && len(w.kept[i].pins) > 0 && w.poolsAllowed() {
				w.Pools = w.keptPools
				return
			}
			continue
		}
		members = append(members, pools.Member{
			VM: pools.VM{
				Rates: rates, Class: vm.TrafficClass, Current: w.kept[i].pool, Disturbance: vm.Disturbance.Verdict,
				Confinable: slices.Contains(w.affinity, i),
			},
			Pool: w.VMs[i].Pool,
		})
	}
	w.Pools = pools.Divide(pools.Node{
		Topology: w.node.Topology, Excluded: excluded(w.node), CPUs: w.node.Rates.CPUs,
		MaxCoreUtilization: w.node.Policy.MaxCoreUtilization, Current: w.keptPools,
		Settled: !w.node.Review,
	}, members)
}

// poolsAllowed returns whether the cores of the pools in force may still be used.
func (w *work) poolsAllowed() bool {
	cpus := w.keptPools.Network.Union(w.keptPools.Compute)
	return !w.keptPools.Shared() && cpus.IsSubsetOf(w.node.Topology.Online().Difference(excluded(w.node)))
}

// poolCPUs returns the CPUs that a pool's VMs are kept on. Empty: any.
func (w *work) poolCPUs(pool v1alpha1.Pool) units.CPUSet {
	if pool == v1alpha1.PoolNetwork {
		return w.Pools.Network
	}
	return w.Pools.Compute
}
