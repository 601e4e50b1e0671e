package agent

import (
	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
)

// closed are the CPUs that a plan keeps each VM from on purpose, by pod UID: those of pool
// Network from VMs of pool Compute, which may wait while they idle.
func closed(plan *v1alpha1.NodePlan) map[string]units.CPUSet {
	if plan == nil || plan.Spec.Pools == nil {
		return nil
	}
	network, err := units.ParseCPUSet(plan.Spec.Pools.NetworkCPUs)
	if err != nil {
		return nil
	}
	from := map[string]units.CPUSet{}
	for i := range plan.Spec.VMs {
		if vm := &plan.Spec.VMs[i]; vm.Pool == v1alpha1.PoolCompute && vm.Affinity != nil {
			from[string(vm.PodUID)] = network
		}
	}
	return from
}
