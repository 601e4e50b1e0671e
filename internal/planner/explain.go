package planner

import (
	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// because returns why a lever acts on a VM, or why not. No message holds a measured
// figure: a plan is constant while what it does is constant.
func because(lever v1alpha1.Lever, reason string) model.LeverReason {
	return model.LeverReason{Lever: lever, Reason: reason, Message: vmMessage(lever, reason)}
}

func vmMessage(lever v1alpha1.Lever, reason string) string {
	switch reason {
	case v1alpha1.ReasonLeverNotAllowed:
		return "the policy's levers do not name " + string(lever)
	case v1alpha1.ReasonPinned:
		return "each vCPU runs on one physical core"
	case v1alpha1.ReasonNamespaceNotSelected:
		return "the policy's namespaceSelector does not pick the VM's namespace"
	case v1alpha1.ReasonDedicatedCPUs:
		return "KubeVirt gave the VM dedicated CPUs: it is left alone"
	case v1alpha1.ReasonSeparated:
		return "the VM's threads run on a part of the node's physical cores"
	case v1alpha1.ReasonNothingToSeparate:
		return "the node has no parts that the VM could be kept on, and no cores for VMs of its pool alone"
	case v1alpha1.ReasonNoSaving:
		return "no binding is predicted to save enough"
	case v1alpha1.ReasonSiblingsTaken:
		return "the physical cores that are left have vCPUs that the policy's siblingSharing keeps the VM's apart from"
	case v1alpha1.ReasonWouldWait:
		return "the VM's threads waited where they were bound while other CPUs idled, and there are no CPUs for them alone"
	case v1alpha1.ReasonShortSlice:
		return "the VM counts to pool Network: its threads take over soon after they wake up"
	case v1alpha1.ReasonLongSlice:
		return "the VM counts to pool Compute: its threads run long when they run"
	case v1alpha1.ReasonNoOtherPool:
		return "no VM of the other pool, that the lever may act on, runs on the node"
	case v1alpha1.ReasonSlicesUnsupported:
		return "the node's kernel is older than Linux 6.12 and has no slices of threads: affinity alone keeps pools apart"
	case v1alpha1.ReasonSharedPreferred:
		return "the profile's affinity is Shared"
	case v1alpha1.ReasonCoreWouldBeHot:
		return "a pin would load a physical core above the policy's maxCoreUtilizationPercent"
	case v1alpha1.ReasonNoAllowedCore:
		return "no whole physical core is inside the container's cpuset and outside reserved and isolated CPUs"
	case v1alpha1.ReasonNotRunning:
		return "the node's agent found no vCPU threads of the VM"
	case v1alpha1.ReasonAwaitingTrial:
		return "the lever waits for its trial on this kind of node"
	case v1alpha1.ReasonRejectedByTrial:
		return "a trial showed that the lever does not save on this kind of node, or that it hurts"
	case v1alpha1.ReasonTrialUndecided:
		return "the lever's trial ended without a verdict: it is tried again"
	case v1alpha1.ReasonAwaitingApproval:
		return "the VM is not part of the recommendation that stands: it waits for the next"
	default:
		return trafficMessage(reason)
	}
}

// trafficMessage explains what levers Shaping and Buffering do.
func trafficMessage(reason string) string {
	switch reason {
	case v1alpha1.ReasonTakesTurns:
		return "the VM sends at full rate in its turn, and a trickle between"
	case v1alpha1.ReasonCeiling:
		return "the VM sends at most the profile's ceiling"
	case v1alpha1.ReasonNothingToShape:
		return "the profile has no ceiling and its traffic class is not Deferrable"
	case v1alpha1.ReasonCeilingTooLow:
		return "connections would time out below 256 kbit/s: raise bandwidth.ceiling of the profile"
	case v1alpha1.ReasonLearning:
		return "the node's agent does not tell yet what the VM sends on average"
	case v1alpha1.ReasonSendsLittle:
		return "the VM sends so little that holding it would save nothing"
	case v1alpha1.ReasonNoOtherSender:
		return "no other VM of the node has traffic that could take turns with the VM's"
	case v1alpha1.ReasonNoRoom:
		return "the VM would need a longer turn than the node's other VMs leave"
	case v1alpha1.ReasonBuffered:
		return "packets that come fast are held, and handed over in bunches"
	case v1alpha1.ReasonFloodDefenceOnly:
		return "packets are held during floods only"
	case v1alpha1.ReasonNoLatencyBudget:
		return "the profile's latencyBudget is less than twice the shortest window of 125us, and floodDefence is Forbid"
	default:
		return planMessage(reason)
	}
}

func planMessage(reason string) string {
	switch reason {
	case v1alpha1.ReasonObserveOnly:
		return "the policy's mode is Observe: nothing is changed"
	case v1alpha1.ReasonLeverNotAllowed:
		return "the policy's levers name none of Affinity, Slice, Shaping and Buffering, all that is planned for a node"
	case v1alpha1.ReasonNoMeter:
		return "mode Enforce needs measured power: give the node a meter, or set spec.energy.allowModelled of the policy"
	case v1alpha1.ReasonAwaitingMeter:
		return "no meter of the node gives a fresh figure: nothing new is done until one does, and what is in force is reverted when none does for long: see condition MeterAvailable of the policy"
	case v1alpha1.ReasonNodeFrozen:
		return "the node is cordoned or draining: nothing new is done"
	case v1alpha1.ReasonNoReport:
		return "the node's agent has not reported the node's cores: check that it runs there"
	case v1alpha1.ReasonReportUnreadable:
		return "status.topology of the node's NodeReport cannot be read, see the manager's log: nothing new is done; restart or update the node's agent"
	case v1alpha1.ReasonNoRates:
		return "the rates of the node's agent are missing or old: nothing new is done until they can be read"
	case v1alpha1.ReasonPaused:
		return "the policy is paused: nothing is changed until its spec.paused is false"
	case v1alpha1.ReasonOutsideChangeWindow, v1alpha1.ReasonInFreeze, v1alpha1.ReasonInvalidSchedule:
		return "the policy's budgets.windows and budgets.freezes let nothing new be done now"
	case v1alpha1.ReasonChangeBudgetNodes:
		return "as many nodes are changing as the policy's budgets.maxNodesChanging allows: what is new waits until their agents have confirmed"
	case v1alpha1.ReasonChangeBudgetHour:
		return "more VMs of the node were to be changed within an hour than the policy's budgets.maxChangesPerHour allows: the rest waits"
	case v1alpha1.ReasonAwaitingProof:
		return "the manager has not read yet how levers stand with trials: nothing new is done until it has"
	case v1alpha1.ReasonNothingToDo:
		return "no VM of the node is to be changed"
	default:
		return ""
	}
}
