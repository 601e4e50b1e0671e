package group

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// groupRoundOf is a round of VMs a, b and c with rates of 60, 30 and 10 Mbit/s, of
// which a is to have all, and has three quarters.
func groupRoundOf() *groupRound {
	profile := controllertest.GroupProfileOf("web")
	round := &groupRound{seen: &observe.Group{Profile: &profile}}
	round.seen.Plan.Granularity = traffic.Weighted
	round.seen.Plan.Nodes = []planner.GroupNode{{Name: "n"}}
	for i, name := range []string{"a", "b", "c"} {
		m := planner.GroupMember{Ready: true}
		m.Name, m.Limit, m.Rate = name, 123_456_789, []units.BitsPerSecond{60e6, 30e6, 10e6}[i]
		round.seen.Plan.Members = append(round.seen.Plan.Members, m)
	}
	round.state = routing.State{Shares: map[string]float64{"a": 0.75, "b": 0.25, "c": 0}, Settled: true}
	round.plan = planner.GroupPlan{
		Action: planner.GroupSteer, Approved: true, Revision: "r",
		Goals:  planner.Parts{Whole: 100, Of: map[string]int{"a": 100}},
		Shares: map[string]float64{"a": 1}, Reason: v1alpha1.ReasonSkewed, Message: "words",
		Reasons: map[string]string{"a": v1alpha1.ReasonRemainder, "b": v1alpha1.ReasonStandby, "c": v1alpha1.ReasonStandby},
		Now:     &traffic.Spread{Sigma: 20_548_047, Talkers: 2.174}, Planned: &traffic.Spread{Sigma: 47e6, Talkers: 1},
	}
	return round
}

