package group

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/slots"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// memoryWriter has shares in force at once.
type memoryWriter struct {
	shares map[string]float64
	writes int
}

func (w *memoryWriter) state() routing.State {
	return routing.State{Shares: maps.Clone(w.shares), Settled: true}
}

func (w *memoryWriter) Read(context.Context, routing.Group) (routing.State, error) {
	return w.state(), nil
}

func (w *memoryWriter) Write(_ context.Context, _ routing.Group, shares map[string]float64) (routing.State, error) {
	if !maps.Equal(w.shares, shares) {
		w.shares, w.writes = maps.Clone(shares), w.writes+1
	}
	return w.state(), nil
}

func (w *memoryWriter) Attach(context.Context, routing.Group, bool) error { return nil }

func (w *memoryWriter) Detach(ctx context.Context, group routing.Group) error {
	return w.Release(ctx, group)
}

func (w *memoryWriter) Release(context.Context, routing.Group) error {
	w.shares = map[string]float64{"a": 0.25, "b": 0.25, "c": 0.25, "d": 0.25}
	return nil
}

// isEven reports whether all members get the same.
func (w *memoryWriter) isEven() bool {
	return len(w.shares) == 4 && !slices.ContainsFunc(slices.Collect(maps.Values(w.shares)), func(s float64) bool { return s != 0.25 })
}

// reportedProofs say what they are given, and remember what they are told.
type reportedProofs struct {
	proof  *model.Proof
	sample slots.GroupSample
	asked  string
}

func (p *reportedProofs) Of(policy, group string) ([]model.Proof, bool) {
	p.asked = policy + " " + group
	if p.proof == nil {
		return nil, false
	}
	return []model.Proof{*p.proof}, true
}

func (p *reportedProofs) ObserveGroup(_, _ string, sample slots.GroupSample) { p.sample = sample }

func (p *reportedProofs) ForgetGroup(string) {}

// triedGroup is a group of four VMs with 90 Mbit/s each, on two metered nodes.
func triedGroup(granularity traffic.Granularity) *observe.Group {
	profile := controllertest.GroupProfileOf("web")
	seen := &observe.Group{Profile: &profile}
	seen.Routing.Profile.Namespace, seen.Routing.Profile.Name = "shop", "web"
	cost := func(rate units.BitsPerSecond) units.Watts {
		return 1 + units.Watts(3*math.Sqrt(float64(rate)/1e9))
	}
	seen.Plan = planner.Group{Curves: []traffic.Curve{nil, cost}, Granularity: granularity, MinActive: 2, SpareLargest: true}
	for _, name := range []string{"n1", "n2"} {
		policy := &model.Policy{Name: "of-" + name, Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{v1alpha1.LeverTrafficShare}}
		seen.Plan.Nodes = append(seen.Plan.Nodes, planner.GroupNode{Name: name, Policy: policy, NamespaceSelected: true, Metered: true})
		report := &v1alpha1.NodeReport{}
		report.Status.KernelVersion, report.Status.Topology.CPUModel = "6.12.1", "cpu"
		seen.Sources = append(seen.Sources, observe.GroupSource{Report: report, Choice: energy.Choice{Metered: true}})
	}
	for i, name := range []string{"a", "b", "c", "d"} {
		m := planner.GroupMember{Node: i % 2, Ready: true}
		m.Name, m.Domain, m.Rate, m.Limit, m.Curve = name, seen.Plan.Nodes[i%2].Name, 90e6, 1e9, 1
		seen.Plan.Members = append(seen.Plan.Members, m)
	}
	return seen
}

