package page

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/explain"
	"github.com/joulevirt/joulevirt/internal/cli/figures"
	"github.com/joulevirt/joulevirt/internal/cli/savings"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// defaultConfidencePercent is the API's own, for policies stored before it.
const defaultConfidencePercent = 95

// meter tells of a node's energy what the leader knows.
func (p *Page) meter(_ context.Context, policy *v1alpha1.EnergyPolicy, node string, _ types.NamespacedName) (explain.Energy, []show.Gap) {
	if !p.Leads() {
		return explain.Energy{Unknown: "this manager stands by. The one that leads knows, which kubectl joulevirt page opens"}, nil
	}
	confidence := float64(cmp.Or(policy.Spec.Verification.ConfidencePercent, defaultConfidencePercent)) / 100
	now := &figures.Detail{Proven: wattsOf(p.Live.Proven(policy.Name, node)), Potential: wattsOf(p.Live.Potential(node, confidence))}
	p.Live.EachPower(func(name string, power model.Power, _ bool) {
		if name == node {
			now.Node = figures.Node{
				Watts: ptr.To(float64(power.Watts)), Source: string(power.Source), AgeSeconds: ptr.To(energy.Age(power, p.Clock.Now()).Seconds()),
			}
		}
	})
	return explain.Energy{Now: now, Booked: savings.OfUnits(p.Live.Booked(policy.Name, node, confidence))}, nil
}

// wattsOf levers, in the order of their names.
func wattsOf(levers map[model.Lever]ledger.Range) []figures.LeverWatts {
	var out []figures.LeverWatts
	for _, lever := range slices.Sorted(maps.Keys(levers)) {
		of := levers[lever]
		out = append(out, figures.LeverWatts{Lever: v1alpha1.Lever(lever), Watts: of.Value, LowWatts: &of.Low, HighWatts: &of.High})
	}
	return out
}
