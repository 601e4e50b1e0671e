package traffic_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/planner/traffic/traffictest"
	"github.com/joulevirt/joulevirt/internal/units"
)

const mbit = traffictest.Mbit

// bent is a curve of which waking up is most of the cost.
func bent() traffic.Curve { return traffictest.Concave(0.5, 3, 20*mbit, 2) }

// alike returns equal members, each in a domain of its own, with a total of 900
// Mbit/s.
func alike(n int, limit units.BitsPerSecond) traffic.Group {
	g := traffic.Group{Curves: []traffic.Curve{bent()}, Total: 900 * mbit, MinActive: 1, MinDomains: 1, MaxStep: 1}
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

func mustAllocate(t *testing.T, g traffic.Group) traffic.Allocation {
	t.Helper()
	a, err := traffic.Allocate(g)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// told is what of an allocation a table compares: goals in thousandths.
type told struct {
	Reason model.Reason
	Skewed bool
	Goals  []int
	Shares []model.Reason
}

func tell(a traffic.Allocation) told {
	o := told{Reason: a.Reason, Skewed: a.Skewed}
	for _, s := range a.Shares {
		o.Goals = append(o.Goals, int(math.Round(1000*s.Goal)))
		o.Shares = append(o.Shares, s.Reason)
	}
	return o
}

func times(n int, reason model.Reason) []model.Reason {
	var all []model.Reason
	for range n {
		all = append(all, reason)
	}
	return all
}

const (
	atLimit   = model.ReasonAtLimit
	atFloor   = model.ReasonAtFloor
	remainder = model.ReasonRemainder
	kept      = model.ReasonKeptActive
	active    = model.ReasonActive
	standby   = model.ReasonStandby
	fair      = model.ReasonEqualShare
)

func TestAllocateWeighted(t *testing.T) {
	for name, tc := range map[string]struct {
		group traffic.Group
		want  told
	}{
		"one carries all": {alike(5, 2000*mbit), told{model.ReasonSkewed, true, []int{1000, 0, 0, 0, 0}, []model.Reason{remainder, standby, standby, standby, standby}}},
		"two have to be active": {
			with(alike(5, 2000*mbit), func(g *traffic.Group) { g.MinActive = 2 }),
			told{model.ReasonSkewed, true, []int{998, 2, 0, 0, 0}, []model.Reason{remainder, kept, standby, standby, standby}},
		},
		"up to the limits": {alike(5, 400*mbit), told{model.ReasonSkewed, true, []int{444, 444, 111, 0, 0}, []model.Reason{atLimit, atLimit, remainder, standby, standby}}},
		"one may be lost":  {with(alike(5, 400*mbit), spare), told{model.ReasonSkewed, true, []int{444, 444, 109, 2, 0}, []model.Reason{atLimit, atLimit, remainder, kept, standby}}},
		"a floor": {
			with(alike(3, 1000*mbit), member(1, func(m *traffic.Member) { m.Floor = 90 * mbit })),
			told{model.ReasonSkewed, true, []int{0, 1000, 0}, []model.Reason{standby, remainder, standby}},
		},
		"floors": {
			with(alike(3, 1000*mbit), member(0, func(m *traffic.Member) { m.Floor = 90 * mbit }), member(1, func(m *traffic.Member) { m.Floor = 45 * mbit })),
			told{model.ReasonSkewed, true, []int{950, 50, 0}, []model.Reason{remainder, atFloor, standby}},
		},
		"a floor above the limit is kept": {
			with(alike(3, 1000*mbit), member(0, func(m *traffic.Member) { m.Floor, m.Limit = 90*mbit, 0 })),
			told{model.ReasonSkewed, true, []int{100, 900, 0}, []model.Reason{atFloor, remainder, standby}},
		},
		"the cheaper class": {
			with(alike(3, 1000*mbit), member(2, func(m *traffic.Member) { m.Curve = 1 }), func(g *traffic.Group) {
				g.Curves = []traffic.Curve{bent(), traffictest.Concave(2, 1, 20*mbit, 1)}
			}),
			told{model.ReasonSkewed, true, []int{0, 0, 1000}, []model.Reason{standby, standby, remainder}},
		},
		"two domains": {
			with(alike(4, 2000*mbit), member(1, func(m *traffic.Member) { m.Domain = "node-0" }), func(g *traffic.Group) { g.MinDomains, g.MinActive = 2, 2 }),
			told{model.ReasonSkewed, true, []int{998, 0, 3, 0}, []model.Reason{remainder, standby, kept, standby}},
		},
		"one without a limit": {
			with(alike(3, 1000*mbit), member(0, func(m *traffic.Member) { m.Limit = 0 })),
			told{model.ReasonSkewed, true, []int{0, 1000, 0}, []model.Reason{standby, remainder, standby}},
		},
		"no limits":     {alike(3, 0), told{model.ReasonNoRoom, false, []int{333, 333, 333}, times(3, fair)}},
		"little limits": {alike(3, 299*mbit), told{model.ReasonNoRoom, false, []int{333, 333, 333}, times(3, fair)}},
		"just enough":   {alike(3, 300*mbit), told{model.ReasonBalanced, false, []int{333, 333, 333}, times(3, atLimit)}},
		"no room for a loss": {
			with(alike(3, 400*mbit), spare, member(0, func(m *traffic.Member) { m.Limit = 290 * mbit })),
			told{model.ReasonNoRoom, true, []int{322, 339, 339}, []model.Reason{atLimit, fair, fair}},
		},
		"too few with a limit": {
			with(alike(3, 0), member(0, func(m *traffic.Member) { m.Limit = 2000 * mbit }), func(g *traffic.Group) { g.MinActive = 2 }),
			told{model.ReasonNoRoom, false, []int{333, 333, 333}, times(3, fair)},
		},
		"floors beyond the total": {
			with(alike(2, 1000*mbit), member(0, func(m *traffic.Member) { m.Floor, m.Share = 500*mbit, 0.7 }), member(1, func(m *traffic.Member) { m.Floor, m.Share = 500*mbit, 0.3 })),
			told{model.ReasonFloorsExceedTotal, true, []int{700, 300}, times(2, model.ReasonFloorsExceedTotal)},
		},
		"no curves":        {with(alike(2, 1000*mbit), func(g *traffic.Group) { g.Curves = nil }), told{model.ReasonCurvesUnknown, false, []int{500, 500}, times(2, fair)}},
		"an unknown curve": {with(alike(2, 1000*mbit), func(g *traffic.Group) { g.Curves = []traffic.Curve{nil} }), told{model.ReasonCurvesUnknown, false, []int{500, 500}, times(2, fair)}},
		"a straight curve": {
			with(alike(2, 1000*mbit), func(g *traffic.Group) { g.Curves = []traffic.Curve{traffictest.Concave(1, 0, mbit, 5)} }),
			told{model.ReasonCurvesLinear, false, []int{500, 500}, times(2, fair)},
		},
		"straight curves": {
			with(alike(2, 1000*mbit), member(1, func(m *traffic.Member) { m.Curve = 1 }), func(g *traffic.Group) {
				g.Curves = []traffic.Curve{traffictest.Concave(1, 0, mbit, 5), traffictest.Concave(1, 0, mbit, 2)}
			}),
			told{model.ReasonCurvesLinear, false, []int{500, 500}, times(2, fair)},
		},
		"a flat curve": {
			with(alike(2, 1000*mbit), func(g *traffic.Group) { g.Curves = []traffic.Curve{traffictest.Concave(1, 0, mbit, 0)} }),
			told{model.ReasonCurvesLinear, false, []int{500, 500}, times(2, fair)},
		},
		"not worth it": {with(alike(2, 1000*mbit), func(g *traffic.Group) { g.MinSaving = 0.9 }), told{model.ReasonBalanced, false, []int{500, 500}, times(2, fair)}},
		"no traffic":   {with(alike(2, 1000*mbit), func(g *traffic.Group) { g.Total = 0 }), told{model.ReasonNoTraffic, false, []int{500, 500}, times(2, model.ReasonNoTraffic)}},
		"one member":   {alike(1, 0), told{model.ReasonTooFewMembers, false, []int{1000}, times(1, model.ReasonTooFewMembers)}},
		"no member":    {traffic.Group{Total: mbit, MaxStep: 1}, told{Reason: model.ReasonTooFewMembers}},
	} {
		a := mustAllocate(t, tc.group)
		if diff := cmp.Diff(tc.want, tell(a)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if a.Message == "" || a.Saved < 0 || (a.Saved > 0) != (a.Reason == model.ReasonSkewed) {
			t.Errorf("%s: message %q, %v W saved", name, a.Message, a.Saved)
		}
	}
}

func TestAllocateEqual(t *testing.T) {
	for name, tc := range map[string]struct {
		group traffic.Group
		want  told
	}{
		"one carries all": {alike(5, 2000*mbit), told{model.ReasonSkewed, true, []int{1000, 0, 0, 0, 0}, []model.Reason{active, standby, standby, standby, standby}}},
		"two":             {with(alike(5, 2000*mbit), spare), told{model.ReasonSkewed, true, []int{500, 500, 0, 0, 0}, []model.Reason{active, active, standby, standby, standby}}},
		"limits":          {alike(5, 400*mbit), told{model.ReasonSkewed, true, []int{333, 333, 333, 0, 0}, []model.Reason{active, active, active, standby, standby}}},
		"a floor": {
			with(alike(3, 1000*mbit), member(2, func(m *traffic.Member) { m.Floor = 90 * mbit })),
			told{model.ReasonSkewed, true, []int{0, 0, 1000}, []model.Reason{standby, standby, active}},
		},
		"two domains": {
			with(alike(4, 2000*mbit), member(1, func(m *traffic.Member) { m.Domain = "node-0" }), func(g *traffic.Group) { g.MinDomains, g.MinActive = 2, 2 }),
			told{model.ReasonSkewed, true, []int{500, 0, 500, 0}, []model.Reason{active, standby, active, standby}},
		},
		"one without a limit, not worth it": {
			with(alike(3, 1000*mbit), member(0, func(m *traffic.Member) { m.Limit = 0 }), func(g *traffic.Group) { g.MinSaving = 0.9 }),
			told{model.ReasonBalanced, true, []int{0, 500, 500}, []model.Reason{standby, fair, fair}},
		},
		"no limits": {alike(3, 0), told{model.ReasonNoRoom, false, []int{333, 333, 333}, times(3, fair)}},
		"floors that no number of members has room for": {
			with(alike(3, 1000*mbit), member(0, func(m *traffic.Member) { m.Floor = 500 * mbit }), func(g *traffic.Group) { g.MinActive = 2 }),
			told{model.ReasonNoRoom, false, []int{333, 333, 333}, times(3, fair)},
		},
		"no traffic": {with(alike(2, 1000*mbit), func(g *traffic.Group) { g.Total = 0 }), told{model.ReasonNoTraffic, false, []int{500, 500}, times(2, model.ReasonNoTraffic)}},
	} {
		if diff := cmp.Diff(tc.want, tell(mustAllocate(t, with(tc.group, equal)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAllocateSpread(t *testing.T) {
	g := with(alike(5, 2000*mbit), member(0, func(m *traffic.Member) { m.Rate = 100 * mbit }), member(1, func(m *traffic.Member) { m.Rate = 100 * mbit }))
	a := mustAllocate(t, g)
	if a.Now.Talkers != 2 || math.Abs(a.Planned.Talkers-1) > 1e-9 {
		t.Errorf("%v talkers now and %v planned, want 2 and 1", a.Now.Talkers, a.Planned.Talkers)
	}
	// Of one of five that has all: sqrt(4)/5 of it.
	if math.Abs(float64(a.Planned.Sigma-360*mbit)) > 1 || math.Abs(float64(a.Now.Sigma)-40*math.Sqrt(1.5)*1e6) > 1 {
		t.Errorf("sigma %v now and %v planned", a.Now.Sigma, a.Planned.Sigma)
	}
	want := float64(bent()(180*mbit))*5 - float64(bent()(900*mbit)) - 4*float64(bent()(0))
	if math.Abs(float64(a.Saved)-want) > 1e-9 {
		t.Errorf("%v W saved, want %v", a.Saved, want)
	}
}

func TestAllocateErrors(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, tc := range map[string]struct {
		change func(*traffic.Group)
		want   string
	}{
		"total":       {func(g *traffic.Group) { g.Total = units.BitsPerSecond(nan) }, "group: Total of NaN bit/s must be from 0 to 1e+18"},
		"share":       {member(1, func(m *traffic.Member) { m.Share = 1.5 }), `member "vm-1": Share of 1.5 must be from 0 to 1`},
		"rate":        {member(1, func(m *traffic.Member) { m.Rate = -1 }), `member "vm-1": Rate of -1 bit/s must be from 0 to 1e+18`},
		"floor":       {member(0, func(m *traffic.Member) { m.Floor = units.BitsPerSecond(inf) }), `member "vm-0": Floor of +Inf bit/s must be from 0 to 1e+18`},
		"limit":       {member(0, func(m *traffic.Member) { m.Limit = units.BitsPerSecond(nan) }), `member "vm-0": Limit of NaN bit/s must be from 0 to 1e+18`},
		"curve":       {member(0, func(m *traffic.Member) { m.Curve = 1 }), `member "vm-0": Curve 1 is none of the group's 1`},
		"names":       {member(0, func(m *traffic.Member) { m.Name = "vm-1" }), `group: two members have the Name "vm-1": names must be unique`},
		"granularity": {func(g *traffic.Group) { g.Granularity = 2 }, "group: Granularity 2 is neither Weighted nor Equal"},
		"min active":  {func(g *traffic.Group) { g.MinActive = -1 }, "group: MinActive -1 must not be negative"},
		"min domains": {func(g *traffic.Group) { g.MinDomains = -1 }, "group: MinDomains -1 must not be negative"},
		"no step":     {func(g *traffic.Group) { g.MaxStep = 0 }, "group: MaxStep 0 must be above 0 and up to 1"},
		"min saving":  {func(g *traffic.Group) { g.MinSaving = nan }, "group: MinSaving NaN must be from 0 to below 1"},
		"cost": {func(g *traffic.Group) {
			g.Curves = []traffic.Curve{func(rate units.BitsPerSecond) units.Watts { return units.Watts(inf) }}
		}, `member "vm-0": Curve 0 is +Inf W at 0 bit/s: it must be finite`},
	} {
		a, err := traffic.Allocate(with(alike(3, 1000*mbit), tc.change))
		if err == nil || err.Error() != tc.want || a.Shares != nil {
			t.Errorf("%s: %v, %v, want error %q", name, a, err, tc.want)
		}
	}
}
