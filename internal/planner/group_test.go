package planner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/units"
)

// concave is what five VMs of the studies cost, in shape.
func concave(rate units.BitsPerSecond) units.Watts {
	return 1 + units.Watts(3*math.Sqrt(float64(rate)/1e9)) + units.Watts(2*float64(rate)/1e9)
}

// groupOf has VMs with 180 Mbit/s each, on a node each, and equal shares.
func groupOf(granularity traffic.Granularity, vms int) Group {
	group := Group{Curves: []traffic.Curve{nil, concave}, Granularity: granularity, MinActive: 2, SpareLargest: true, Due: true}
	for i := range vms {
		group.Nodes = append(group.Nodes, GroupNode{Name: fmt.Sprintf("n%d", i), Policy: trafficPolicy(v1alpha1.ModeEnforce), NamespaceSelected: true, Metered: true})
		member := GroupMember{Node: i, Ready: true}
		member.Name, member.Domain = fmt.Sprintf("vm-%d", i), fmt.Sprintf("node n%d", i)
		member.Share, member.Rate, member.Limit, member.Curve = 1/float64(vms), 180e6, 1e9, 1
		group.Members = append(group.Members, member)
	}
	return group
}

func trafficPolicy(mode v1alpha1.PolicyMode, approvals ...string) *model.Policy {
	return &model.Policy{
		Name: "p", Mode: mode, Levers: []v1alpha1.Lever{v1alpha1.LeverTrafficShare}, Approvals: approvals, RecommendationValidity: time.Hour,
	}
}

func planGroup(t *testing.T, group Group, now time.Time) GroupPlan {
	t.Helper()
	plan := PlanGroup(group, now)
	sum := 0.0
	for name, share := range plan.Shares {
		sum += share
		if plan.Action == GroupSteer && !(share > 0) {
			t.Errorf("%s has a share of %v", name, share)
		}
	}
	if plan.Action == GroupSteer && math.Abs(sum-1) > 1e-9 {
		t.Errorf("shares add up to %v", sum)
	}
	return plan
}

// follow lets shares be in force, as a writer would.
func follow(group Group, plan GroupPlan) Group {
	group.Members = append([]GroupMember(nil), group.Members...)
	total := units.BitsPerSecond(0)
	for i := range group.Members {
		total += group.Members[i].Rate
	}
	for i := range group.Members {
		m := &group.Members[i]
		switch plan.Action {
		case GroupSteer:
			m.Share = plan.Shares[m.Name]
		case GroupBalance, GroupRelease:
			m.Share = 1 / float64(len(group.Members))
		}
		m.Rate = total * units.BitsPerSecond(m.Share)
	}
	group.Last = &plan
	return group
}

