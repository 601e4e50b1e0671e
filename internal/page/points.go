package page

import (
	"math"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/model"
)

// pointsOf are what the nodes of each policy draw now: what is measured by the policies'
// statuses, which all managers read alike, and what is modelled by what the leader hears.
// Without a leader the statuses are of an earlier time, and nothing is known.
func pointsOf(f *facts.Facts, live Live, led bool) map[string]point {
	governs := make(map[string]string, len(f.Plans))
	for i := range f.Plans {
		governs[f.Plans[i].Name] = f.Plans[i].Spec.Policy
	}
	modelled := map[string]float64{}
	live.EachPower(func(node string, power model.Power, metered bool) {
		if !metered && power.Source == model.SourceModel {
			modelled[governs[node]] += float64(power.Watts)
		}
	})
	out := map[string]point{}
	for i := range f.Policies {
		policy := &f.Policies[i]
		nothing := float32(math.NaN())
		p := point{at: f.Now, measured: nothing, modelled: nothing, saved: nothing, low: nothing, high: nothing}
		if watts, some := modelled[policy.Name]; some {
			p.modelled = float32(watts)
		}
		if led && policy.Status.Watts != nil {
			p.measured = float32(*policy.Status.Watts)
			p.saved, p.low, p.high = 0, 0, 0 // what is measured has no more than is proven
		}
		if s := proven(policy); led && s != nil {
			p.saved, p.low, p.high = float32(s.Watts), float32(s.Low), float32(s.High)
		}
		out[policy.Name] = p
	}
	return out
}

// saving is a power with the ends of its interval, in watts.
type saving struct {
	Watts float64 `json:"watts"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// proven is what all levers of a policy together were measured to save of what its nodes draw
// now. The ends of the levers' intervals are added, which is wider than need be. Nil: none.
func proven(policy *v1alpha1.EnergyPolicy) *saving {
	var sum *saving
	for _, s := range policy.Status.Proven {
		if s.Modelled {
			continue
		}
		if sum == nil {
			sum = &saving{}
		}
		sum.Watts += float64(s.Milliwatts) / 1000
		sum.Low += float64(s.LowMilliwatts) / 1000
		sum.High += float64(s.HighMilliwatts) / 1000
	}
	return sum
}
