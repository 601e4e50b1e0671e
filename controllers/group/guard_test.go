package group

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/collect"
	"github.com/joulevirt/joulevirt/controllers/node"
	"github.com/joulevirt/joulevirt/controllers/profile"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/guards"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// guardedGroup is a group whose VMs the manager's guard looks at, each 15 s.
type guardedGroup struct {
	*testing.T
	clock    *testingclock.FakeClock
	writer   *memoryWriter
	seen     *observe.Group
	memory   *groupMemory
	groups   *Reconciler
	guard    *node.GlobalGuard
	recorder *events.FakeRecorder
	replans  int
	status   *v1alpha1.TrafficStatus
}

func newGuardedGroup(t *testing.T) *guardedGroup {
	g := &guardedGroup{
		T: t, clock: testingclock.NewFakeClock(controllertest.StatusTime()), writer: &memoryWriter{}, seen: triedGroup(traffic.Weighted),
		recorder: events.NewFakeRecorder(8),
	}
	_ = g.writer.Release(t.Context(), routing.Group{})
	g.seen.Profile.Spec.Group = &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupHTTPRoute, Name: "web"}
	for i := range g.seen.Plan.Members {
		m := &g.seen.Plan.Members[i]
		pod := routing.Pod{Name: m.Name, UID: types.UID("pod-" + m.Name), Ready: true}
		g.seen.Routing.Members = append(g.seen.Routing.Members, routing.Member{Name: m.Name, Pods: []routing.Pod{pod}})
	}
	g.newManager()
	return g
}

// newManager knows nothing but what the profile's status says.
func (g *guardedGroup) newManager() {
	facts := &profile.DisturbanceFacts{Nested: map[string]bool{"n1": false, "n2": false}, Pods: map[string]profile.PodFacts{}}
	for i := range g.seen.Plan.Members {
		m := &g.seen.Plan.Members[i]
		facts.Pods["pod-"+m.Name] = profile.PodFacts{Node: g.seen.Plan.Nodes[m.Node].Name, MaxSteal: 0.05}
	}
	views := NewViews(func(context.Context) {}, func(context.Context) {})
	g.guard = node.NewGlobalGuard(node.GlobalGuardOptions{
		Reader: controllertest.NewOneNode(g.T).Client, Store: guards.NewStore(g.clock, time.Minute), Seen: func() *profile.DisturbanceFacts { return facts },
		Log: logr.Discard(), Replan: func(context.Context, string) {},
		Member: views.Member, Regroup: func(context.Context, string) { g.replans++ },
	})
	g.seen.Profile.Status.Traffic = g.status
	g.memory = &groupMemory{}
	counts, err := collect.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		g.Fatal(err)
	}
	g.groups = &Reconciler{
		Clock: g.clock, Writers: routing.Writers{Service: g.writer, Route: g.writer}, Options: DefaultOptions(),
		Guards: g.guard.Store, Recorder: g.recorder, Metrics: counts, Views: views,
	}
}

// round steers the group, and tells.
func (g *guardedGroup) round() *groupRound {
	g.Helper()
	round, err := g.groups.round(g.Context(), g.seen, g.memory)
	if err != nil {
		g.Fatal(err)
	}
	g.groups.show(g.Context(), round)
	was := g.status
	g.status = round.status()
	g.memory.written = g.status
	g.groups.reportWithdrawn(round, was, g.clock.Now())
	return round
}

// pulls lets so many pulls of both nodes pass, with a round of the group each, in which a VM
// waits for so much of a CPU.
func (g *guardedGroup) pulls(n int, vm string, waits units.Cores) {
	g.Helper()
	for range n {
		g.clock.Step(15 * time.Second)
		for at, node := range []string{"n1", "n2"} {
			rates := &model.NodeRates{Node: node, Time: g.clock.Now(), IntervalSeconds: 1}
			for i := range g.seen.Plan.Members {
				m := &g.seen.Plan.Members[i]
				if m.Node != at {
					continue
				}
				of := model.VMRates{PodUID: "pod-" + m.Name, Name: m.Name, VCPUs: []model.VCPURates{{}}}
				if m.Name == vm {
					of.VCPUs[0].WaitCores = waits
				}
				rates.VMs = append(rates.VMs, of)
			}
			g.guard.Hear(g.Context(), rates)
		}
		g.round()
	}
}

// talker is a VM that gets more than an even share, quiet one that gets less.
func (g *guardedGroup) talkers() (talker, quiet string) {
	for name, share := range map[string]float64{"a": g.writer.shares["a"], "b": g.writer.shares["b"], "c": g.writer.shares["c"], "d": g.writer.shares["d"]} {
		switch {
		case share > 0.3:
			talker = name
		case share < 0.2:
			quiet = name
		}
	}
	return talker, quiet
}

