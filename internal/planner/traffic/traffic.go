// Package traffic splits a group's traffic over its members so that they cost least
// together. A member's cost is a concave function of its rate up to its limit, so
// concentrating traffic saves; floors, limits, failure domains and the loss of a member
// bound how far. All functions are pure.
package traffic

import "github.com/joulevirt/joulevirt/internal/units"

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
	// Name of the VM, unique in the group.
	Name string
	// Domain that the member fails with: its zone, else its node.
	Domain string
	// Share of the group's traffic that is steered to the member now: 0 to 1.
	Share float64
	// Floor is the rate that the member has whatever is planned.
	Floor units.BitsPerSecond
	// Limit is the rate above which nothing is steered to the member. 0: it takes nothing.
	Limit units.BitsPerSecond
	// Curve is the number of the member's cost curve in Group.Curves.
	Curve int
}

// Curve is what a member costs its host as a function of its rate, up to its
// limit. It is concave there, and Curve(0) is the cost without traffic.
type Curve func(units.BitsPerSecond) units.Watts

// Group is what an allocation depends on.
type Group struct {
	// Members that may serve now, in the order of their names, which decides ties.
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
	// MinSaving is the part of what the traffic costs at equal shares that must be saved,
	// or equal shares are the answer. What members cost without traffic does not count.
	MinSaving float64
}

// Share is what one member is to get.
type Share struct {
	Name string
	// Share of new traffic: 0 to 1. They add up to 1.
	Share  float64
	Reason string
}

// Allocation is how a group's traffic is to be split.
type Allocation struct {
	// Shares in the order of the group's members.
	Shares []Share
	// Saved is what the members cost less than with equal shares. It is not negative.
	Saved units.Watts
	// Skewed is true when the shares are not equal.
	Skewed bool
	// Reason for the allocation as a whole, and Message in words.
	Reason  string
	Message string
}

// Spread is how unevenly traffic is spread.
type Spread struct {
	// Sigma is power.Sigma of the members' rates, Talkers power.EffectiveTalkers.
	Sigma   units.BitsPerSecond
	Talkers float64
}