// settle plans until nothing moves any more.
func settle(t *testing.T, group Group) (Group, GroupPlan) {
	t.Helper()
	var plan GroupPlan
	for range 50 {
		before := group
		plan = planGroup(t, group, noon())
		group = follow(group, plan)
		same := true
		for i := range group.Members {
			same = same && math.Abs(group.Members[i].Share-before.Members[i].Share) < 1e-9
		}
		if same {
			return group, plan
		}
	}
	t.Fatal("shares move without end")
	return group, plan
}

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func TestGroupPermissions(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Group)
		action GroupAction
		reason string
		words  string
	}{
		"allowed":     {func(*Group) {}, GroupSteer, v1alpha1.ReasonSkewed, ""},
		"observes":    {func(g *Group) { g.Nodes[3].Policy.Mode = v1alpha1.ModeObserve }, GroupRelease, v1alpha1.ReasonObserveOnly, "EnergyPolicy p"},
		"no policy":   {func(g *Group) { forNodes(g, func(n *GroupNode) { n.Policy = nil }) }, GroupRelease, v1alpha1.ReasonNoPolicy, ""},
		"one without": {func(g *Group) { g.Nodes[2].Policy = nil }, GroupRelease, v1alpha1.ReasonMixedPolicies, "node n2"},
		"no lever": {func(g *Group) { forNodes(g, func(n *GroupNode) { n.Policy.Levers = nil }) },
			GroupRelease, v1alpha1.ReasonLeverNotAllowed, "TrafficShare"},
		"one without lever": {func(g *Group) { g.Nodes[4].Policy.Levers = []v1alpha1.Lever{v1alpha1.LeverAffinity} }, GroupRelease, v1alpha1.ReasonMixedPolicies, "node n4"},
		"namespace":         {func(g *Group) { g.Nodes[0].NamespaceSelected = false }, GroupRelease, v1alpha1.ReasonNamespaceNotSelected, "namespaceSelector"},
		"no meter":          {func(g *Group) { g.Nodes[1].Metered = false }, GroupRelease, v1alpha1.ReasonNoMeter, "node n1"},
		"modelled": {func(g *Group) { g.Nodes[1].Metered, g.Nodes[1].Policy.AllowModelled = false, true },
			GroupSteer, v1alpha1.ReasonSkewed, ""},
		"awaits meter": {func(g *Group) { g.Nodes[1].Metered, g.Nodes[1].MeterUnknown = false, true },
			GroupBalance, v1alpha1.ReasonAwaitingMeter, ""},
		"no meter, recommends": {func(g *Group) {
			forNodes(g, func(n *GroupNode) { n.Metered, n.Policy.Mode = false, v1alpha1.ModeRecommend })
		}, GroupBalance, v1alpha1.ReasonAwaitingApproval, "spec.approvals of EnergyPolicy p"},
		"the most careful": {func(g *Group) { g.Nodes[1].Policy.Mode = v1alpha1.ModeRecommend }, GroupBalance, v1alpha1.ReasonAwaitingApproval, "spec.approvals"},
		"no rates":         {func(g *Group) { g.Missing, g.MissingMessage = v1alpha1.ReasonNoRates, "node n0" }, GroupBalance, v1alpha1.ReasonNoRates, "node n0"},
		"nobody":           {func(g *Group) { g.Members = nil }, GroupRelease, v1alpha1.ReasonNoMembers, ""},
		"nobody ready":     {func(g *Group) { forMembers(g, func(m *GroupMember) { m.Ready = false }) }, GroupLeave, v1alpha1.ReasonNoReadyMembers, ""},
		"floors too high":  {func(g *Group) { forMembers(g, func(m *GroupMember) { m.Floor = 500e6 }) }, GroupLeave, v1alpha1.ReasonFloorsExceedTotal, "floors"},
		"cost unknown":     {func(g *Group) { forMembers(g, func(m *GroupMember) { m.Curve = 0 }) }, GroupBalance, v1alpha1.ReasonCurvesUnknown, ""},
		"no room":          {func(g *Group) { forMembers(g, func(m *GroupMember) { m.Limit = 185e6 }) }, GroupBalance, v1alpha1.ReasonNoRoom, ""},
	} {
		for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
			group := groupOf(granularity, 5)
			tc.change(&group)
			plan := planGroup(t, group, noon())
			if plan.Action != tc.action || plan.Reason != tc.reason || !strings.Contains(plan.Message, tc.words) {
				t.Errorf("%s, granularity %d: action %d, %s: %q; want %d, %s: %q", name, granularity, plan.Action, plan.Reason, plan.Message, tc.action, tc.reason, tc.words)
			}
			for _, m := range group.Members {
				if plan.Reasons[m.Name] == "" {
					t.Errorf("%s: %s has no reason", name, m.Name)
				}
			}
		}
	}
}

func forNodes(g *Group, change func(*GroupNode)) {
	for i := range g.Nodes {
		change(&g.Nodes[i])
	}
}

func forMembers(g *Group, change func(*GroupMember)) {
	for i := range g.Members {
		change(&g.Members[i])
	}
}

// Traffic comes to where it is planned by steps.
func TestGroupGoesBySteps(t *testing.T) {
	for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
		group := groupOf(granularity, 5)
		first := planGroup(t, group, noon())
		before := map[string]float64{}
		for _, m := range group.Members {
			before[m.Name] = m.Share
		}
		if part := moved(before, first.Shares); part == 0 || part > groupMaxStep+1e-9 {
			t.Errorf("granularity %d: %v of the traffic moves at once", granularity, part)
		}
	}
}

