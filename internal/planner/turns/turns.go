// Package turns lets the deferrable traffic of a node's VMs go one VM after the
// other: at any moment one sends at full rate and the others only trickle, which
// costs less than all of them sending a little. It is pure. The bounds on delay
// and rate are argued in docs/design/shaping-and-buffering.md.
package turns

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// Trickle is what passes of a VM between its turns.
	Trickle = model.LeastRate
	// leastSent is the rate from which a VM is a sender: below, most of what it
	// sends would pass as trickle. A VM that takes turns stays a sender down to the
	// trickle.
	leastSent = 4 * Trickle
	// slots of a period. Turns begin and end with a slot, so that small changes of
	// what VMs send change no turn.
	slots = 50
	// leastLength of a turn: below it, connections hardly get up to speed.
	leastLength = 50 * time.Millisecond
	// headroom is how much longer a turn is than what the VM sends needs at its ceiling.
	headroom = 1.25
	// fullPart is the use of a turn from which it is full: what the VM would like to
	// send is not known then.
	fullPart = 0.9
	// fairPart is the part of what it needs that a new turn must have: a node surely carries
	// a little more than its VMs send now. outgrownPart is the part of its share below which
	// a turn is not kept.
	fairPart, outgrownPart = 0.9, 0.75
	// shortened is the part of the longest possible period below which a current
	// one is not kept.
	shortened = 4
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

// Decision is a VM's turn, or none and the reason.
type Decision struct {
	Turn   *model.Turn
	Reason string
}

// Allowed returns whether a turn keeps within a delay: what is sent at any moment
// has passed within two periods.
func Allowed(turn model.Turn, maxDelay time.Duration) bool {
	return turn.IsValid() && 2*turn.Period <= maxDelay
}

// Plan decides for each VM, in the order given. The result depends on neither
// that order nor anything but what is given, and keeps current turns where they
// still do.
//
// The rate of the uplink that all VMs share is not known, but the node carries what they send
// together now. So the period is divided by what each sends, and a VM whose ceiling asks for
// a longer turn may not fit. Then those that would need most are left out, of those without
// a turn first.
func Plan(vms []VM) []Decision {
	decisions := make([]Decision, len(vms))
	var senders []*sender
	for i, vm := range vms {
		s := &sender{VM: vm, index: i}
		if decisions[i].Reason = s.excluded(); decisions[i].Reason == "" {
			senders = append(senders, s)
		}
	}
	slices.SortFunc(senders, func(x, y *sender) int { return cmp.Compare(x.PodUID, y.PodUID) })
	reason := v1alpha1.ReasonNoOtherSender
	for len(senders) > 1 {
		period := choosePeriod(senders)
		place(senders, period)
		if keep(senders, period) || divide(senders, period) {
			for _, s := range senders {
				decisions[s.index] = Decision{Turn: s.turn(period), Reason: v1alpha1.ReasonTakesTurns}
			}
			return decisions
		}
		reason = v1alpha1.ReasonNoRoom
		out := leastFitting(senders)
		decisions[senders[out].index].Reason = reason
		senders = slices.Delete(senders, out, out+1)
	}
	for _, s := range senders {
		decisions[s.index].Reason = reason
	}
	return decisions
}

// sender is a VM that is to take turns.
type sender struct {
	VM
	index int
	// placed is the current turn on the grid of the period. Nil: the sender has no turn.
	placed *span
	// share is the part of the period that the VM has of all senders' traffic, in
	// slots. need is what its turn has to have.
	share, need float64
	// at is where the turn is to lie.
	at span
}

// span is a part of the period, in slots.
type span struct{ start, length int }

func (s span) overlaps(o span) bool { return s.start < o.start+o.length && o.start < s.start+s.length }

// excluded returns why a VM takes no turns whatever the others do, or is empty. It
// forgets a current turn that is no longer allowed.
func (s *sender) excluded() string {
	if s.Current != nil && !Allowed(*s.Current, s.MaxDelay) {
		s.Current = nil
	}
	least := leastSent
	if s.Current != nil {
		least = Trickle
	}
	switch {
	case s.MaxDelay < 2*periods()[0]:
		return v1alpha1.ReasonNoRoom
	case s.Sent == nil && s.Current == nil:
		return v1alpha1.ReasonLearning
	case s.Sent != nil && !(*s.Sent >= least), s.Ceiling > 0 && s.Ceiling <= Trickle:
		return v1alpha1.ReasonSendsLittle
	}
	return ""
}

// periods that a node's turns may have: a hold lasts seconds. Each is a whole
// number of milliseconds a slot, and 64 seconds are a whole number of each.
func periods() []time.Duration {
	const unit = 500 * time.Millisecond
	return []time.Duration{unit, 2 * unit, 4 * unit, 8 * unit, 16 * unit}
}

