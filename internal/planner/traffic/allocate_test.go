package traffic_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/units"
)

// bent is a curve of which waking up is most of the cost.
func bent() traffic.Curve { return concave(0.5, 3, 20*mbit, 2) }

// alike returns equal members, each in a domain of its own, with a total of 900
// Mbit/s.
func alike(n int, limit units.BitsPerSecond) traffic.Group {
	g := traffic.Group{Curves: []traffic.Curve{bent()}, Total: 900 * mbit, MinActive: 1, MinDomains: 1}
	for i := range n {
		g.Members = append(g.Members, traffic.Member{Name: fmt.Sprintf("vm-%d", i), Domain: fmt.Sprintf("node-%d", i), Limit: limit, Share: 1 / float64(n)})
	}
	return g
}

func with(g traffic.Group, change ...func(*traffic.Group)) traffic.Group {
	for _, do := range change {
		do(&g)
	}
	return g
}

func equal(g *traffic.Group) { g.Granularity = traffic.Equal }
func spare(g *traffic.Group) { g.SpareLargest = true }

// member changes one member.
func member(i int, change func(*traffic.Member)) func(*traffic.Group) {
	return func(g *traffic.Group) { change(&g.Members[i]) }
}

// summary is what of an allocation a table compares: shares in thousandths.
type summary struct {
	Reason  string
	Skewed  bool
	Shares  []int
	Reasons []string
}

func summarize(a traffic.Allocation) summary {
	o := summary{Reason: a.Reason, Skewed: a.Skewed}
	for _, s := range a.Shares {
		o.Shares = append(o.Shares, int(math.Round(1000*s.Share)))
		o.Reasons = append(o.Reasons, s.Reason)
	}
	return o
}

func times(n int, reason string) []string {
	var all []string
	for range n {
		all = append(all, reason)
	}
	return all
}

const (
	atLimit   = v1alpha1.ReasonAtLimit
	atFloor   = v1alpha1.ReasonAtFloor
	remainder = v1alpha1.ReasonRemainder
	kept      = v1alpha1.ReasonKeptActive
	active    = v1alpha1.ReasonActive
	standby   = v1alpha1.ReasonStandby
	fair      = v1alpha1.ReasonEqualShare
)