func TestGroupReplacesWhoIsNotReady(t *testing.T) {
	for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
		group, plan := settle(t, groupOf(granularity, 6))
		active := len(plan.Shares)
		fails := firstOf(plan.Shares)
		share := plan.Shares[fails]
		for i := range group.Members {
			if group.Members[i].Name == fails {
				group.Members[i].Ready, group.Members[i].Share = false, 0
			}
		}
		for name, change := range map[string]func(*Group){
			"between plans":    func(g *Group) { g.Due = false },
			"without rates":    func(g *Group) { g.Missing = v1alpha1.ReasonNoRates },
			"without a meter":  func(g *Group) { g.Nodes[0].Metered, g.Nodes[0].MeterUnknown = false, true },
			"when it is due":   func(*Group) {},
			"after a restart":  func(g *Group) { g.Due, g.Last.Reasons = false, nil },
			"with a frozen VM": func(g *Group) { g.Due, g.Nodes[5].Frozen = false, true },
		} {
			changed := group
			changed.Nodes = append([]GroupNode(nil), group.Nodes...)
			last := *group.Last
			changed.Last = &last
			change(&changed)
			now := planGroup(t, changed, noon())
			if now.Action != GroupSteer || now.Shares[fails] != 0 || now.Reasons[fails] != v1alpha1.ReasonMemberNotReady {
				t.Errorf("granularity %d, %s: action %d, shares %v, %s", granularity, name, now.Action, now.Shares, now.Reasons[fails])
			}
			changed.Due, changed.MinActive = false, active+1
			if more := planGroup(t, changed, noon()); len(more.Shares) <= active {
				t.Errorf("granularity %d, %s: %d active, at least %d have to be", granularity, name, len(more.Shares), active+1)
			}
			if name != "when it is due" && len(now.Shares) != active && share > 0 {
				t.Errorf("granularity %d, %s: %d active of %d: %v", granularity, name, len(now.Shares), active, now.Shares)
			}
		}
	}
}

func firstOf(shares map[string]float64) string {
	for i := range 100 {
		if name := fmt.Sprintf("vm-%d", i); shares[name] > 0 {
			return name
		}
	}
	return ""
}

// Nothing comes to a node that is to be emptied.
func TestGroupFrozenNodesOnlyLose(t *testing.T) {
	for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
		group := groupOf(granularity, 6)
		group.Nodes[0].Frozen = true
		start := group.Members[0].Share
		for range 20 {
			plan := planGroup(t, group, noon())
			if got := plan.Shares["vm-0"]; got > start+1e-9 {
				t.Fatalf("granularity %d: the VM of a frozen node has %v, then %v", granularity, start, got)
			}
			group = follow(group, plan)
		}
	}
}

func TestGroupRecommendation(t *testing.T) {
	for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
		group := groupOf(granularity, 5)
		forNodes(&group, func(n *GroupNode) { n.Policy.Mode = v1alpha1.ModeRecommend })
		group.Nodes[1].Policy.Name = "q"
		first := planGroup(t, group, noon())
		if first.Action != GroupBalance || first.Revision == "" || !first.RecommendedAt.Equal(noon()) || !strings.Contains(first.Message, "EnergyPolicies p, q") {
			t.Fatalf("%+v", first)
		}
		group = follow(group, first)

		// It stands while it is valid, though loads change.
		group.Members[2].Rate *= 3
		later := noon().Add(59 * time.Minute)
		stands := planGroup(t, group, later)
		if stands.Revision != first.Revision || !stands.RecommendedAt.Equal(noon()) || stands.Action != GroupBalance || stands.Reason != v1alpha1.ReasonAwaitingApproval {
			t.Errorf("%+v, want what was recommended", stands)
		}
		// One approval of two is none.
		group.Nodes[1].Policy.Approvals = []string{first.Revision}
		if plan := planGroup(t, group, later); plan.Action != GroupBalance {
			t.Errorf("acted on with one approval of two")
		}
		for i := range group.Nodes {
			group.Nodes[i].Policy.Approvals = []string{"other", first.Revision}
		}
		group.Due = false // an approval does not wait for the next plan
		approved := planGroup(t, group, later)
		if approved.Action != GroupSteer || !approved.Approved || approved.Revision != first.Revision || approved.Reason != v1alpha1.ReasonSkewed {
			t.Errorf("%+v, want it acted on", approved)
		}
		group.Due = true
		group, approved = settle(t, follow(group, approved))
		for name := range approved.Goals.Of {
			if math.Abs(approved.Shares[name]-approved.Goals.Share(name)) > 1e-9 {
				t.Errorf("%s has %v, want %v", name, approved.Shares[name], approved.Goals.Share(name))
			}
		}
		// Withdrawn, it is balanced again.
		forNodes(&group, func(n *GroupNode) { n.Policy.Approvals = nil })
		if plan := planGroup(t, group, later); plan.Action != GroupBalance {
			t.Errorf("the approval was withdrawn: %+v", plan)
		}
		// Expired, what is found now is recommended.
		if plan := planGroup(t, group, noon().Add(time.Hour)); plan.RecommendedAt.Equal(noon()) {
			t.Errorf("an old recommendation stands: %+v", plan)
		}
	}
}

