package observe

import (
	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// ClassOf tells what a lever's effect on a node is pooled over. Without a report nothing is
// known of the processor: such nodes are alike with none.
func ClassOf(report *v1alpha1.NodeReport, workload string) verify.Class {
	if report == nil || report.Status.Topology.CPUModel == "" {
		return verify.Class{}
	}
	class := verify.Class{
		CPUModel: report.Status.Topology.CPUModel, Kernel: verify.KernelOf(report.Status.KernelVersion), Workload: workload,
	}
	// How deeply its CPUs may sleep is a setting of the firmware or the kernel.
	if states := report.Status.Topology.IdleStates; len(states) > 0 {
		class.Idle = states[len(states)-1].Name
	}
	// Pins save much less where the clocks follow the load than where they do not.
	if clocks := report.Status.Topology.Clocks; clocks != nil {
		class.Clocks = verify.ClocksOf(clocks.Governor, clocks.FollowLoad)
	}
	return class
}