func TestAllocateWeighted(t *testing.T) {
	for name, tc := range map[string]struct {
		group traffic.Group
		want  summary
	}{
		"one carries all": {alike(5, 2000*mbit), summary{v1alpha1.ReasonSkewed, true, []int{1000, 0, 0, 0, 0}, []string{remainder, standby, standby, standby, standby}}},
		"two have to be active": {
			with(alike(5, 2000*mbit), func(g *traffic.Group) { g.MinActive = 2 }),
			summary{v1alpha1.ReasonSkewed, true, []int{998, 2, 0, 0, 0}, []string{remainder, kept, standby, standby, standby}},
		},
		"up to the limits": {alike(5, 400*mbit), summary{v1alpha1.ReasonSkewed, true, []int{444, 444, 111, 0, 0}, []string{atLimit, atLimit, remainder, standby, standby}}},
		"one may be lost":  {with(alike(5, 400*mbit), spare), summary{v1alpha1.ReasonSkewed, true, []int{444, 444, 109, 2, 0}, []string{atLimit, atLimit, remainder, kept, standby}}},
		"a floor": {
			with(alike(3, 1000*mbit), member(1, func(m *traffic.Member) { m.Floor = 90 * mbit })),
			summary{v1alpha1.ReasonSkewed, true, []int{0, 1000, 0}, []string{standby, remainder, standby}},
		},
		"floors": {
			with(alike(3, 1000*mbit), member(0, func(m *traffic.Member) { m.Floor = 90 * mbit }), member(1, func(m *traffic.Member) { m.Floor = 45 * mbit })),
			summary{v1alpha1.ReasonSkewed, true, []int{950, 50, 0}, []string{remainder, atFloor, standby}},
		},
		"a floor above the limit is kept": {
			with(alike(3, 1000*mbit), member(0, func(m *traffic.Member) { m.Floor, m.Limit = 90*mbit, 0 })),
			summary{v1alpha1.ReasonSkewed, true, []int{100, 900, 0}, []string{atFloor, remainder, standby}},
		},
		"the cheaper class": {
			with(alike(3, 1000*mbit), member(2, func(m *traffic.Member) { m.Curve = 1 }), func(g *traffic.Group) {
				g.Curves = []traffic.Curve{bent(), concave(2, 1, 20*mbit, 1)}
			}),
			summary{v1alpha1.ReasonSkewed, true, []int{0, 0, 1000}, []string{standby, standby, remainder}},
		},
		"two domains": {
			with(alike(4, 2000*mbit), member(1, func(m *traffic.Member) { m.Domain = "node-0" }), func(g *traffic.Group) { g.MinDomains, g.MinActive = 2, 2 }),
			summary{v1alpha1.ReasonSkewed, true, []int{998, 0, 3, 0}, []string{remainder, standby, kept, standby}},
		},
		"one without a limit": {
			with(alike(3, 1000*mbit), member(0, func(m *traffic.Member) { m.Limit = 0 })),
			summary{v1alpha1.ReasonSkewed, true, []int{0, 1000, 0}, []string{standby, remainder, standby}},
		},
		"no limits":     {alike(3, 0), summary{v1alpha1.ReasonNoRoom, false, []int{333, 333, 333}, times(3, fair)}},
		"little limits": {alike(3, 299*mbit), summary{v1alpha1.ReasonNoRoom, false, []int{333, 333, 333}, times(3, fair)}},
		"just enough":   {alike(3, 300*mbit), summary{v1alpha1.ReasonBalanced, false, []int{333, 333, 333}, times(3, atLimit)}},
		"no room for a loss": {
			with(alike(3, 400*mbit), spare, member(0, func(m *traffic.Member) { m.Limit = 290 * mbit })),
			summary{v1alpha1.ReasonNoRoom, true, []int{322, 339, 339}, []string{atLimit, fair, fair}},
		},
		"too few with a limit": {
			with(alike(3, 0), member(0, func(m *traffic.Member) { m.Limit = 2000 * mbit }), func(g *traffic.Group) { g.MinActive = 2 }),
			summary{v1alpha1.ReasonNoRoom, false, []int{333, 333, 333}, times(3, fair)},
		},
		"floors beyond the total": {
			with(alike(2, 1000*mbit), member(0, func(m *traffic.Member) { m.Floor, m.Share = 500*mbit, 0.7 }), member(1, func(m *traffic.Member) { m.Floor, m.Share = 500*mbit, 0.3 })),
			summary{v1alpha1.ReasonFloorsExceedTotal, false, []int{500, 500}, times(2, v1alpha1.ReasonFloorsExceedTotal)},
		},
		"no curves":        {with(alike(2, 1000*mbit), func(g *traffic.Group) { g.Curves = nil }), summary{v1alpha1.ReasonCurvesUnknown, false, []int{500, 500}, times(2, fair)}},
		"an unknown curve": {with(alike(2, 1000*mbit), func(g *traffic.Group) { g.Curves = []traffic.Curve{nil} }), summary{v1alpha1.ReasonCurvesUnknown, false, []int{500, 500}, times(2, fair)}},
		"a straight curve": {
			with(alike(2, 1000*mbit), func(g *traffic.Group) { g.Curves = []traffic.Curve{concave(1, 0, mbit, 5)} }),
			summary{v1alpha1.ReasonCurvesLinear, false, []int{500, 500}, times(2, fair)},
		},
		"straight curves": {
			with(alike(2, 1000*mbit), member(1, func(m *traffic.Member) { m.Curve = 1 }), func(g *traffic.Group) {
				g.Curves = []traffic.Curve{concave(1, 0, mbit, 5), concave(1, 0, mbit, 2)}
			}),
			summary{v1alpha1.ReasonCurvesLinear, false, []int{500, 500}, times(2, fair)},
		},
		"a flat curve": {
			with(alike(2, 1000*mbit), func(g *traffic.Group) { g.Curves = []traffic.Curve{concave(1, 0, mbit, 0)} }),
			summary{v1alpha1.ReasonCurvesLinear, false, []int{500, 500}, times(2, fair)},
		},
		"not worth it": {with(alike(2, 1000*mbit), func(g *traffic.Group) { g.MinSaving = 0.9 }), summary{v1alpha1.ReasonBalanced, false, []int{500, 500}, times(2, fair)}},
		"no traffic":   {with(alike(2, 1000*mbit), func(g *traffic.Group) { g.Total = 0 }), summary{v1alpha1.ReasonNoTraffic, false, []int{500, 500}, times(2, v1alpha1.ReasonNoTraffic)}},
		"one member":   {alike(1, 0), summary{v1alpha1.ReasonTooFewMembers, false, []int{1000}, times(1, v1alpha1.ReasonTooFewMembers)}},
		"no member":    {traffic.Group{Total: mbit}, summary{Reason: v1alpha1.ReasonTooFewMembers}},
	} {
		a := traffic.Allocate(tc.group)
		if diff := cmp.Diff(tc.want, summarize(a)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if a.Message == "" || a.Saved < 0 || (a.Saved > 0) != (a.Reason == v1alpha1.ReasonSkewed) {
			t.Errorf("%s: message %q, %v W saved", name, a.Message, a.Saved)
		}
	}
}

func TestAllocateEqual(t *testing.T) {
	for name, tc := range map[string]struct {
		group traffic.Group
		want  summary
	}{
		"one carries all": {alike(5, 2000*mbit), summary{v1alpha1.ReasonSkewed, true, []int{1000, 0, 0, 0, 0}, []string{active, standby, standby, standby, standby}}},
		"two":             {with(alike(5, 2000*mbit), spare), summary{v1alpha1.ReasonSkewed, true, []int{500, 500, 0, 0, 0}, []string{active, active, standby, standby, standby}}},
		"limits":          {alike(5, 400*mbit), summary{v1alpha1.ReasonSkewed, true, []int{333, 333, 333, 0, 0}, []string{active, active, active, standby, standby}}},
		"a floor": {
			with(alike(3, 1000*mbit), member(2, func(m *traffic.Member) { m.Floor = 90 * mbit })),
			summary{v1alpha1.ReasonSkewed, true, []int{0, 0, 1000}, []string{standby, standby, active}},
		},
		"two domains": {
			with(alike(4, 2000*mbit), member(1, func(m *traffic.Member) { m.Domain = "node-0" }), func(g *traffic.Group) { g.MinDomains, g.MinActive = 2, 2 }),
			summary{v1alpha1.ReasonSkewed, true, []int{500, 0, 500, 0}, []string{active, standby, active, standby}},
		},
		"one without a limit, not worth it": {
			with(alike(3, 1000*mbit), member(0, func(m *traffic.Member) { m.Limit = 0 }), func(g *traffic.Group) { g.MinSaving = 0.9 }),
			summary{v1alpha1.ReasonBalanced, true, []int{0, 500, 500}, []string{standby, fair, fair}},
		},
		"no limits": {alike(3, 0), summary{v1alpha1.ReasonNoRoom, false, []int{333, 333, 333}, times(3, fair)}},
		"floors that no number of members has room for": {
			with(alike(3, 1000*mbit), member(0, func(m *traffic.Member) { m.Floor = 500 * mbit }), func(g *traffic.Group) { g.MinActive = 2 }),
			summary{v1alpha1.ReasonNoRoom, false, []int{333, 333, 333}, times(3, fair)},
		},
		"no traffic": {with(alike(2, 1000*mbit), func(g *traffic.Group) { g.Total = 0 }), summary{v1alpha1.ReasonNoTraffic, false, []int{500, 500}, times(2, v1alpha1.ReasonNoTraffic)}},
	} {
		if diff := cmp.Diff(tc.want, summarize(traffic.Allocate(with(tc.group, equal)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