// recommendedGroup is a group with its recommendation of noon, which nobody approved.
func recommendedGroup(t *testing.T, id GroupID) (Group, GroupPlan) {
	t.Helper()
	group := groupOf(traffic.Weighted, 6)
	group.ID = id
	forNodes(&group, func(n *GroupNode) { n.Policy.Mode = v1alpha1.ModeRecommend })
	forMembers(&group, func(m *GroupMember) { m.UID = id.Namespace + m.Name })
	plan := planGroup(t, group, noon())
	return follow(group, plan), plan
}

// An approval is of the recommendation that was read: of that group, those VMs, and that time.
func TestGroupApprovalIsOfOneRecommendation(t *testing.T) {
	dev, approved := recommendedGroup(t, GroupID{Namespace: "dev", Profile: "web", UID: "p-1"})
	prod, other := recommendedGroup(t, GroupID{Namespace: "prod", Profile: "web", UID: "p-2"})
	if approved.Revision == other.Revision {
		t.Errorf("two groups with VMs of equal names have revision %s", other.Revision)
	}
	minute, expired := noon().Add(time.Minute), noon().Add(time.Hour)
	anew := func(g *Group) { forMembers(g, func(m *GroupMember) { m.UID += "-anew" }) }
	steers := func(g *Group) { last := *g.Last; last.Approved = true; g.Last = &last }
	for name, tc := range map[string]struct {
		group  Group
		change func(*Group)
		at     time.Time
		want   GroupAction
	}{
		"as it was":                    {dev, func(*Group) {}, minute, GroupSteer},
		"another group":                {prod, func(*Group) {}, minute, GroupBalance},
		"one VM was made anew":         {dev, func(g *Group) { g.Members[0].UID = "anew" }, minute, GroupSteer},
		"all VMs were made anew":       {dev, anew, minute, GroupBalance},
		"they were, and it is steered": {dev, func(g *Group) { anew(g); steers(g) }, minute, GroupBalance},
		"it had expired":               {dev, func(*Group) {}, expired, GroupBalance},
		"it expires while it steers":   {dev, steers, expired, GroupSteer},
	} {
		group := tc.group
		group.Members = append([]GroupMember(nil), tc.group.Members...)
		group.Nodes = append([]GroupNode(nil), tc.group.Nodes...)
		forNodes(&group, func(n *GroupNode) { n.Policy = trafficPolicy(v1alpha1.ModeRecommend, approved.Revision) })
		tc.change(&group)
		if plan := planGroup(t, group, tc.at); plan.Action != tc.want || (plan.Revision == approved.Revision) != (tc.want == GroupSteer) {
			t.Errorf("%s: action %d with revision %s after %s, want action %d", name, plan.Action, plan.Revision, approved.Revision, tc.want)
		}
	}
}

// A pause, or one VM or node that opted out, gives the traffic of the whole group back.
func TestGroupGivesBack(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Group)
		reason string
		words  string
	}{
		"paused": {func(g *Group) { g.Nodes[3].Policy.Paused = true }, v1alpha1.ReasonPaused, "EnergyPolicy p is paused"},
		"a VM opted out": {func(g *Group) {
			g.Members[1].OptOut = model.OptOut{Levers: []v1alpha1.Lever{v1alpha1.LeverTrafficShare}}
		},
			v1alpha1.ReasonOptedOut, "VirtualMachineInstance vm-1 names the lever; all VMs of the group keep equal shares"},
		"a VM that is not ready": {func(g *Group) { g.Members[1].OptOut.All, g.Members[1].Ready = true, false }, v1alpha1.ReasonOptedOut, "vm-1 keeps all levers away"},
		"a node opted out":       {func(g *Group) { g.Nodes[2].OptOut = model.OptOut{All: true, Unreadable: `"x"`} }, v1alpha1.ReasonOptedOut, `node n2, which runs VM vm-2, is "x"`},
	} {
		for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
			group, _ := settle(t, groupOf(granularity, 5))
			tc.change(&group)
			plan := planGroup(t, group, noon())
			if plan.Action != GroupRelease || plan.Reason != tc.reason || !strings.Contains(plan.Message, tc.words) || plan.Approved {
				t.Errorf("%s, granularity %d: action %d, %s: %q", name, granularity, plan.Action, plan.Reason, plan.Message)
			}
		}
	}
	other := groupOf(traffic.Weighted, 5)
	other.Members[1].OptOut = model.OptOut{Levers: []v1alpha1.Lever{v1alpha1.LeverAffinity}}
	if plan := planGroup(t, other, noon()); plan.Action != GroupSteer {
		t.Errorf("opted out of another lever: %+v", plan)
	}
}

