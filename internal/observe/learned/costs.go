package learned

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/whatif"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// costStep is the ratio of two neighbouring costs that are reported.
	costStep = 1.25
	// costHold is by how many steps a cost must be off to be reported anew. A figure is half
	// a step off at most when it is reported: one that wavers by the other half, 12 %, is
	// not reported now as one step, now as its neighbour.
	costHold = 1
)

// costs are what was last reported of a node.
type costs struct{ perBusyCore, perWakeUp, perAwakeCore float64 }

// Costs returns what a node's dynamic power is made of: as learned, or as the priors
// say while nothing was metered on the node. What binding threads saves is a prior
// always.
//
// Who plans weighs plans by them. What is learned moves a little with each reading,
// so that two plans of equal worth would take turns: costs are reported in steps of 25 %,
// and stay while what is learned is within one of them.
func (m *Models) Costs(name string, topology model.Topology) model.PowerCosts {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[name]
	coefficients, reported := m.priors.Node(topology).Mean, costs{}
	if n != nil {
		reported = n.reported
		if n.learned.host.Model != nil && n.learned.scope != anyScope {
			coefficients = n.learned.host.Model.Coefficients()
		}
	}
	reported = reported.follow(coefficients)
	if n != nil {
		n.reported = reported
	}
	return model.PowerCosts{
		PerBusyCore: units.Watts(reported.perBusyCore), PerWakeUp: units.Joules(reported.perWakeUp), PerAwakeCore: units.Watts(reported.perAwakeCore),
		Pinned: m.priors.AffinityEffect().Share, Separated: m.priors.SeparationEffect().Share,
	}
}

func (c costs) follow(now power.Coefficients) costs {
	return costs{
		perBusyCore:  step(c.perBusyCore, float64(now.PerBusyCore)),
		perWakeUp:    step(c.perWakeUp, float64(now.PerWakeUp)),
		perAwakeCore: step(c.perAwakeCore, float64(now.PerAwakeCore)),
	}
}

// step returns the step next to a cost, or the one that was reported while it is near
// enough. What is not above 0 has no steps.
func step(reported, now float64) float64 {
	if !(now > 0) {
		return 0
	}
	at := math.Log(now) / math.Log(costStep)
	if reported > 0 && math.Abs(at-math.Log(reported)/math.Log(costStep)) <= costHold {
		return reported
	}
	return math.Pow(costStep, math.Round(at))
}

// Coefficients returns what a node's power is made of, and whether that was learned from a
// meter: else it is what the priors say.
func (m *Models) Coefficients(name string, topology model.Topology) (c power.Coefficients, learned bool) {
	if m.WhatIf(name, func(host whatif.Host) { c = host.Model.Coefficients() }) {
		return c, true
	}
	return m.priors.Node(topology).Mean, false
}