// steered is a group of which it is known how its VMs are with even shares, and which is steered.
func steered(t *testing.T) (g *guardedGroup, talker, quiet string) {
	g = newGuardedGroup(t)
	for i := range g.seen.Plan.Nodes {
		g.seen.Plan.Nodes[i].Policy.Paused = true
	}
	g.pulls(12, "", 0)
	for i := range g.seen.Plan.Nodes {
		g.seen.Plan.Nodes[i].Policy.Paused = false
	}
	g.pulls(20, "", 0)
	talker, quiet = g.talkers()
	if g.status.State != v1alpha1.LeverInForce || talker == "" || quiet == "" {
		t.Fatalf("%+v, shares %v", g.status, g.writer.shares)
	}
	return g, talker, quiet
}

// TestSharesThatHurtAreWithdrawn: the group's shares become even within the time of the guard,
// stay so whatever else is the matter and whoever leads, and come back.
func TestSharesThatHurtAreWithdrawn(t *testing.T) {
	g, talker, _ := steered(t)
	g.pulls(3, talker, 0.2)
	if !g.writer.isEven() || g.replans != 1 {
		t.Fatalf("three pulls after a talker began to wait shares are %v; planned anew %d times", g.writer.shares, g.replans)
	}
	w := g.status.Withdrawn
	if g.status.State != v1alpha1.LeverBlocked || g.status.Reason != v1alpha1.ReasonGuardWithdrawn || w == nil || w.Count != 1 || w.Sign != "Steal" ||
		string(w.PodUID) != "pod-"+talker || !strings.Contains(g.status.Message, "VM "+talker+": Steal of 20 % of a CPU") {
		t.Errorf("%+v, withdrawn %+v", g.status, w)
	}
	want := "Warning GuardWithdrawn lever TrafficShare of HTTPRoute web: withdrawn from the group until "
	if len(g.recorder.Events) != 1 {
		t.Fatalf("%d Events, want one", len(g.recorder.Events))
	}
	if event := <-g.recorder.Events; !strings.HasPrefix(event, want) {
		t.Errorf("%s", event)
	}
	if counted := testutil.ToFloat64(g.groups.Metrics.GuardBreaches.WithLabelValues("Steal", "TrafficShare")); counted != 1 {
		t.Errorf("counted %g", counted)
	}
	// Trials are stopped by it.
	if _, unit := g.round().tried(nil); unit.Stopped[v1alpha1.LeverTrafficShare].Evidence == "" {
		t.Errorf("trials got %+v", unit)
	}
	g.newManager()
	g.pulls(8, "", 0)
	if diff := cmp.Diff(w, g.status.Withdrawn); !g.writer.isEven() || len(g.recorder.Events) > 0 || diff != "" {
		t.Errorf("a new manager: shares %v, %d Events, withdrawn (-before +after):\n%s", g.writer.shares, len(g.recorder.Events), diff)
	}
	g.pulls(24, "", 0)
	if again, _ := g.talkers(); again == "" || g.status.State != v1alpha1.LeverInForce || g.status.Withdrawn == nil {
		t.Errorf("after the withdrawal: %+v, shares %v", g.status, g.writer.shares)
	}
	g.pulls(3, talker, 0.2)
	if w := g.status.Withdrawn; !g.writer.isEven() || w.Count != 2 || w.Until.Sub(w.Time.Time) != 10*time.Minute {
		t.Errorf("the second time: %+v, shares %v", w, g.writer.shares)
	}
}

// TestMemberShares: what a member gets is known of ready members whose shares are in force.
func TestMemberShares(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*groupRound)
		want   [4]guards.Share
	}{
		"steered":  {func(*groupRound) {}, [4]guards.Share{guards.ShareMore, guards.ShareEven, guards.ShareLess, guards.ShareLess}},
		"off":      {func(r *groupRound) { r.plan.Off = true }, [4]guards.Share{guards.ShareEven, guards.ShareEven, guards.ShareEven, guards.ShareEven}},
		"balanced": {func(r *groupRound) { r.plan.Action = planner.GroupBalance }, [4]guards.Share{guards.ShareEven, guards.ShareEven, guards.ShareEven, guards.ShareEven}},
		"on the way": {func(r *groupRound) {
			r.plan.Action, r.state.Settled, r.state.Message = planner.GroupBalance, false, "waits"
		}, [4]guards.Share{}},
		"left alone":       {func(r *groupRound) { r.plan.Action = planner.GroupLeave }, [4]guards.Share{}},
		"contested":        {func(r *groupRound) { r.contested = true }, [4]guards.Share{}},
		"refused":          {func(r *groupRound) { r.refusal = &routing.Refusal{} }, [4]guards.Share{}},
		"one is not ready": {func(r *groupRound) { r.seen.Plan.Members[3].Ready = false }, [4]guards.Share{guards.ShareMore, guards.ShareLess, guards.ShareLess, guards.ShareUnknown}},
	} {
		r := &groupRound{seen: triedGroup(traffic.Weighted), plan: planner.GroupPlan{Action: planner.GroupSteer}}
		r.state = routing.State{Settled: true, Shares: map[string]float64{"a": 0.6, "b": 0.25, "c": 0.15}}
		tc.change(r)
		var got [4]guards.Share
		for i := range r.seen.Plan.Members {
			got[i] = r.share(&r.seen.Plan.Members[i])
		}
		if got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
