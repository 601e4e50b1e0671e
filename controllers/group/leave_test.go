package group

import (
	"context"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// releases counts what is given back.
type releases struct{ count int }

func (r *releases) Read(context.Context, routing.Group) (routing.State, error) {
	return routing.State{}, nil
}

func (r *releases) Write(context.Context, routing.Group, map[string]float64) (routing.State, error) {
	return routing.State{}, nil
}

func (r *releases) Attach(context.Context, routing.Group, bool) error { return nil }

func (r *releases) Detach(ctx context.Context, group routing.Group) error {
	return r.Release(ctx, group)
}

func (r *releases) Release(context.Context, routing.Group) error { r.count++; return nil }

// leftRound is a refused round of a group with a and b active, c and d on standby,
// each ready or not.
func leftRound(ready ...bool) *groupRound {
	profile := controllertest.GroupProfileOf("web")
	round := &groupRound{seen: &observe.Group{Profile: &profile}, refusal: &routing.Refusal{Reason: v1alpha1.ReasonServiceUnsupported}}
	round.seen.Plan.Granularity = traffic.Equal
	round.seen.Routing.Profile.Name = "web"
	round.seen.Routing.Target.MinActive = 2
	for i, name := range []string{"a", "b", "c", "d"} {
		pod := routing.Pod{Name: name, Ready: ready[i], Serving: v1alpha1.ServingActive}
		if i >= 2 {
			pod.Serving, pod.Profile = v1alpha1.ServingStandby, "web"
		}
		round.seen.Routing.Members = append(round.seen.Routing.Members, routing.Member{Name: name, Pods: []routing.Pod{pod}})
	}
	return round
}

// A Service that cannot be steered any more keeps who serves, until one fails or
// it lasts.
func TestRefusedServiceNeverUndercutsMinActive(t *testing.T) {
	for name, tc := range map[string]struct {
		round  *groupRound
		after  time.Duration
		gives  int
		change func(*groupRound)
	}{
		"all is well":              {leftRound(true, true, true, true), 0, 0, nil},
		"it lasts":                 {leftRound(true, true, true, true), endurance, 1, nil},
		"one fails":                {leftRound(true, false, true, true), 0, 1, nil},
		"one of standby fails":     {leftRound(true, true, false, true), 0, 0, nil},
		"nobody else is ready":     {leftRound(true, false, false, false), 0, 0, nil},
		"all active fail":          {leftRound(false, false, true, false), 0, 1, nil},
		"contested, one fails":     {leftRound(true, false, true, true), 0, 1, func(r *groupRound) { r.refusal, r.contested = nil, true }},
		"contested for long":       {leftRound(true, true, true, true), endurance, 0, func(r *groupRound) { r.refusal, r.contested = nil, true }},
		"a route's are not needed": {leftRound(true, false, true, true), endurance, 0, func(r *groupRound) { r.seen.Plan.Granularity = traffic.Weighted }},
		"a route's with too many": {leftRound(true, true, true, true), endurance, 1, func(r *groupRound) {
			r.seen.Plan.Granularity, r.refusal.Reason = traffic.Weighted, v1alpha1.ReasonTooManyMembers
		}},
		"a route's that just became too many": {leftRound(true, true, true, true), 0, 0, func(r *groupRound) {
			r.seen.Plan.Granularity, r.refusal.Reason = traffic.Weighted, v1alpha1.ReasonTooManyMembers
		}},
	} {
		t.Run(name, func(t *testing.T) {
			clock, writer := testingclock.NewFakePassiveClock(controllertest.StatusTime()), &releases{}
			r := &Reconciler{Clock: clock, Writers: routing.Writers{Service: writer, Route: writer}, Options: DefaultOptions()}
			if tc.change != nil {
				tc.change(tc.round)
			}
			memory := &groupMemory{mayHold: marked(&tc.round.seen.Routing)}
			memory.noteRefusal(tc.round, clock.Now())
			clock.SetTime(clock.Now().Add(tc.after))
			memory.noteRefusal(tc.round, clock.Now())
			if err := r.leave(t.Context(), tc.round, memory); err != nil || writer.count != tc.gives {
				t.Errorf("given back %d times, want %d: %v", writer.count, tc.gives, err)
			}
		})
	}
}

// What was changed back once stands in each look until it is written anew, and
// counts once.
func TestReversionsAreCountedWhenWritten(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(controllertest.StatusTime())
	r := &Reconciler{Clock: clock}
	round := groupRoundOf()
	generation := round.seen.Profile.Generation
	memory := &groupMemory{}
	memory.countReversion(true, generation, clock.Now()) // from before the profile was so
	round.state.Reverted = true
	for range 5 {
		if r.isContested(round, memory) {
			t.Fatal("contested, though nothing was written since the first change")
		}
	}
	memory.countReversion(true, generation, clock.Now())
	round.state.Reverted = false
	if r.isContested(round, memory) {
		t.Error("contested after one change")
	}
	round.state.Reverted = true
	if !r.isContested(round, memory) {
		t.Error("not contested after the second change")
	}
	memory.contestedFor = 0
	clock.SetTime(clock.Now().Add(patience + time.Second))
	if r.isContested(round, memory) {
		t.Error("contested, though the first change was long ago")
	}
}

// What was contested stays so until the profile changes, whatever becomes of the group meanwhile, and
// with another manager.
func TestContestedStays(t *testing.T) {
	r := &Reconciler{Clock: testingclock.NewFakePassiveClock(controllertest.StatusTime())}
	round, memory := groupRoundOf(), &groupMemory{}
	profile := round.seen.Profile
	profile.Status.Traffic = &v1alpha1.TrafficStatus{ObservedGeneration: profile.Generation, Reason: v1alpha1.ReasonContested, Message: "somebody did it"}
	if !r.isContested(round, memory) || round.contestedMessage != "somebody did it" {
		t.Errorf("with another manager: %t, %s", round.contested, round.contestedMessage)
	}
	profile.Status.Traffic.Reason = v1alpha1.ReasonNoPolicy
	if !r.isContested(round, memory) {
		t.Error("not contested any more after a time without a policy")
	}
	profile.Generation++
	if r.isContested(round, memory) {
		t.Error("contested though the profile changed")
	}
}
