// Package modelled gives the power of a node that nothing measures: what a
// model says of the node's load. The model starts from priors, and learns from
// the node's meter for as long as there is one. It ranks and predicts; it never
// proves a saving, which its source, Model, tells everybody.
package modelled

import (
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Model is the model of one node. It is not for concurrent use.
type Model struct {
	node  *power.NodeModel
	scope model.PowerScope
}

// New returns a Model that knows the prior only. scope is the part of the node
// that its figures cover.
func New(prior power.NodePrior, scope model.PowerScope) *Model {
	return &Model{node: power.NewNodeModel(prior), scope: scope}
}

// Scope of the figures.
func (m *Model) Scope() model.PowerScope { return m.scope }

// Learn takes in what a meter said while the node had that load on average.
// Readings of another scope are not for this model, and are left out.
func (m *Model) Learn(load power.Load, reading model.Power) {
	if reading.Source.Measures() && reading.Scope == m.scope {
		m.node.Update(load, reading.Watts, reading.IntervalSeconds)
	}
}

// Power is what the model says of a load, as a mean over the seconds before at.
func (m *Model) Power(load power.Load, at time.Time, seconds float64) (model.Power, *energy.Refusal) {
	said := m.node.Predict(load)
	if !usable(said.Watts) || !usable(said.StdErr) {
		return model.Power{}, energy.Refuse(energy.ReasonNotFinite, "the model says %v W (standard error %v W) for %.1f busy cores: restart the agent",
			float64(said.Watts), float64(said.StdErr), float64(load.BusyCores))
	}
	return model.Power{
		Source: model.SourceModel, Scope: m.scope, Watts: said.Watts, StdErrWatts: said.StdErr,
		Time: at, IntervalSeconds: seconds,
	}, nil
}

func usable(w units.Watts) bool { return w >= 0 && !math.IsInf(float64(w), 0) }

// Coefficients are what the model thinks that the node's load costs.
func (m *Model) Coefficients() power.Coefficients { return m.node.Coefficients() }

// Accuracy is how well the model foretold what the meter then said.
func (m *Model) Accuracy() power.Accuracy { return m.node.Accuracy() }