// Outside of the times of changes shares stay, but for those of members that fail, and
// nothing is steered that was not.
func TestGroupOutsideOfTheTimesOfChanges(t *testing.T) {
	closed := func(g *Group) {
		g.Nodes[2].Hold = model.Hold{Reason: v1alpha1.ReasonOutsideChangeWindow, Message: "none is open until then"}
	}
	group := groupOf(traffic.Weighted, 5)
	closed(&group)
	plan := planGroup(t, group, noon())
	if plan.Action != GroupBalance || plan.Reason != v1alpha1.ReasonOutsideChangeWindow || plan.Message != "EnergyPolicy p: none is open until then" {
		t.Errorf("never steered: action %d, %s: %q", plan.Action, plan.Reason, plan.Message)
	}
	steered, before := settle(t, groupOf(traffic.Weighted, 5))
	closed(&steered)
	for i := range steered.Members {
		steered.Members[i].Rate /= 3
	}
	plan = planGroup(t, steered, noon().Add(time.Hour))
	if plan.Action != GroupSteer || plan.Reason != v1alpha1.ReasonOutsideChangeWindow {
		t.Fatalf("steered: action %d, %s", plan.Action, plan.Reason)
	}
	for name, share := range before.Shares {
		if math.Abs(plan.Shares[name]-share) > 1e-9 {
			t.Errorf("%s had %v, and has %v", name, share, plan.Shares[name])
		}
	}
	for i := range steered.Members {
		if before.Shares[steered.Members[i].Name] > 0 {
			steered.Members[i].Ready = false
			failed := planGroup(t, steered, noon().Add(time.Hour))
			if failed.Action != GroupSteer || failed.Shares[steered.Members[i].Name] > 0 {
				t.Errorf("%s failed: action %d, shares %v", steered.Members[i].Name, failed.Action, failed.Shares)
			}
			break
		}
	}
	// An approval waits too.
	forNodes(&group, func(n *GroupNode) { n.Policy, n.Hold = trafficPolicy(v1alpha1.ModeRecommend), model.Hold{} })
	recommended := planGroup(t, group, noon())
	group = follow(group, recommended)
	closed(&group)
	forNodes(&group, func(n *GroupNode) { n.Policy = trafficPolicy(v1alpha1.ModeRecommend, recommended.Revision) })
	if plan := planGroup(t, group, noon().Add(time.Minute)); plan.Action == GroupSteer || plan.Revision != recommended.Revision {
		t.Errorf("approved: action %d, revision %s, want %s to wait", plan.Action, plan.Revision, recommended.Revision)
	}
	forNodes(&group, func(n *GroupNode) { n.Hold = model.Hold{} })
	if plan := planGroup(t, group, noon().Add(time.Minute)); plan.Action != GroupSteer || plan.Revision != recommended.Revision {
		t.Errorf("in time: action %d, revision %s, want %s to be steered", plan.Action, plan.Revision, recommended.Revision)
	}
}

