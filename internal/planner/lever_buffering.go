package planner

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
)

// tellsBuffering tells whether the plan has a word about the lever for a VM: when it is
// allowed, or asked for. That floods may be defended against asks for nothing: it is the
// default.
func (w *work) tellsBuffering(vm model.VM) bool {
	return w.node.Policy.Allows(model.LeverBuffering) || vm.LatencyBudget > 0
}

// deniesBuffering says why the lever must leave a VM alone, or is empty. Dedicated CPUs do
// not matter to it.
func (w *work) deniesBuffering(vm model.VM) model.Reason {
	switch {
	case !w.node.Policy.Allows(model.LeverBuffering):
		return model.ReasonLeverNotAllowed
	case !vm.NamespaceSelected:
		return model.ReasonNamespaceNotSelected
	case w.optedOut(&vm, model.LeverBuffering):
		return model.ReasonOptedOut
	case w.withdrawal(vm.PodUID, model.LeverBuffering) != nil:
		return model.ReasonGuardWithdrawn
	case w.node.Reported && w.node.Buffering != "":
		return model.ReasonBufferingUnsupported
	case buffering.Longest(&vm) == 0 && !vm.DefendFloods:
		return model.ReasonNoLatencyBudget
	}
	return ""
}

// longestWords bounds what others say where a plan repeats it: the API's bound of a
// message.
const longestWords = 256

// why says why a lever must leave a VM alone. What the node lacks is in its agent's words.
func (w *work) why(vm *model.VM, lever model.Lever, denied model.Reason) model.LeverReason {
	why := because(lever, denied)
	switch denied {
	case model.ReasonOptedOut:
		why.Message = w.optOutMessage(vm, lever)
	case model.ReasonGuardWithdrawn:
		why.Message = bounded(w.withdrawal(vm.PodUID, lever).Words())
	case model.ReasonBufferingUnsupported:
		why.Message = bounded(w.node.Buffering)
	}
	return why
}

// keepBuffering carries over how a VM's packets are held, with what was said of it where
// it is the same as it was. otherwise says why nothing else is done.
func (w *work) keepBuffering(i int, otherwise model.Reason) {
	vm, kept := &w.VMs[i], &w.kept[i]
	vm.Buffering = kept.buffering
	why := because(model.LeverBuffering, otherwise)
	switch {
	case vm.Buffering.IsZero():
	case kept.bufferingStays:
		why = kept.bufferingWhy
	case vm.Buffering.Window > 0:
		why = because(model.LeverBuffering, model.ReasonBuffered)
	default:
		why = because(model.LeverBuffering, model.ReasonFloodDefenceOnly)
	}
	vm.Explain(why)
}

// keepsBuffering notes what is in force and still allowed. What hurt since goes at once,
// whatever else holds the plan.
func (k *inForce) keepsBuffering(vm *model.VM, was model.VMPlan, now time.Time) {
	k.buffering = buffering.Allowed(vm, was.Buffering, now)
	k.bufferingWhy = was.Reason(model.LeverBuffering)
	k.bufferingStays = k.bufferingWhy.Reason != "" && k.buffering.Equal(was.Buffering)
}

// buffer has the packets of VMs held. VMs of which the agent says nothing stay as they are,
// and so does one without a tap until it is looked at anew: it may be between two.
func (w *work) buffer(now time.Time) {
	for _, i := range w.buffering {
		vm, kept := &w.vms[i], &w.kept[i]
		if w.isLeft(i) {
			w.keepBuffering(i, w.waits)
			continue
		}
		rates := findRates(w.node.Rates, vm.PodUID)
		if rates == nil || len(rates.Taps) == 0 && !kept.buffering.IsZero() && !w.node.Review {
			w.keepBuffering(i, model.ReasonNotRunning)
			continue
		}
		choice := buffering.Choose(*vm, rates, kept.buffering, now)
		w.VMs[i].Buffering = choice.Buffering
		why := model.LeverReason{Lever: model.LeverBuffering, Reason: choice.Reason, Message: choice.Message}
		// Who knows nothing yet contradicts nothing that was said.
		same := kept.bufferingStays && choice.Equal(kept.buffering) && why.Reason == kept.bufferingWhy.Reason
		if same && len(vm.Tuning.Trials) == 0 && len(vm.Tuning.Hurts) == 0 {
			why = kept.bufferingWhy
		}
		w.VMs[i].Explain(why)
	}
}
