package blocks

import (
	"testing"

	"github.com/joulevirt/joulevirt/internal/model"
)

// TestGuardedVMs: a block ends for the node, or for a quarter of its VMs.
func TestGuardedVMs(t *testing.T) {
	trip := func(pod string, second int) model.Trip {
		return model.Trip{PodUID: pod, Lever: model.LeverAffinity, Time: theirs(float64(second))}
	}
	b := &block{start: theirs(600), to: theirs(900)}
	for name, test := range map[string]struct {
		trips []model.Trip
		want  bool
	}{
		"none":                     {nil, false},
		"one of eight":             {[]model.Trip{trip("a", 700)}, false},
		"two of eight":             {[]model.Trip{trip("a", 700), trip("b", 600)}, true},
		"two, one in another time": {[]model.Trip{trip("a", 700), trip("b", 900), trip("c", 599)}, false},
		"the node":                 {[]model.Trip{trip("", 899)}, true},
		"another lever":            {[]model.Trip{{Lever: model.LeverSlice, Time: theirs(700)}}, false},
	} {
		r := &model.NodeRates{VMs: make([]model.VMRates, 8), Trips: test.trips}
		if got := isGuarded(r, model.LeverAffinity, b); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