// choosePeriod returns the longest period that all senders' delays allow, or the
// one that most of them have, when it is not much shorter.
func choosePeriod(senders []*sender) time.Duration {
	least := senders[0].MaxDelay
	have := map[time.Duration]int{}
	for _, s := range senders {
		least = min(least, s.MaxDelay)
		if s.Current != nil {
			have[s.Current.Period]++
		}
	}
	best, kept, most := periods()[0], time.Duration(0), 0
	for _, period := range periods() {
		if 2*period > least {
			break
		}
		best = period
		if have[period] > 0 && have[period] >= most {
			kept, most = period, have[period]
		}
	}
	if kept > 0 && kept*shortened > best {
		return kept
	}
	return best
}

// place puts the senders' current turns on the grid of a period, without those that share a
// slot with another, and computes what each sender needs. One whose rate is not known counts
// with what its turn has.
func place(senders []*sender, period time.Duration) {
	var seen []span
	var total units.BitsPerSecond
	unknown := 0.0
	for _, s := range senders {
		if s.placed = s.position(period); s.placed != nil && !slices.ContainsFunc(seen, s.placed.overlaps) {
			seen = append(seen, *s.placed)
		} else {
			s.placed = nil
		}
		if s.Sent != nil {
			total += *s.Sent
			continue
		}
		s.need = slots * float64(s.Current.Length) / float64(s.Current.Period)
		unknown += s.need / slots
	}
	if unknown < 1 {
		total = units.BitsPerSecond(float64(total) / (1 - unknown))
	}
	for _, s := range senders {
		if s.Sent == nil {
			continue
		}
		s.share = slots * float64(*s.Sent/total)
		s.need = s.share
		if s.Ceiling > 0 {
			s.need = max(s.share, slots*headroom*float64(*s.Sent/s.Ceiling))
		}
	}
}

// position returns a sender's current turn on the grid of a period. Nil: it is not on it.
func (s *sender) position(period time.Duration) *span {
	slot := period / slots
	if s.Current == nil || s.Current.Period != period || s.Current.Trickle != Trickle ||
		s.Current.Offset%slot != 0 || s.Current.Length%slot != 0 {
		return nil
	}
	return &span{int(s.Current.Offset / slot), int(s.Current.Length / slot)}
}

// serves returns whether a turn of so many slots still does for what the sender
// sends: it is not full, and not far below the sender's share.
func (s *sender) serves(length int) bool {
	if s.Sent == nil {
		return true
	}
	isFull := s.Ceiling > 0 && float64(*s.Sent) > fullPart*float64(s.Ceiling)*float64(length)/slots
	return !isFull && float64(length) >= outgrownPart*s.share
}

// keep leaves all turns as they are, where each sender has one that serves.
func keep(senders []*sender, period time.Duration) bool {
	for _, s := range senders {
		if s.placed == nil || s.placed.length < shortest(period) || !s.serves(s.placed.length) {
			return false
		}
		s.at = *s.placed
	}
	return true
}

// divide gives all of the period to the senders by what each needs, rounded in favour of the small, one
// turn after the other in the order that they have. It returns whether each got about its
// share.
func divide(senders []*sender, period time.Duration) bool {
	floor, left, weight, fair := shortest(period), slots, 0.0, true
	order := slices.Clone(senders)
	slices.SortStableFunc(order, func(x, y *sender) int {
		known := func(s *sender) int { return map[bool]int{true: 1}[s.Sent != nil] }
		return cmp.Or(known(x)-known(y), cmp.Compare(x.need, y.need))
	})
	newcomers := false
	for _, s := range order {
		newcomers = newcomers || s.placed == nil
		if s.Sent != nil {
			weight += s.need
		}
	}
	for _, s := range order {
		need := s.need
		if s.Sent != nil {
			need = float64(left) * s.need / weight
			weight -= s.need
		}
		// A little less than a whole slot too much is the arithmetic's.
		s.at.length = max(floor, int(math.Ceil(min(need, 2*slots)-1e-9)))
		left -= s.at.length
		// More is asked for newcomers' sake than turns in force are kept with, or a VM
		// that just fits would come and go as the rates vary.
		if newcomers && s.Sent != nil {
			fair = fair && float64(s.at.length) >= fairPart*s.need
		} else {
			fair = fair && s.serves(s.at.length)
		}
	}
	offset := func(s *sender) int {
		if s.placed == nil {
			return slots
		}
		return s.placed.start
	}
	order = slices.Clone(senders)
	slices.SortStableFunc(order, func(x, y *sender) int { return cmp.Compare(offset(x), offset(y)) })
	start := 0
	for _, s := range order {
		s.at.start = start
		start += s.at.length
	}
	return fair && left >= 0
}

// shortest is the shortest turn, in slots.
func shortest(period time.Duration) int {
	slot := period / slots
	return int((leastLength + slot - 1) / slot)
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
