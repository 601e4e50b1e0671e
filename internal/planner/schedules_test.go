package planner

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
)

func TestPlansKeepSchedules(t *testing.T) {
	schedule := func(lever model.Lever) model.Schedule {
		return model.Schedule{Lever: lever, Seed: 7, Start: now(), Block: time.Hour, WashOut: time.Minute, On: []bool{true, false}}
	}
	affinity, slice, share := schedule(model.LeverAffinity), schedule(model.LeverSlice), schedule(model.LeverTrafficShare)
	both := func(n *model.Node) { n.Policy.Levers = []model.Lever{model.LeverAffinity, model.LeverSlice} }
	for name, tc := range map[string]struct {
		was    []model.Schedule
		change func(*model.Node)
		want   []model.Schedule
	}{
		"none":                         {nil, nil, nil},
		"both allowed":                 {[]model.Schedule{affinity, slice}, both, []model.Schedule{affinity, slice}},
		"one is not allowed any more":  {[]model.Schedule{affinity, slice}, nil, []model.Schedule{affinity}},
		"none is":                      {[]model.Schedule{slice}, nil, nil},
		"no lever of nodes":            {[]model.Schedule{share}, func(n *model.Node) { n.Policy.Levers = append(n.Policy.Levers, model.LeverTrafficShare) }, nil},
		"another policy":               {[]model.Schedule{affinity}, func(n *model.Node) { n.Policy.Name = "q" }, nil},
		"while it is frozen":           {[]model.Schedule{affinity}, func(n *model.Node) { n.Frozen = true }, []model.Schedule{affinity}},
		"while the agent is not heard": {[]model.Schedule{affinity}, func(n *model.Node) { n.Rates = nil }, []model.Schedule{affinity}},
		"while changes wait for others": {[]model.Schedule{affinity}, func(n *model.Node) {
			n.NodesBusy, n.VMs, n.Rates.VMs = true, newNode("a", "b").VMs, newNode("a", "b").Rates.VMs
		}, []model.Schedule{affinity}},
		"while the meter is not known":    {[]model.Schedule{affinity}, unknownMeter, []model.Schedule{affinity}},
		"without a meter nothing is on":   {[]model.Schedule{affinity}, func(n *model.Node) { n.Metered = false }, nil},
		"when nothing but watching is on": {[]model.Schedule{affinity}, func(n *model.Node) { n.Policy.Mode = model.ModeObserve }, nil},
	} {
		node := newNode("a")
		current := Plan(node, now())
		current.Schedules = tc.was
		plan := Plan(with(node, &current, tc.change), now())
		if diff := cmp.Diff(tc.want, plan.Schedules); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if plan.Revision != model.Revision(plan.VMs) {
			t.Errorf("%s: revision %s is not that of the VMs", name, plan.Revision)
		}
	}
}
