package traffic

import (
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Granularity is which shares the writer of a group can make.
type Granularity int

// The granularities.
const (
	// Weighted: any share of each member, as weights of a route.
	Weighted Granularity = iota
	// Equal: 0, or 1/k for each of k active members, as a Service gives. What
	// differs between them is which are active.
	Equal
)

// Member is one VM of a group that may serve.
type Member struct {
	// Name of the VM, unique in the group. Ties are decided by it.
	Name string
	// Domain that the member fails with: its zone, else its node.
	Domain string
	// Share of the group's traffic that is steered to the member now: 0 to 1.
	Share float64
	// Rate of the member now, for what is told of the spread: all of its traffic.
	Rate units.BitsPerSecond
	// Floor is the rate that the member keeps whatever is planned.
	Floor units.BitsPerSecond
	// Limit is the rate above which nothing is steered to the member: the least of
	// its ceiling and its knee. 0: it takes nothing.
	Limit units.BitsPerSecond
	// Curve is the number of the member's cost curve in Group.Curves.
	Curve int
}

// Curve is what a member costs its host as a function of its rate, up to its
// limit. It is concave there, and Curve(0) is the cost without traffic. It may
// be asked often.
type Curve func(units.BitsPerSecond) units.Watts

// Group is what an allocation depends on.
type Group struct {
	// Members that may serve now, in any order.
	Members []Member
	// Curves of the members: many share one. Nil: the cost is not known.
	Curves []Curve
	// Total rate to split.
	Total       units.BitsPerSecond
	Granularity Granularity
	// MinActive is the least number of members with a share. All of them when
	// there are fewer.
	MinActive int
	// MinDomains is the least number of failure domains with an active member. All
	// of them when there are fewer.
	MinDomains int
	// SpareLargest demands that the active members carry Total also without the one
	// of them with the highest limit.
	SpareLargest bool
	// MaxStep is the part of Total that may move in one round, above 0 and up to 1.
	MaxStep float64
	// MinSaving is the part of the members' cost at equal shares that must be saved,
	// or equal shares are the answer.
	MinSaving float64
}

// Share is what one member gets.
type Share struct {
	Name string
	// Share of new traffic: 0 to 1. They add up to 1.
	Share float64
	// Goal is the share that further rounds lead to.
	Goal   float64
	Reason model.Reason
}

// Spread tells how unevenly traffic is spread.
type Spread struct {
	// Sigma is power.Sigma of the members' rates, Talkers power.EffectiveTalkers.
	Sigma   units.BitsPerSecond
	Talkers float64
}

// Allocation is how a group's traffic is to be split.
type Allocation struct {
	// Shares in the order of the group's members.
	Shares []Share
	// Now is the spread of the members' rates, Planned that of Total by the goals.
	Now, Planned Spread
	// Saved is what the members cost less with the goals than with equal shares. It
	// is not negative.
	Saved units.Watts
	// Skewed is true when the goals are not equal shares.
	Skewed bool
	// Reason for the allocation as a whole, and Message in words.
	Reason  model.Reason
	Message string
}
