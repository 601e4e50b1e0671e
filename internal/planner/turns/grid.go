package turns

import (
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// slots of a period. Turns begin and end with a slot, so that small changes of
	// what VMs send change no turn.
	slots = 50
	// leastLength of a turn: below it, connections hardly get up to speed.
	leastLength = 50 * time.Millisecond
	// headroom is how much longer a turn is than what the VM sends now needs.
	headroom = 1.25
	// fullPart is the use of a turn from which it is full: what the VM would like to
	// send is not known then.
	fullPart = 0.9
	// fairPart is the part of what it needs that a new turn must have, where the
	// uplink's rate is not known: a node surely carries a little more than its VMs
	// send now. outgrownPart is the part of its share below which a turn is not kept.
	fairPart, outgrownPart = 0.9, 0.75
	// shortened is the part of the longest possible period below which a current
	// one is not kept.
	shortened = 4
)

// periods that a node's turns may have: a hold lasts seconds. Each is a whole
// number of milliseconds a slot, and 64 seconds are a whole number of each.
func periods() []time.Duration {
	const unit = 500 * time.Millisecond
	return []time.Duration{unit, 2 * unit, 4 * unit, 8 * unit, 16 * unit}
}

// span is a part of the period, in slots.
type span struct{ start, length int }

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

// position places a sender's current turn on the grid of a period.
func (s *sender) position(period time.Duration) {
	s.placed = nil
	slot := period / slots
	if s.Current == nil || s.Current.Period != period || s.Current.Trickle != Trickle ||
		s.Current.Offset%slot != 0 || s.Current.Length%slot != 0 {
		return
	}
	s.placed = &span{int(s.Current.Offset / slot), int(s.Current.Length / slot)}
}

// row is a period's slots: true where they are taken.
type row [slots]bool

func (r *row) free(at span) bool {
	return at.start >= 0 && at.start+at.length <= slots && !slices.Contains(r[at.start:at.start+at.length], true)
}

func (r *row) take(at span) {
	for i := at.start; i < at.start+at.length; i++ {
		r[i] = true
	}
}

// find returns the first free span of a length.
func (r *row) find(length int) (span, bool) {
	for start := 0; start+length <= slots; start++ {
		if at := (span{start, length}); r.free(at) {
			return at, true
		}
	}
	return span{}, false
}

// floorSlots is the shortest turn, in slots.
func floorSlots(period time.Duration) int {
	slot := period / slots
	return int((leastLength + slot - 1) / slot)
}

// ceilSlots is the shortest whole turn that has what is needed. More than a
// period counts as that.
func ceilSlots(need float64, floor int) int {
	// A little less than a whole slot too much is the arithmetic's.
	return max(floor, int(math.Ceil(min(need, 2*slots)-1e-9)))
}

// demand sets what each sender needs.
//
// Where the uplink's rate is not known, all that is known is that the node
// carries what its senders send together now. Each then needs the part of the
// period that it has of their traffic, and more when its own ceiling asks for it.
// A sender of which nothing is heard counts with what its turn has.
func (a *arrangement) demand() {
	var total units.BitsPerSecond
	unheard := 0.0
	for _, s := range a.senders {
		if s.Sent != nil {
			total += *s.Sent
		} else {
			unheard += s.currentSlots() / slots
		}
	}
	if unheard < 1 {
		total = units.BitsPerSecond(float64(total) / (1 - unheard))
	}
	for _, s := range a.senders {
		if s.Sent == nil {
			s.need = s.currentSlots()
			continue
		}
		s.share = 0
		if a.uplink == 0 {
			s.share = slots * float64(*s.Sent/total)
		}
		s.need = s.share
		if s.full > 0 {
			s.need = max(s.share, slots*headroom*float64(*s.Sent/s.full))
		}
	}
}

func (s *sender) currentSlots() float64 {
	return slots * float64(s.Current.Length) / float64(s.Current.Period)
}

// suffices tells whether a sender can keep its current turn.
func (a *arrangement) suffices(s *sender) bool {
	if s.placed == nil || s.placed.length < a.floor {
		return false
	}
	return s.Sent == nil || s.serves(s.placed.length)
}

// serves tells whether a turn of so many slots still does for what the sender
// sends: it is not full, and not far below the sender's share.
func (s *sender) serves(length int) bool {
	isFull := s.full > 0 && float64(*s.Sent) > fullPart*float64(s.full)*float64(length)/slots
	return !isFull && float64(length) >= outgrownPart*s.share
}

// overlaps tells whether a turn shares a slot with another.
func (t span) overlaps(o span) bool { return t.start < o.start+o.length && o.start < t.start+t.length }
