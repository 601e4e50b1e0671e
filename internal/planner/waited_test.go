package planner

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// What the agent's guard undid because a VM waited is planned otherwise, for as long as the
// agent remembers it.
func TestPlansLearnFromTrips(t *testing.T) {
	trip := model.Trip{PodUID: "a", Lever: model.LeverAffinity, Symptom: model.SymptomRunDelay, Time: now(), Until: now().Add(5 * time.Minute), Count: 1}
	with := func(change func(*model.Trip)) []model.Trip {
		other := trip
		change(&other)
		return []model.Trip{other}
	}
	for name, tc := range map[string]struct {
		trips []model.Trip
		want  string
	}{
		"none":             {nil, "Planned apply=true a:Pinned/2"},
		"it waited":        {[]model.Trip{trip}, "NothingToDo apply=true a:WouldWait/0"},
		"another VM did":   {with(func(t *model.Trip) { t.PodUID = "b" }), "Planned apply=true a:Pinned/2"},
		"the node tripped": {with(func(t *model.Trip) { t.PodUID = "" }), "Planned apply=true a:Pinned/2"},
		"packets were lost": {with(func(t *model.Trip) {
			t.Lever, t.Symptom = model.LeverBuffering, model.SymptomRingOverrun
		}), "Planned apply=true a:Pinned/2"},
	} {
		// One core has a single CPU, which two vCPUs can only share.
		node := newNode("a")
		node.Topology.Cores = []model.Core{{CPUs: units.NewCPUSet(0)}}
		for i := range node.Rates.VMs[0].VCPUs {
			node.Rates.VMs[0].VCPUs[i].RunCores = 0.1
		}
		node.Rates.VMs[0].AllowedCPUs = units.NewCPUSet(0)
		before := Plan(node, now())
		node.Rates.Trips = tc.trips
		for _, current := range []*model.Plan{nil, &before} {
			node.Current = current
			if got := outcome(Plan(node, now())); got != tc.want {
				t.Errorf("%s, in force %t: %s, want %s", name, current != nil, got, tc.want)
			}
		}
	}
}
