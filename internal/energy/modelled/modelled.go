// Package modelled gives the power of a node that nothing measures: what a
// model says of the node's load. The model starts from priors, and learns from
// the node's meter for as long as there is one. It ranks and predicts; it never
// proves a saving, which its source, Model, tells everybody.
package modelled

import (
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
)

// Model is the model of one node. It is not for concurrent use.
type Model struct {
	node  *power.NodeModel
	scope v1alpha1.PowerScope
}

// New returns a Model that knows the prior only. scope is the part of the node
// that its figures cover.
func New(prior power.NodePrior, scope v1alpha1.PowerScope) *Model {
	return &Model{node: power.NewNodeModel(prior), scope: scope}
}

// Scope of the figures.
func (m *Model) Scope() v1alpha1.PowerScope { return m.scope }

// Learn takes in what a meter said while the node had that load on average.
// Readings of another scope are not for this model, and are left out.
func (m *Model) Learn(load power.Load, reading model.Power) {
	if reading.Source.Measures() && reading.Scope == m.scope {
		m.node.Update(load, reading.Watts, reading.IntervalSeconds)
	}
}

// Power is what the model predicts at a load, as a mean over the seconds before at.
func (m *Model) Power(load power.Load, at time.Time, seconds float64) model.Power {
	return model.Power{
		Source: v1alpha1.PowerModel, Scope: m.scope, Watts: m.node.Predict(load).Watts,
		Time: at, IntervalSeconds: seconds,
	}
}

// Coefficients are what the model thinks that the node's load costs.
func (m *Model) Coefficients() power.Coefficients { return m.node.Coefficients() }

// Accuracy is how well the model predicted what the meter then read.
func (m *Model) Accuracy() power.Accuracy { return m.node.Accuracy() }
