package ledger

import (
	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// account is what is known of a node and a lever, or of a node's draw.
type account struct {
	window window
	// last mean that a meter gave: two blocks alike to seven digits are none.
	last float32
	// saved joules, by meter and by model.
	saved [2]nodeSum
}

// index of a nodeSum.
func index(modelled bool) int {
	if modelled {
		return 1
	}
	return 0
}

// nodeSum adds up what one node saved. Blocks of a node share the error of its effect, also
// when that was estimated again in between: their errors add up as they are, not by their
// squares.
type nodeSum struct {
	saved float64
	// own and common are joules by which the sum is off for one standard error of each
	// part of the effect.
	own, common float32
	// ownFreedom and commonFreedom are the least degrees of freedom of those.
	ownFreedom, commonFreedom float32
	// chance of its blocks.
	chance chance
	// months are the same of own within the two months that were booked last: blocks that
	// come late still find theirs.
	months [2]monthSum
}

// add takes in a booking and returns the node's own error before it, within the month and of
// all time.
func (n *nodeSum) add(month Month, b booking) (within, all float64) {
	all = float64(n.own)
	if b.own > 0 {
		own := n.of(month)
		within = float64(*own)
		*own += float32(b.own)
		n.own += float32(b.own)
		n.ownFreedom = least(n.ownFreedom, b.ownFreedom)
	}
	if b.common > 0 {
		n.common += float32(b.common)
		n.commonFreedom = least(n.commonFreedom, b.commonFreedom)
	}
	n.chance.add(b.chance)
	n.saved += b.saved
	return within, all
}

// least of the degrees of freedom so far, of which 0 is none, and more.
func least(sofar float32, freedom float64) float32 {
	if sofar == 0 {
		return float32(freedom)
	}
	return min(sofar, float32(freedom))
}

type monthSum struct {
	month Month
	own   float32
}

// of returns the sum within a month, in place of the older of the two if need be.
func (n *nodeSum) of(month Month) *float32 {
	switch month {
	case n.months[0].month:
	case n.months[1].month:
		n.months[0], n.months[1] = n.months[1], n.months[0]
	default:
		n.months[1], n.months[0] = n.months[0], monthSum{month: month}
	}
	return &n.months[0].own
}

// sumKey is what sums over all nodes are apart by. The sum of all draws has no lever.
type sumKey struct {
	month    Month
	lever    v1alpha1.Lever
	modelled bool
}

// sum is over all nodes, those that are gone too.
type sum struct {
	// seconds, joules and bytes of all blocks, those with the lever off too.
	seconds, joules, bytes float64
	// saved joules.
	saved float64
	// own is of the nodes' own errors, each node's already added up.
	own verify.ErrorSum
	// common errors by class: those of one class's nodes add up as they are.
	common map[string]commonError
	// chance of all blocks.
	chance chance
}

type commonError struct {
	joules, freedom float64
}

// otherClasses stands for classes beyond the most: their errors add up as if they were one.
const (
	mostClasses  = 64
	otherClasses = "other"
	// mostClass is the length of the longest class that is kept by its name: names come
	// from nodes, and what is stored has to stay small.
	mostClass = 512
)

// booking is what one block adds to the sums.
type booking struct {
	measured Measured
	saved    float64
	// own and common are errors in joules.
	own, ownFreedom       float64
	class                 string
	common, commonFreedom float64
	chance                chance
}

// add books for a node. before is the node's own error within the sum so far.
func (s *sum) add(b booking, before float64) {
	s.seconds += b.measured.Seconds
	s.joules += float64(b.measured.Joules)
	s.bytes += b.measured.Bytes
	s.saved += b.saved
	if b.own > 0 {
		was, is := before*before, (before+b.own)*(before+b.own)
		s.own.Variance += is - was
		s.own.Fourths += (is*is - was*was) / b.ownFreedom
	}
	if b.common > 0 {
		s.addCommon(b.class, b.common, b.commonFreedom)
	}
	s.chance.add(b.chance)
}

func (s *sum) addCommon(class string, joules, freedom float64) {
	if s.common == nil {
		s.common = map[string]commonError{}
	}
	if len(class) > mostClass {
		class = otherClasses
	}
	e, known := s.common[class]
	if !known && len(s.common) >= mostClasses-1 {
		class = otherClasses
		e, known = s.common[class]
	}
	if !known {
		e.freedom = freedom
	}
	s.common[class] = commonError{joules: e.joules + joules, freedom: min(e.freedom, freedom)}
}

// errors are all of the sum's as one.
func (s *sum) errors() verify.ErrorSum {
	all := s.own
	for _, e := range s.common {
		all.Add(e.joules, e.freedom)
	}
	return together(all, s.chance.errors())
}
