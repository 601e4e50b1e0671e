package turns

import (
	"cmp"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// arrangement is the work on turns for all of some senders.
type arrangement struct {
	// uplink is the rate that all share. 0: not known.
	uplink units.BitsPerSecond
	// senders in the order of their PodUID.
	senders []*sender
	period  time.Duration
	// floor is the shortest turn, in slots.
	floor int
}

func newArrangement(uplink units.BitsPerSecond, senders []*sender) *arrangement {
	period := choosePeriod(senders)
	a := &arrangement{uplink: uplink, senders: senders, period: period, floor: floorSlots(period)}
	var seen []span
	for _, s := range senders {
		s.position(period)
		// No plan has turns that share a slot unless somebody else wrote it: the first
		// of them stays.
		if s.placed == nil || slices.ContainsFunc(seen, s.placed.overlaps) {
			s.placed = nil
			continue
		}
		seen = append(seen, *s.placed)
	}
	a.demand()
	return a
}

// fits finds a turn for every sender, or tells that there is not room for all.
func (a *arrangement) fits() bool {
	return len(a.senders)*a.floor <= slots && (a.fill() || a.repack())
}

// fill keeps the turns that suffice, and finds longer ones and those of
// newcomers in what is free. It tells whether all fit.
func (a *arrangement) fill() bool {
	var taken row
	var rest []*sender
	for _, s := range a.senders {
		if a.suffices(s) {
			s.at = *s.placed
			taken.take(s.at)
			continue
		}
		rest = append(rest, s)
	}
	// Those that have a turn first: a newcomer never costs another its place.
	slices.SortStableFunc(rest, func(x, y *sender) int { return cmp.Compare(rank(x), rank(y)) })
	for _, s := range rest {
		length := ceilSlots(s.need, a.floor)
		if s.placed != nil {
			if at := (span{s.placed.start, length}); taken.free(at) {
				s.at = at
				taken.take(at)
				continue
			}
		}
		at, found := taken.find(length)
		if !found {
			return false
		}
		s.at = at
		taken.take(at)
	}
	return true
}

func rank(s *sender) int {
	if s.placed != nil {
		return 0
	}
	return 1
}

// repack makes all turns as long as they have to be, one after the other in the
// order that they have. It tells whether they fit.
func (a *arrangement) repack() bool {
	lengths, fair := a.shareOut()
	order := slices.Clone(a.senders)
	slices.SortStableFunc(order, func(x, y *sender) int { return cmp.Compare(x.offset(), y.offset()) })
	start := 0
	for _, s := range order {
		s.at = span{start, lengths[s]}
		start += lengths[s]
	}
	return fair && start <= slots
}

func (s *sender) offset() int {
	if s.placed == nil {
		return slots
	}
	return s.placed.start
}

// shareOut returns the lengths of all turns in slots: what is needed where the
// uplink's rate is known, else all of the period by what each needs, rounded in
// favour of the small. It tells whether each got about its share.
func (a *arrangement) shareOut() (lengths map[*sender]int, fair bool) {
	lengths, fair = make(map[*sender]int, len(a.senders)), true
	left, weight := slots, 0.0
	var sharing []*sender
	for _, s := range a.senders {
		if a.uplink > 0 || s.Sent == nil {
			lengths[s] = ceilSlots(s.need, a.floor)
			left -= lengths[s]
			continue
		}
		sharing = append(sharing, s)
		weight += s.need
	}
	slices.SortStableFunc(sharing, func(x, y *sender) int { return cmp.Compare(x.need, y.need) })
	newcomers := slices.ContainsFunc(a.senders, func(s *sender) bool { return s.placed == nil })
	for _, s := range sharing {
		lengths[s] = ceilSlots(float64(left)*s.need/weight, a.floor)
		left -= lengths[s]
		weight -= s.need
		// More is asked for newcomers' sake than turns in force are kept with, or a VM
		// that just fits would come and go as the rates vary.
		if newcomers {
			fair = fair && float64(lengths[s]) >= fairPart*s.need
		} else {
			fair = fair && s.serves(lengths[s])
		}
	}
	return lengths, fair
}
