package planner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

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
		group.Nodes = append(group.Nodes, GroupNode{Name: fmt.Sprintf("n%d", i), Policy: trafficPolicy(model.ModeEnforce), NamespaceSelected: true, Metered: true})
		member := GroupMember{Node: i, Ready: true}
		member.Name, member.Domain = fmt.Sprintf("vm-%d", i), fmt.Sprintf("node n%d", i)
		member.Share, member.Rate, member.Limit, member.Curve = 1/float64(vms), 180e6, 1e9, 1
		group.Members = append(group.Members, member)
	}
	return group
}

func trafficPolicy(mode model.Mode, approvals ...string) *model.Policy {
	return &model.Policy{
		Name: "p", Mode: mode, Levers: []model.Lever{model.LeverTrafficShare}, Approvals: approvals, RecommendationValidity: time.Hour,
	}
}

func planGroup(t *testing.T, group Group, now time.Time) GroupPlan {
	t.Helper()
	plan, err := PlanGroup(group, now)
	if err != nil {
		t.Fatal(err)
	}
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
		reason model.Reason
		words  string
	}{
		"allowed":     {func(*Group) {}, GroupSteer, model.ReasonSkewed, ""},
		"observes":    {func(g *Group) { g.Nodes[3].Policy.Mode = model.ModeObserve }, GroupRelease, model.ReasonObserveOnly, "EnergyPolicy p"},
		"no policy":   {func(g *Group) { forNodes(g, func(n *GroupNode) { n.Policy = nil }) }, GroupRelease, model.ReasonNoPolicy, ""},
		"one without": {func(g *Group) { g.Nodes[2].Policy = nil }, GroupRelease, model.ReasonMixedPolicies, "node n2"},
		"no lever": {func(g *Group) { forNodes(g, func(n *GroupNode) { n.Policy.Levers = nil }) },
			GroupRelease, model.ReasonLeverNotAllowed, "TrafficShare"},
		"one without lever": {func(g *Group) { g.Nodes[4].Policy.Levers = []model.Lever{model.LeverAffinity} }, GroupRelease, model.ReasonMixedPolicies, "node n4"},
		"namespace":         {func(g *Group) { g.Nodes[0].NamespaceSelected = false }, GroupRelease, model.ReasonNamespaceNotSelected, "namespaceSelector"},
		"no meter":          {func(g *Group) { g.Nodes[1].Metered = false }, GroupRelease, model.ReasonNoMeter, "node n1"},
		"modelled": {func(g *Group) { g.Nodes[1].Metered, g.Nodes[1].Policy.AllowModelled = false, true },
			GroupSteer, model.ReasonSkewed, ""},
		"awaits meter": {func(g *Group) { g.Nodes[1].Metered, g.Nodes[1].MeterUnknown = false, true },
			GroupBalance, model.ReasonAwaitingMeter, ""},
		"no meter, recommends": {func(g *Group) {
			forNodes(g, func(n *GroupNode) { n.Metered, n.Policy.Mode = false, model.ModeRecommend })
		}, GroupBalance, model.ReasonAwaitingApproval, "spec.approvals of EnergyPolicy p"},
		"the most careful": {func(g *Group) { g.Nodes[1].Policy.Mode = model.ModeRecommend }, GroupBalance, model.ReasonAwaitingApproval, "spec.approvals"},
		"no rates":         {func(g *Group) { g.Missing, g.MissingMessage = model.ReasonNoRates, "node n0" }, GroupBalance, model.ReasonNoRates, "node n0"},
		"nobody":           {func(g *Group) { g.Members = nil }, GroupRelease, model.ReasonNoMembers, ""},
		"nobody ready":     {func(g *Group) { forMembers(g, func(m *GroupMember) { m.Ready = false }) }, GroupLeave, model.ReasonNoReadyMembers, ""},
		"floors too high":  {func(g *Group) { forMembers(g, func(m *GroupMember) { m.Floor = 500e6 }) }, GroupLeave, model.ReasonFloorsExceedTotal, "floors"},
		"cost unknown":     {func(g *Group) { forMembers(g, func(m *GroupMember) { m.Curve = 0 }) }, GroupBalance, model.ReasonCurvesUnknown, ""},
		"no room":          {func(g *Group) { forMembers(g, func(m *GroupMember) { m.Limit = 185e6 }) }, GroupBalance, model.ReasonNoRoom, ""},
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

// What could be saved is told also where nothing is allowed.
func TestGroupTellsWhatIsPossible(t *testing.T) {
	group := groupOf(traffic.Weighted, 5)
	group.Nodes[0].Policy.Mode = model.ModeObserve
	plan := planGroup(t, group, noon())
	if plan.Possible == nil || plan.Planned == nil || plan.Planned.Talkers >= plan.Now.Talkers {
		t.Errorf("now %+v, possible %+v of %v", plan.Now, plan.Planned, plan.Possible)
	}
	group.Missing = model.ReasonNoRates
	if plan := planGroup(t, group, noon()); plan.Possible != nil || plan.Now != nil {
		t.Errorf("without rates: now %+v, possible %v", plan.Now, plan.Possible)
	}
}

// Traffic comes to where it is planned by steps, stays there while rates go up
// and down a little, and is given back by none when the permission goes.
func TestGroupGoesByStepsAndStays(t *testing.T) {
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
		group, plan := settle(t, group)
		random := rand.New(rand.NewPCG(1, 2))
		for round := range 100 {
			for i := range group.Members {
				group.Members[i].Rate *= units.BitsPerSecond(0.99 + 0.02*random.Float64())
			}
			again := planGroup(t, group, noon())
			if again.Revision != plan.Revision || again.Action != GroupSteer {
				t.Fatalf("granularity %d, round %d: revision %s, then %s: %v, then %v", granularity, round, plan.Revision, again.Revision, plan.Goals, again.Goals)
			}
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
			"without rates":    func(g *Group) { g.Missing = model.ReasonNoRates },
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
			if now.Action != GroupSteer || now.Shares[fails] != 0 || now.Reasons[fails] != model.ReasonMemberNotReady {
				t.Errorf("granularity %d, %s: action %d, shares %v, %s", granularity, name, now.Action, now.Shares, now.Reasons[fails])
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
		forNodes(&group, func(n *GroupNode) { n.Policy.Mode = model.ModeRecommend })
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
		if stands.Revision != first.Revision || !stands.RecommendedAt.Equal(noon()) || stands.Action != GroupBalance || stands.Reason != model.ReasonAwaitingApproval {
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
		if approved.Action != GroupSteer || !approved.Approved || approved.Revision != first.Revision || approved.Reason != model.ReasonSkewed {
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
	forNodes(&group, func(n *GroupNode) { n.Policy.Mode = model.ModeRecommend })
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
		forNodes(&group, func(n *GroupNode) { n.Policy = trafficPolicy(model.ModeRecommend, approved.Revision) })
		tc.change(&group)
		if plan := planGroup(t, group, tc.at); plan.Action != tc.want || (plan.Revision == approved.Revision) != (tc.want == GroupSteer) {
			t.Errorf("%s: action %d with revision %s after %s, want action %d", name, plan.Action, plan.Revision, approved.Revision, tc.want)
		}
	}
}

func TestGroupRefusesNonsense(t *testing.T) {
	group := groupOf(traffic.Weighted, 3)
	group.Members[1].Rate = units.BitsPerSecond(math.NaN())
	if _, err := PlanGroup(group, noon()); err == nil {
		t.Error("a rate that is no number is planned with")
	}
}