// TestGroupIsSwitched by the manager's clock, in time and at once; the status says the same
// all along, and proofs learn what was done.
func TestGroupIsSwitched(t *testing.T) {
	for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
		t.Run(fmt.Sprint(granularity), func(t *testing.T) {
			clock, writer := testingclock.NewFakePassiveClock(controllertest.StatusTime()), &memoryWriter{}
			_ = writer.Release(t.Context(), routing.Group{})
			schedule := model.NewSchedule(v1alpha1.LeverTrafficShare, "shop/web", model.TrialOneIn)
			slot, begun := schedule.SlotAt(clock.Now()), clock.Now()
			proofs := &reportedProofs{proof: &model.Proof{Lever: v1alpha1.LeverTrafficShare, Use: true, Schedule: schedule, Message: "a trial"}}
			r := &Reconciler{
				Clock: clock, Writers: routing.Writers{Service: writer, Route: writer}, Options: DefaultOptions(), Proofs: proofs,
			}
			memory, seen := &groupMemory{}, triedGroup(granularity)
			var said *v1alpha1.TrafficStatus
			reported, starts, switches, was := 0, 0, 0, false
			for clock.Now().Before(schedule.StartOf(slot + 5)) {
				now := clock.Now()
				round, err := r.round(t.Context(), seen, memory)
				if err != nil {
					t.Fatal(err)
				}
				r.note(round, memory)
				moment := schedule.At(now)
				if now.Equal(schedule.StartOf(moment.Slot)) {
					starts++
				}
				if moment.On != was {
					switches, was = switches+1, moment.On
				}
				if writer.isEven() == moment.On {
					t.Fatalf("after %v shares are %v, want the lever on: %t", now.Sub(begun), writer.shares, moment.On)
				}
				done := proofs.sample.Done
				if done == nil || done.On != moment.On || done.Seed != schedule.Seed || done.Since.After(now) ||
					now.Sub(begun) > schedule.Slot && done.Since.After(schedule.StartOf(moment.Slot)) {
					t.Errorf("after %v, in slot %d, reported was %+v", now.Sub(begun), moment.Slot-slot, done)
				}
				status := round.status()
				if !sameWords(said, status) {
					said, reported = status, reported+1
				}
				clock.SetTime(now.Add(r.again(round, memory)))
			}
			// Shares that are kept are explained otherwise than at first, once.
			if starts != 5 || reported > 2 || writer.writes != switches {
				t.Errorf("%d slots began in time, want 5; the status was reported %d times, want 2 at most; shares were written %d times, want %d", starts, reported, writer.writes, switches)
			}
			if said.State != v1alpha1.LeverInForce || said.ActiveMembers != 2 || said.Revision == "" {
				t.Errorf("%+v", said)
			}
			if diff := cmp.Diff([]string{"n1", "n2"}, proofs.sample.Nodes); diff != "" || proofs.asked != "of-n1 shop/web" {
				t.Errorf("asked %s, nodes (-want +got):\n%s", proofs.asked, diff)
			}
		})
	}
}

// TestGroupAsAUnit: what trials learn of a group.
func TestGroupAsAUnit(t *testing.T) {
	for name, tc := range map[string]struct {
		change                             func(*groupRound)
		metered, candidate, approved, none bool
	}{
		"ready":              {func(*groupRound) {}, true, true, false, false},
		"one without meter":  {func(r *groupRound) { r.seen.Sources[1].Choice = energy.Choice{} }, false, true, false, false},
		"nothing to save":    {func(r *groupRound) { r.saving = nil }, true, false, false, false},
		"a window is closed": {func(r *groupRound) { r.plan.Held = true }, true, false, false, false},
		"forbidden":          {func(r *groupRound) { r.plan.Action = planner.GroupRelease }, true, false, false, false},
		"refused":            {func(r *groupRound) { r.refusal = &routing.Refusal{} }, true, false, false, false},
		"no trials asked for": {func(r *groupRound) {
			r.seen.Plan.Nodes[0].Untried, r.seen.Plan.Nodes[1].Untried = true, true
		}, true, true, true, false},
		"by one of two policies": {func(r *groupRound) { r.seen.Plan.Nodes[1].Untried = true }, true, true, false, false},
		"recommended":            {func(r *groupRound) { r.plan.Recommend, r.plan.Approved = true, false }, true, false, true, false},
		"approved":               {func(r *groupRound) { r.plan.Recommend = true }, true, true, true, false},
		"a late agent":           {func(r *groupRound) { r.seen.Sources[1].Choice = energy.Choice{Unknown: true} }, false, false, false, true},
	} {
		round := &groupRound{seen: triedGroup(traffic.Weighted), saving: &power.Estimate{Watts: 3}}
		round.plan = planner.GroupPlan{Action: planner.GroupSteer, Approved: true}
		policy, before := round.tried(nil)
		view := &View{policy: policy, unit: before}
		tc.change(round)
		policy, unit := round.tried(nil)
		if tc.none {
			again, kept := round.tried(view)
			if policy != "" || again != "of-n1" || len(kept.Candidates) > 0 || !kept.Metered {
				t.Errorf("%s: of policy %q, then %q: %+v", name, policy, again, kept)
			}
			continue
		}
		if policy != "of-n1" || unit.Name != "shop/web" || unit.Metered != tc.metered || len(unit.Candidates) > 0 != tc.candidate ||
			unit.Approved != tc.approved || len(unit.Nodes) != 2 {
			t.Errorf("%s: of policy %q: %+v", name, policy, unit)
		}
	}
}
