package blocks

import (
	"testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/model"
)

// TestGuardedVMs: a block ends for the node, or for a quarter of its VMs.
func TestGuardedVMs(t *testing.T) {
	trip := func(pod string, second int) model.Trip {
		return model.Trip{PodUID: pod, Lever: v1alpha1.LeverAffinity, Time: theirs(float64(second))}
	}
	// The node's clock is a minute ahead of the manager's.
	withdrawn := func(pod string, second, count int) model.Withdrawal {
		return model.Withdrawal{PodUID: pod, Lever: v1alpha1.LeverAffinity, Time: theirs(float64(second - 60)), Count: count}
	}
	b := &block{start: theirs(600), to: theirs(900)}
	for name, test := range map[string]struct {
		trips     []model.Trip
		withdrawn []model.Withdrawal
		want      bool
	}{
		"none":                                   {nil, nil, false},
		"one of eight":                           {[]model.Trip{trip("a", 700)}, nil, false},
		"two of eight":                           {[]model.Trip{trip("a", 700), trip("b", 600)}, nil, true},
		"two, one in another time":               {[]model.Trip{trip("a", 700), trip("b", 900), trip("c", 599)}, nil, false},
		"the node":                               {[]model.Trip{trip("", 899)}, nil, true},
		"another lever":                          {[]model.Trip{{Lever: v1alpha1.LeverSlice, Time: theirs(700)}}, nil, false},
		"one tripped, and another was withdrawn": {[]model.Trip{trip("a", 700)}, []model.Withdrawal{withdrawn("b", 899, 1)}, true},
		"one both":                               {[]model.Trip{trip("a", 700)}, []model.Withdrawal{withdrawn("a", 720, 1)}, false},
		"withdrawn from the node":                {nil, []model.Withdrawal{withdrawn("", 600, 2)}, true},
		"withdrawn after the block":              {nil, []model.Withdrawal{withdrawn("", 900, 1)}, false},
		"withdrawn where it did nothing":         {nil, []model.Withdrawal{withdrawn("", 700, 0)}, false},
	} {
		n := &node{}
		n.stream.Observe(stream.Sample{Rates: &model.NodeRates{Time: theirs(0), Totals: &model.Totals{}}, Received: theirs(-60)})
		sight := &Sight{Sample: stream.Sample{Rates: &model.NodeRates{VMs: make([]model.VMRates, 8), Trips: test.trips}}, Withdrawn: test.withdrawn}
		if got := isGuarded(n.undone(sight), 8, v1alpha1.LeverAffinity, b); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