func TestTrafficStatus(t *testing.T) {
	round := groupRoundOf()
	round.saving = &power.Estimate{Watts: 2, StdErr: 1.5}
	got := round.status()
	share := func(name string, perMille, measured int32, reason string) v1alpha1.MemberShare {
		return v1alpha1.MemberShare{
			Name: name, Node: "n", PerMille: perMille, MeasuredPerMille: &measured, Reason: reason,
		}
	}
	want := &v1alpha1.TrafficStatus{
		ObservedGeneration: 3, Members: 3, ReadyMembers: 3, ActiveMembers: 2, State: v1alpha1.LeverInForce, Reason: "Skewed", Message: "words", Revision: "r",
		Saving: &v1alpha1.Saving{Lever: v1alpha1.LeverTrafficShare, Watts: v1alpha1.Estimate{Value: "2", Low: "-0.94", High: "4.9"}},
		Shares: []v1alpha1.MemberShare{share("a", 1000, 600, "Remainder"), share("b", 0, 300, "Standby"), share("c", 0, 100, "Standby")},
		Goals:  map[string]int32{"a": 100},

		LimitsBitsPerSecond: map[string]map[string]int64{"n": {"a": 120e6, "b": 120e6, "c": 120e6}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// a carries 60 % and is to have all: 40 % linger on the others.
	if lingering := round.lingering(); lingering == nil || math.Abs(*lingering-0.4) > 1e-9 {
		t.Errorf("lingering %v", ptr.Deref(lingering, -1))
	}
}

// Figures that change alone are distinguished from words.
func TestTrafficStatusWords(t *testing.T) {
	was := groupRoundOf().status()
	for name, tc := range map[string]struct {
		change      func(*groupRound)
		words, same bool
	}{
		"nothing":       {func(*groupRound) {}, true, true},
		"a third digit": {func(r *groupRound) { r.seen.Plan.Members[0].Limit *= 1.001 }, true, true},
		"a little more": {func(r *groupRound) { r.seen.Plan.Members[0].Rate *= 1.1; r.seen.Plan.Members[1].Limit *= 1.05 }, true, true},
		"a rate":        {func(r *groupRound) { r.seen.Plan.Members[0].Rate *= 2 }, true, false},
		"a limit":       {func(r *groupRound) { r.seen.Plan.Members[0].Limit *= 2 }, true, false},
		"no limit":      {func(r *groupRound) { r.seen.Plan.Members[0].Limit = 0 }, true, false},
		"a saving":      {func(r *groupRound) { r.saving = &power.Estimate{Watts: 1} }, true, false},
		"readiness":     {func(r *groupRound) { r.seen.Plan.Members[2].Ready = false }, false, false},
		"a goal": {func(r *groupRound) {
			r.plan.Goals.Of = map[string]int{"a": 90, "b": 10}
			r.plan.Shares = map[string]float64{"a": 0.9, "b": 0.1}
		}, false, false},
		"a reason": {func(r *groupRound) { r.plan.Reason = v1alpha1.ReasonNoRates }, false, false},
	} {
		round := groupRoundOf()
		tc.change(round)
		is := round.status()
		words := sameWords(was, is)
		if same := words && sameFigures(was, is); words != tc.words || same != tc.same {
			t.Errorf("%s: same words %t, same status %t", name, words, same)
		}
	}
	if sameWords(nil, was) {
		t.Error("a first status is no news")
	}
}

func TestTrafficVerdict(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*groupRound)
		want   string
	}{
		"in force":               {func(*groupRound) {}, "InForce Skewed"},
		"on the way":             {func(r *groupRound) { r.plan.Shares = map[string]float64{"a": 0.5, "b": 0.5} }, "Pending Steering"},
		"not settled":            {func(r *groupRound) { r.state.Settled, r.state.Message = false, "waits" }, "Pending Steering"},
		"somebody stands in":     {func(r *groupRound) { r.seen.Plan.Members[0].Ready = false; r.plan.Shares = map[string]float64{"b": 1} }, "InForce Skewed"},
		"no rates, but in force": {func(r *groupRound) { r.plan.Reason = v1alpha1.ReasonNoRates }, "InForce NoRates"},
		"refused":                {func(r *groupRound) { r.refusal = &routing.Refusal{Reason: "GroupNotFound"} }, "Blocked GroupNotFound"},
		"contested":              {func(r *groupRound) { r.contested = true }, "Blocked Contested"},
		"forbidden":              {func(r *groupRound) { r.plan.Action, r.plan.Reason = planner.GroupRelease, v1alpha1.ReasonNoPolicy }, "Blocked NoPolicy"},
		"nobody": {func(r *groupRound) {
			r.plan.Action, r.plan.Reason, r.plan.Goals = planner.GroupRelease, v1alpha1.ReasonNoMembers, planner.Parts{}
		}, "Pending NoMembers"},
		"floors": {func(r *groupRound) {
			r.plan.Action, r.plan.Reason = planner.GroupLeave, v1alpha1.ReasonFloorsExceedTotal
		}, "Blocked FloorsExceedTotal"},
		"balanced": {func(r *groupRound) {
			r.plan.Action, r.plan.Reason, r.plan.Goals = planner.GroupBalance, v1alpha1.ReasonBalanced, planner.Parts{}
		}, "Idle Balanced"},
		"no rates": {func(r *groupRound) {
			r.plan.Action, r.plan.Reason, r.plan.Goals = planner.GroupBalance, v1alpha1.ReasonNoRates, planner.Parts{}
		}, "Pending NoRates"},
		"recommended": {func(r *groupRound) {
			r.plan.Action, r.plan.Recommend, r.plan.Reason = planner.GroupBalance, true, v1alpha1.ReasonAwaitingApproval
		}, "Recommended AwaitingApproval"},
	} {
		round := groupRoundOf()
		tc.change(round)
		verdict := round.verdict()
		if got := fmt.Sprintf("%s %s", verdict.State, verdict.Reason); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// Another manager goes on with the goals in the status, with those of a recommendation only if
// they are of the same VMs.
func TestGroupRecovered(t *testing.T) {
	round := groupRoundOf()
	status := round.status()
	round.seen.Profile.Status.Traffic = status
	status.Revision = "else"
	plan := recovered(round.seen, &round.state)
	if plan == nil || !plan.Approved || plan.Action != planner.GroupSteer || plan.Goals.Whole != 100 || plan.Goals.Of["a"] != 100 {
		t.Errorf("%+v", plan)
	}
	status.State, status.Reason = v1alpha1.LeverRecommended, v1alpha1.ReasonAwaitingApproval
	if plan := recovered(round.seen, &round.state); plan != nil {
		t.Errorf("a recommendation for other VMs: %+v", plan)
	}
	round.plan.Goals = planner.Parts{}
	round.seen.Profile.Status.Traffic = round.status()
	if plan := recovered(round.seen, &round.state); plan != nil {
		t.Errorf("a plan without goals: %+v", plan)
	}
}
