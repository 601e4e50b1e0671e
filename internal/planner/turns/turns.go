// Package turns lets the deferrable traffic of a node's VMs go one VM after the
// other: at any moment one sends at full rate and the others only trickle, which
// costs less than all of them sending a little. It is pure. The bounds on delay
// and rate are argued in docs/design/turns.md.
package turns

import (
	"cmp"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// VM is a VM whose traffic may be held.
type VM struct {
	PodUID string
	// Sent is the mean of what the VM sends, over several periods of its turn when
	// it has one. Nil: not known.
	Sent *units.BitsPerSecond
	// Ceiling is the most that the VM sends. 0: no bound.
	Ceiling units.BitsPerSecond
	// MaxDelay is how long traffic may be held in all.
	MaxDelay time.Duration
	// Current turn. Nil: none.
	Current *model.Turn
}

// Decision is what becomes of a VM: a turn, or none and the reason.
type Decision struct {
	Turn   *model.Turn
	Reason model.Reason
}

const (
	// Trickle is what passes of a VM between its turns.
	Trickle = model.LeastRate
	// leastSent is the rate from which a VM is a sender: below, most of what it
	// sends would pass as trickle. A VM that takes turns stays a sender down to the
	// trickle.
	leastSent = 4 * Trickle
)

// Allowed tells whether a turn keeps within a delay: what is sent at any moment
// has passed within two periods.
func Allowed(turn model.Turn, maxDelay time.Duration) bool {
	return turn.IsValid() && 2*turn.Period <= maxDelay
}

// Plan decides for each VM, in the order given. The result depends on neither
// that order nor anything but what is given, and keeps current turns where they
// still do. uplink is the rate that all VMs share. 0: not known.
//
// When not all VMs fit in a period, those that would need most are left out, of
// those without a turn first.
func Plan(uplink units.BitsPerSecond, vms []VM) []Decision {
	decisions := make([]Decision, len(vms))
	var senders []*sender
	for i, vm := range vms {
		s := &sender{VM: vm, index: i, full: fullRate(uplink, vm.Ceiling)}
		if decisions[i].Reason = s.excluded(); decisions[i].Reason == "" {
			senders = append(senders, s)
		}
	}
	slices.SortFunc(senders, func(x, y *sender) int { return cmp.Compare(x.PodUID, y.PodUID) })
	reason := model.ReasonNoOtherSender
	for len(senders) > 1 {
		a := newArrangement(uplink, senders)
		if a.fits() {
			for _, s := range senders {
				decisions[s.index] = Decision{Turn: s.turn(a.period), Reason: model.ReasonTakesTurns}
			}
			return decisions
		}
		reason = model.ReasonNoRoom
		out := leastFitting(senders)
		decisions[senders[out].index].Reason = reason
		senders = slices.Delete(senders, out, out+1)
	}
	for _, s := range senders {
		decisions[s.index].Reason = reason
	}
	return decisions
}

// fullRate is what a VM sends at most during its turn. 0: not known.
func fullRate(uplink, ceiling units.BitsPerSecond) units.BitsPerSecond {
	if uplink > 0 && ceiling > 0 {
		return min(uplink, ceiling)
	}
	return max(uplink, ceiling)
}

// sender is a VM that is to take turns.
type sender struct {
	VM
	index int
	// full is what the VM sends at most during its turn. 0: not known.
	full units.BitsPerSecond
	// placed is where the current turn lies on the grid. Nil: nowhere.
	placed *span
	// share is the part of a period that the VM has of all senders' traffic, in
	// slots, where the uplink's rate is not known. need is what its turn has to have.
	share, need float64
	// at is where the turn is to lie.
	at span
}

// excluded says why a VM takes no turns whatever the others do, or is empty. It
// forgets a current turn that is not allowed any more.
func (s *sender) excluded() model.Reason {
	if s.Current != nil && !Allowed(*s.Current, s.MaxDelay) {
		s.Current = nil
	}
	least := leastSent
	if s.Current != nil {
		least = Trickle
	}
	switch {
	case s.MaxDelay < 2*periods()[0]:
		return model.ReasonNoRoom
	case s.Sent == nil && s.Current == nil:
		return model.ReasonTrafficUnknown
	case s.Sent != nil && !(*s.Sent >= least), s.full > 0 && s.full <= Trickle:
		return model.ReasonSendsLittle
	}
	return ""
}

// leastFitting is the sender that would need most, of those without a turn if
// there are any.
func leastFitting(senders []*sender) int {
	out := 0
	for i, s := range senders {
		most := senders[out]
		if newcomer, was := s.placed == nil, most.placed == nil; newcomer != was {
			if newcomer {
				out = i
			}
			continue
		}
		if s.need > most.need {
			out = i
		}
	}
	return out
}

func (s *sender) turn(period time.Duration) *model.Turn {
	slot := period / slots
	return &model.Turn{
		Period: period, Offset: time.Duration(s.at.start) * slot,
		Length: time.Duration(s.at.length) * slot, Trickle: Trickle,
	}
}
