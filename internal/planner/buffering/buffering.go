// Package buffering decides for how long the packets of a VM are held. It is pure.
//
// What a packet costs is judged by the wake-ups of the VM's threads and by the CPU time
// that they use, per packet. Neither a meter nor a model of power moves a window: what one
// VM's window changes of a node's power is less than the node's power moves by itself.
package buffering

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Choice is what is to be done for one VM, and why.
type Choice struct {
	model.Buffering
	Reason  string
	Message string
}

// Choose decides for a VM of which rates are known. current is what is in force for it.
//
// The profile's class and latency budget give the windows that are allowed: a window w adds
// at most 2w to a round trip. The first one is short, and follows once it was seen what
// packets cost without; a longer one follows when the last change lowered what a packet
// costs and service held, and a shorter one at the first sign of loss. A window that hurt
// is not tried again while that is remembered. Where nothing was seen, as by a new manager,
// the window in force stays, as long as it is allowed.
func Choose(vm model.VM, rates *model.VMRates, current model.Buffering, now time.Time) Choice {
	switch {
	case rates == nil:
		return choice(Allowed(&vm, current, now), v1alpha1.ReasonNotRunning, "the node's agent found no threads of the VM")
	case len(rates.Taps) == 0:
		return Choice{Reason: v1alpha1.ReasonNoTap, Message: "the VM has no tap on the node, as with SR-IOV or passt"}
	}
	longest, limit := allowedWindow(&vm, now)
	window, next := tune(&vm, current.Window, min(firstWindow(&vm), longest))
	chosen := settings(&vm, min(window, longest))
	switch {
	case longest == 0:
		return choice(chosen, limit.reason, limit.message)
	case chosen.Window == 0 && next == savesTooLittle:
		return choice(chosen, v1alpha1.ReasonNoSaving, "holding the VM's packets was seen to save too little")
	case chosen.Window == 0 && next == costsService:
		return choice(chosen, v1alpha1.ReasonHurts, "the shortest window that makes bunches was seen to cost the VM packets")
	case chosen.Window == 0:
		return choice(chosen, v1alpha1.ReasonFewPackets, fmt.Sprintf(
			"packets have not come at %.0f/s for long enough to tell what they cost", chosen.OnPackets))
	case chosen.Window == longest:
		return choice(chosen, v1alpha1.ReasonBuffered, limit.message)
	}
	return choice(chosen, v1alpha1.ReasonBuffered, next.message())
}

// choice explains a buffering. why says why there is no longer window, or none.
func choice(b model.Buffering, reason string, why string) Choice {
	switch {
	case b.Window > 0:
		why = fmt.Sprintf("packets are held for up to %dus while they come at %.0f/s or faster: %s", b.Window.Microseconds(), b.OnPackets, why)
		return Choice{b, v1alpha1.ReasonBuffered, why}
	case b.FloodWindow > 0:
		return Choice{b, v1alpha1.ReasonFloodDefenceOnly, "packets are held during floods only: " + why}
	}
	return Choice{model.Buffering{}, reason, why}
}

// next returns why the window in force is not followed by a longer one.
type next int

const (
	toBeSeen next = iota
	savesTooLittle
	costsService
)

func (n next) message() string {
	switch n {
	case savesTooLittle:
		return "a longer window was seen to save too little more"
	case costsService:
		return "service did not hold well enough for a longer window"
	}
	return "a longer window may follow once it was seen what this one does"
}