// What is in force counts from when the shares came to be as the schedule has them, and goes
// on while they stay so.
func TestGroupPlanDone(t *testing.T) {
	schedule := model.NewSchedule(v1alpha1.LeverTrafficShare, "shop/web", model.TrialOneIn)
	later := noon().Add(7 * time.Minute)
	on := &model.Switch{Lever: v1alpha1.LeverTrafficShare, Seed: schedule.Seed, OneIn: 2, On: true, Since: noon()}
	since := func(s model.Switch, at time.Time) *model.Switch {
		s.Since = at
		return &s
	}
	for name, tc := range map[string]struct {
		plan    GroupPlan
		was     *model.Switch
		settled bool
		want    *model.Switch
	}{
		"no schedule":             {GroupPlan{}, on, true, nil},
		"not there yet":           {GroupPlan{Schedule: schedule}, nil, false, nil},
		"there now":               {GroupPlan{Schedule: schedule}, nil, true, since(*on, later)},
		"there, and moves on":     {GroupPlan{Schedule: schedule}, on, false, on},
		"off, and was on":         {GroupPlan{Schedule: schedule, Off: true}, on, false, nil},
		"of another draw":         {GroupPlan{Schedule: schedule}, &model.Switch{Seed: 8, OneIn: 2, On: true}, false, nil},
		"that cannot be followed": {GroupPlan{Schedule: &model.Schedule{}}, on, true, nil},
		"of a hold-back":          {GroupPlan{Schedule: schedule}, &model.Switch{Seed: schedule.Seed, OneIn: 20, On: true}, true, since(*on, later)},
	} {
		if diff := cmp.Diff(tc.want, tc.plan.Done(tc.was, tc.settled, later)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A group that proofs know, but not with the lever, waits for them.
func TestProofsStandForGroups(t *testing.T) {
	affinity, shares := model.Proof{Lever: v1alpha1.LeverAffinity}, model.Proof{Lever: v1alpha1.LeverTrafficShare, Use: true}
	for name, tc := range map[string]struct {
		stands []model.Proof
		known  bool
		stand  bool
	}{
		"not known":       {[]model.Proof{shares}, false, false},
		"of other levers": {[]model.Proof{affinity}, true, false},
		"of the lever":    {[]model.Proof{affinity, shares}, true, true},
	} {
		var group Group
		group.Stand(tc.stands, tc.known)
		if stand := group.Proof != nil && group.Proof.Use; stand != tc.stand || group.ProofsAwaited == tc.stand {
			t.Errorf("%s: awaited %v, %+v", name, group.ProofsAwaited, group.Proof)
		}
	}
}

// moved is the part of the traffic that goes elsewhere.
func moved(from, to map[string]float64) float64 {
	sum := 0.0
	for name, share := range to {
		sum += math.Abs(share - from[name])
	}
	for name, share := range from {
		if _, both := to[name]; !both {
			sum += share
		}
	}
	return sum / 2
}

const groupRound = 30 * time.Second

// A group whose traffic is the same for hours, but for a noise of a fifth, keeps its
// shares once they are found.
func TestGroupNoiseMovesNothing(t *testing.T) {
	for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
		for seed := range uint64(5) {
			r := rand.New(rand.NewPCG(seed, 1))
			group, now := groupOf(granularity, 5), noon()
			var demand Demand
			changes := 0
			for round := range 600 {
				noisy := group
				noisy.Members = slices.Clone(group.Members)
				factor, total := units.BitsPerSecond(max(0.1, 1+0.2*r.NormFloat64())), units.BitsPerSecond(0)
				for i := range noisy.Members {
					noisy.Members[i].Rate *= factor
					total += noisy.Members[i].Rate
				}
				demand = demand.Next(total, now, groupRound)
				noisy.Total = demand.Total
				next := follow(group, planGroup(t, noisy, now))
				for i := range next.Members {
					if round >= 120 && math.Abs(next.Members[i].Share-group.Members[i].Share) > 1e-9 {
						changes++
						break
					}
				}
				group, now = next, now.Add(groupRound)
			}
			// Of 480 rounds. It was 150 and more without a demand.
			if changes > 6 {
				t.Errorf("granularity %d, seed %d: traffic moves in %d rounds for noise alone", granularity, seed, changes)
			}
		}
	}
}

// TestDemandFollows counts in rounds until the total is within a tenth of the rate.
func TestDemandFollows(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to units.BitsPerSecond
		// soonest and latest round.
		soonest, latest int
	}{
		"twice and more": {100e6, 250e6, 1, 1},
		"by half":        {100e6, 150e6, 1, 5},
		"by a fifth":     {100e6, 120e6, 1, 40},
		"to a half":      {100e6, 50e6, belowRounds, 2 * belowRounds},
		"to nothing":     {100e6, 0, belowRounds, 30 * belowRounds},
		"from nothing":   {0, 100e6, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var d Demand
			now := noon()
			for range 100 {
				d = d.Next(tc.from, now, groupRound)
				now = now.Add(groupRound)
			}
			if d.Total != tc.from {
				t.Fatalf("a demand of %v, want %v", d.Total, tc.from)
			}
			for round := 1; round <= tc.latest; round++ {
				d = d.Next(tc.to, now, groupRound)
				now = now.Add(groupRound)
				if math.Abs(float64(d.Total-tc.to)) <= 0.1*max(float64(tc.to), 1) {
					if round < tc.soonest {
						t.Errorf("after %d rounds, want %d and more", round, tc.soonest)
					}
					return
				}
			}
			t.Errorf("after %d rounds the demand is %v", tc.latest, d.Total)
		})
	}
}
