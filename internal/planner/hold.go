package planner

import (
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
)

// changesWait says why nothing new may be done though all is known, and in words; the
// reason is empty when it may.
func changesWait(node *model.Node) (reason model.Reason, message string) {
	switch {
	case node.Hold.Reason != "":
		return node.Hold.Reason, node.Hold.Message
	case node.NodesBusy && node.Policy.Mode == model.ModeRecommend:
		// What the product chooses itself waits VM by VM, see work.bound.
		return model.ReasonChangeBudgetNodes, planMessage(model.ReasonChangeBudgetNodes)
	}
	return "", ""
}

// waitsWhole says why the plan stays as it is because nothing new may be done, or is
// empty. What is only recommended may be found at any time: it waits to be applied.
func waitsWhole(node *model.Node) model.Reason {
	if node.Policy.Mode == model.ModeRecommend && !inForceNow(node) {
		return ""
	}
	reason, _ := changesWait(node)
	return reason
}

// inForceNow tells whether the node's current plan is acted on.
func inForceNow(node *model.Node) bool { return node.Current != nil && node.Current.Apply }

// isTimeOfNoChanges tells whether a plan waits for what comes by itself and may last
// for days.
func isTimeOfNoChanges(reason model.Reason) bool {
	switch reason {
	case model.ReasonOutsideChangeWindow, model.ReasonInFreeze, model.ReasonInvalidSchedule:
		return true
	}
	return false
}

// cool takes the pins of VMs in mode Enforce whose cores became too hot: a time of no
// changes may be one of other loads, and longer than a core may be so.
func (w *work) cool(held model.Reason) {
	if w.Mode != model.ModeEnforce || !isTimeOfNoChanges(held) {
		return
	}
	w.stays, w.waits = slices.Repeat([]bool{true}, len(w.vms)), held
	w.place()
	if !w.binds() {
		w.Pools = model.PoolCores{}
	}
}

// repeatJudged explains VMs that a lever would not have helped when it was last looked,
// as then: the time of no changes is not what keeps the lever away.
func (w *work) repeatJudged(held model.Reason) {
	current := w.node.Current
	if !isTimeOfNoChanges(held) || current == nil || current.Policy != w.Policy {
		return
	}
	for i := range w.VMs {
		was, known := current.VM(w.VMs[i].PodUID)
		if !known {
			continue
		}
		for _, why := range w.VMs[i].Reasons {
			if said := was.Reason(why.Lever); why.Reason == held && judged(said.Reason) {
				w.VMs[i].Explain(said)
			}
		}
	}
}

// judged tells whether a reason says that a lever would not help.
func judged(reason model.Reason) bool {
	switch reason {
	case model.ReasonNothingToDo, model.ReasonCoreWouldBeHot, model.ReasonWouldWait, model.ReasonNoSaving, model.ReasonNothingToSeparate, model.ReasonSiblingsTaken,
		model.ReasonNoOtherPool, model.ReasonSendsLittle, model.ReasonNoOtherSender, model.ReasonNoRoom, model.ReasonFewPackets, model.ReasonHurts:
		return true
	}
	return false
}

// optedOut tells whether the owner of a VM, or of the node, keeps a lever away.
func (w *work) optedOut(vm *model.VM, lever model.Lever) bool {
	return vm.OptOut.Keeps(lever) || w.node.OptOut.Keeps(lever)
}

// optOutMessage says who keeps a lever away from a VM.
func (w *work) optOutMessage(vm *model.VM, lever model.Lever) string {
	if vm.OptOut.Keeps(lever) {
		return "annotation joulevirt.io/opt-out of the VirtualMachineInstance " + optOutWords(vm.OptOut)
	}
	return "annotation joulevirt.io/opt-out of the node " + optOutWords(w.node.OptOut)
}

func optOutWords(out model.OptOut) string {
	switch {
	case out.Unreadable != "":
		return "is " + out.Unreadable + ", neither true, false nor a list of levers such as Affinity,Buffering: it counts as true"
	case out.All:
		return "keeps all levers away"
	}
	return "names the lever"
}
