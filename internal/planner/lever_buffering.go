package planner

import (
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
)

// longestMessage bounds what others say where a plan repeats it: the API's bound of a
// message.
const longestMessage = 256

// keepBuffering carries over how a VM's packets are held, with its explanation where
// it is the same as it was. otherwise says why nothing else is done.
func (w *work) keepBuffering(i int, otherwise string) {
	vm, kept := &w.VMs[i], &w.kept[i]
	vm.Buffering = kept.buffering
	why := because(v1alpha1.LeverBuffering, otherwise)
	switch {
	case vm.Buffering.IsZero():
	case kept.bufferingStays:
		why = kept.bufferingWhy
	case vm.Buffering.Window > 0:
		why = because(v1alpha1.LeverBuffering, v1alpha1.ReasonBuffered)
	default:
		why = because(v1alpha1.LeverBuffering, v1alpha1.ReasonFloodDefenceOnly)
	}
	vm.Explain(why)
}

// recordBuffering records what is in force and still allowed. What hurt since goes at once,
// whatever else holds the plan.
func (k *inForce) recordBuffering(vm *model.VM, was model.VMPlan, now time.Time) {
	k.buffering = buffering.Allowed(vm, was.Buffering, now)
	k.bufferingWhy = was.Reason(v1alpha1.LeverBuffering)
	k.bufferingStays = k.bufferingWhy.Reason != "" && k.buffering.Equal(was.Buffering)
}

// bufferPackets has the packets of VMs held. VMs of which the agent says nothing stay as they are,
// and so does one without a tap until the next review: it may be between two.
func (w *work) bufferPackets(now time.Time) {
	for _, i := range w.buffering {
		vm, kept := &w.vms[i], &w.kept[i]
		rates := w.node.Rates.VM(vm.PodUID)
		if rates == nil || len(rates.Taps) == 0 && !kept.buffering.IsZero() && !w.node.Review {
			w.keepBuffering(i, v1alpha1.ReasonNotRunning)
			continue
		}
		choice := buffering.Choose(*vm, rates, kept.buffering, now)
		w.VMs[i].Buffering = choice.Buffering
		why := model.LeverReason{Lever: v1alpha1.LeverBuffering, Reason: choice.Reason, Message: choice.Message}
		// Who knows nothing yet contradicts nothing that was said.
		same := kept.bufferingStays && choice.Equal(kept.buffering) && why.Reason == kept.bufferingWhy.Reason
		if same && len(vm.Tuning.Trials) == 0 && len(vm.Tuning.Hurts) == 0 {
			why = kept.bufferingWhy
		}
		w.VMs[i].Explain(why)
	}
}
