package planner

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
)

// What is in force counts from when the shares came to be as the schedule has them, and goes
// on while they stay so.
func TestGroupPlanDone(t *testing.T) {
	schedule := &model.Schedule{
		Lever: model.LeverTrafficShare, Seed: 7, Start: noon(), Block: 20 * time.Minute, WashOut: 5 * time.Minute, On: []bool{true, false},
	}
	later := noon().Add(7 * time.Minute)
	on := &model.Switch{Lever: model.LeverTrafficShare, Seed: 7, Start: noon(), Block: 0, On: true, Since: noon()}
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
		"no schedule":              {GroupPlan{}, on, true, nil},
		"not there yet":            {GroupPlan{Schedule: schedule}, nil, false, nil},
		"there now":                {GroupPlan{Schedule: schedule}, nil, true, since(*on, later)},
		"there, and moves on":      {GroupPlan{Schedule: schedule}, on, false, on},
		"off, and was on":          {GroupPlan{Schedule: schedule, Off: true}, on, false, nil},
		"of another draw":          {GroupPlan{Schedule: schedule}, &model.Switch{Seed: 8, Start: noon(), On: true}, false, nil},
		"that cannot be followed":  {GroupPlan{Schedule: &model.Schedule{}}, on, true, nil},
		"of one that begins later": {GroupPlan{Schedule: schedule}, &model.Switch{Seed: 7, Start: later, On: true}, true, since(*on, later)},
	} {
		if diff := cmp.Diff(tc.want, tc.plan.Done(tc.was, tc.settled, later)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A group that proofs know, but not with the lever, waits for them.
func TestProofsStandForGroups(t *testing.T) {
	affinity, shares := model.Proof{Lever: model.LeverAffinity}, model.Proof{Lever: model.LeverTrafficShare, Use: true}
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
