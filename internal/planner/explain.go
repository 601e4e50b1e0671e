package planner

import "github.com/joulevirt/joulevirt/internal/model"

// because says why a lever acts on a VM, or why not. No message holds a measured
// figure: a plan is constant while what it does is constant.
func because(lever model.Lever, reason model.Reason) model.LeverReason {
	return model.LeverReason{Lever: lever, Reason: reason, Message: vmMessage(lever, reason)}
}

func vmMessage(lever model.Lever, reason model.Reason) string {
	switch reason {
	case model.ReasonLeverNotAllowed:
		return "the policy's levers do not name " + string(lever)
	case model.ReasonPinned:
		return "each vCPU runs on one physical core"
	case model.ReasonNamespaceNotSelected:
		return "the policy's namespaceSelector does not pick the VM's namespace"
	case model.ReasonDedicatedCPUs:
		return "KubeVirt gave the VM dedicated CPUs: it is left alone"
	case model.ReasonSeparated:
		return "the VM's threads run on a part of the node's physical cores"
	case model.ReasonNothingToSeparate:
		return "the node has no parts that the VM could be kept on, and no cores for VMs of its pool alone"
	case model.ReasonNoSaving:
		return "no binding is predicted to save enough"
	case model.ReasonSiblingsTaken:
		return "the physical cores that are left have vCPUs that the policy's siblingSharing keeps the VM's apart from"
	case model.ReasonWouldWait:
		return "the VM's threads waited where they were bound while other CPUs idled, and there are no CPUs for them alone"
	case model.ReasonShortSlice:
		return "the VM counts to pool Network: its threads take over soon after they wake up"
	case model.ReasonLongSlice:
		return "the VM counts to pool Compute: its threads run long when they run"
	case model.ReasonNoOtherPool:
		return "no VM of the other pool, that the lever may act on, runs on the node"
	case model.ReasonSlicesUnsupported:
		return "the node's kernel is older than Linux 6.12 and has no slices of threads: affinity alone keeps pools apart"
	case model.ReasonSharedPreferred:
		return "the profile's affinity is Shared"
	case model.ReasonCoreWouldBeHot:
		return "a pin would load a physical core above the policy's maxCoreUtilizationPercent"
	case model.ReasonNoAllowedCore:
		return "no whole physical core is inside the container's cpuset and outside reserved and isolated CPUs"
	case model.ReasonNotRunning:
		return "the node's agent found no vCPU threads of the VM"
	case model.ReasonAwaitingTrial:
		return "the lever waits for its trial on this kind of node"
	case model.ReasonRejectedByTrial:
		return "a trial showed that the lever does not save on this kind of node, or that it hurts"
	case model.ReasonTrialUndecided:
		return "the lever's trial ended without a verdict: it is tried again"
	case model.ReasonAwaitingApproval:
		return "the VM is not part of the recommendation that stands: it waits for the next"
	default:
		return trafficMessage(reason)
	}
}

// trafficMessage explains what levers Shaping and Buffering do.
func trafficMessage(reason model.Reason) string {
	switch reason {
	case model.ReasonTakesTurns:
		return "the VM sends at full rate in its turn, and a trickle between"
	case model.ReasonCeiling:
		return "the VM sends at most the profile's ceiling"
	case model.ReasonNothingToShape:
		return "the profile has no ceiling and its traffic class is not Deferrable"
	case model.ReasonCeilingTooLow:
		return "connections would time out below 256 kbit/s: raise bandwidth.ceiling of the profile"
	case model.ReasonTrafficUnknown:
		return "the node's agent does not tell yet what the VM sends on average"
	case model.ReasonSendsLittle:
		return "the VM sends so little that holding it would save nothing"
	case model.ReasonNoOtherSender:
		return "no other VM of the node has traffic that could take turns with the VM's"
	case model.ReasonNoRoom:
		return "the VM would need a longer turn than the node's other VMs leave"
	case model.ReasonBuffered:
		return "packets that come fast are held, and handed over in bunches"
	case model.ReasonFloodDefenceOnly:
		return "packets are held during floods only"
	case model.ReasonNoLatencyBudget:
		return "the profile's latencyBudget is less than twice the shortest window of 125us, and floodDefence is Forbid"
	default:
		return planMessage(reason)
	}
}

func planMessage(reason model.Reason) string {
	switch reason {
	case model.ReasonObserveOnly:
		return "the policy's mode is Observe: nothing is changed"
	case model.ReasonLeverNotAllowed:
		return "the policy's levers name none of Affinity, Slice, Shaping and Buffering, all that is planned for a node"
	case model.ReasonNoMeter:
		return "mode Enforce needs measured power: give the node a meter, or set spec.energy.allowModelled of the policy"
	case model.ReasonAwaitingMeter:
		return "no meter of the node gives a fresh figure: nothing new is done until one does, and what is in force is taken back when none does for long: see condition MeterAvailable of the policy"
	case model.ReasonNodeFrozen:
		return "the node is cordoned or draining: nothing new is done"
	case model.ReasonNoReport:
		return "the node's agent has not reported the node's cores: check that it runs there"
	case model.ReasonReportUnreadable:
		return "status.topology of the node's NodeReport makes no sense, as the manager's log tells: nothing new is done; restart or update the node's agent"
	case model.ReasonNoRates:
		return "the rates of the node's agent are missing or old: nothing new is done until they can be read"
	case model.ReasonPaused:
		return "the policy is paused: nothing is changed until its spec.paused is false"
	case model.ReasonOutsideChangeWindow, model.ReasonInFreeze, model.ReasonInvalidSchedule:
		return "the policy's budgets.windows and budgets.freezes let nothing new be done now"
	case model.ReasonChangeBudgetNodes:
		return "as many nodes are changing as the policy's budgets.maxNodesChanging allows: what is new waits until their agents have confirmed"
	case model.ReasonChangeBudgetHour:
		return "more VMs of the node were to be changed within an hour than the policy's budgets.maxChangesPerHour allows: the rest waits"
	case model.ReasonAwaitingProof:
		return "the manager has not read yet how levers stand with trials: nothing new is done until it has"
	case model.ReasonNothingToDo:
		return "no VM of the node is to be changed"
	default:
		return ""
	}
}
