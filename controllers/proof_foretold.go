package controllers

import (
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
)

// foretold is what the levers of a node without a meter save by the models when they do all
// that they can, if the policy lets them act on those. Of one that did not come to all VMs yet
// that is not known.
func (s *nodeSight) foretold(partly []model.Lever) map[model.Lever]power.Estimate {
	if s.choice.Metered || s.facts == nil || s.facts.policy.Name != s.policy || !s.facts.policy.AllowModelled {
		return nil
	}
	out := map[model.Lever]power.Estimate{}
	for _, p := range s.potentials {
		if p.StdErr > 0 && !slices.Contains(partly, p.Lever) {
			out[p.Lever] = power.Estimate{Watts: p.Watts, StdErr: p.StdErr}
		}
	}
	return out
}
