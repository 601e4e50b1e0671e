package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
)

// TestForetold: models tell only of nodes without a meter, where the policy lets levers act by
// them, and of levers that came to all VMs.
func TestForetold(t *testing.T) {
	all := map[model.Lever]power.Estimate{
		model.LeverAffinity: {Watts: 20, StdErr: 6}, model.LeverBuffering: {Watts: 4, StdErr: 2},
	}
	for name, tc := range map[string]struct {
		change func(*nodeSight)
		partly []model.Lever
		want   map[model.Lever]power.Estimate
	}{
		"without a meter":      {func(*nodeSight) {}, nil, all},
		"metered":              {func(s *nodeSight) { s.choice.Metered = true }, nil, nil},
		"not allowed":          {func(s *nodeSight) { s.facts.policy.AllowModelled = false }, nil, nil},
		"planned by another":   {func(s *nodeSight) { s.facts.policy.Name = "q" }, nil, nil},
		"not planned yet":      {func(s *nodeSight) { s.facts = nil }, nil, nil},
		"nothing foretold yet": {func(s *nodeSight) { s.potentials = nil }, nil, map[model.Lever]power.Estimate{}},
		"on some VMs only": {func(*nodeSight) {}, []model.Lever{model.LeverAffinity}, map[model.Lever]power.Estimate{
			model.LeverBuffering: {Watts: 4, StdErr: 2},
		}},
	} {
		s := &nodeSight{
			governedNode: governedNode{policy: "p"}, facts: &nodeFacts{policy: model.Policy{Name: "p", AllowModelled: true}},
			potentials: []model.Potential{
				{Lever: model.LeverAffinity, Watts: 20, StdErr: 6, VMs: 3}, {Lever: model.LeverBuffering, Watts: 4, StdErr: 2, VMs: 1},
				{Lever: model.LeverShaping, VMs: 2},
			},
		}
		tc.change(s)
		if diff := cmp.Diff(tc.want, s.foretold(tc.partly)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
