package learned

import (
	"maps"
	"sync"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/power/whatif"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Sample is what is known of a node at one moment.
type Sample struct {
	// Sample of the node's rates and power.
	stream.Sample
	// Processor that the node has now. The zero value: it is not known now, as
	// when the node's report was deleted by hand.
	Processor Processor
	// Topology is what the node's prior is made of: it is asked for when the model
	// of a processor starts. An error means that it cannot be read now.
	Topology func() (model.Topology, error)
}

// Energy is what a node drew by one source, counted since the manager leads.
type Energy struct {
	Source v1alpha1.PowerSource
	Joules units.Joules
}

// Priors are what is known before anything is learned. Package prior has some.
type Priors interface {
	Node(model.Topology) power.NodePrior
	Curve(curve.Key) curve.Prior
	// AffinityEffect and SeparationEffect are what binding threads saves.
	AffinityEffect() prior.Effect
	SeparationEffect() prior.Effect
}

// Models hold what is learned of each node. They are safe for concurrent use.
type Models struct {
	priors Priors

	mu    sync.Mutex
	nodes map[string]*node
}

type node struct {
	stream stream.Stream
	// pulled are the rates that were learned from last.
	pulled *model.NodeRates
	// energy by source, in the order in which sources came.
	energy []Energy
	// learned is what holds now, and before what held when another part of the
	// node was measured: while a server is out, agents measure for it, and what was
	// learned in days must outlive that. Both are of one processor: with another
	// they start anew.
	learned, before knowledge
	of              Processor
	// reported are the costs that were last reported.
	reported costs
}

// knowledge is what was learned from meters of one scope.
type knowledge struct {
	// host has no model when nothing came yet.
	host whatif.Host
	// scope is anyScope while nothing was metered.
	scope v1alpha1.PowerScope
}

func (k knowledge) isOf(scope v1alpha1.PowerScope) bool {
	return k.host.Model != nil && (k.scope == scope || k.scope == anyScope || scope == anyScope)
}

// Processor tells processors apart.
type Processor struct {
	Name  string
	Cores int
}

// New returns Models that know nothing but priors.
func New(priors Priors) *Models {
	return &Models{priors: priors, nodes: map[string]*node{}}
}

// Observe records what is known of a node now. It is called at least as often as rates and
// readings come; what was observed before counts once.
func (m *Models) Observe(name string, sample Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[name]
	if n == nil {
		n = &node{}
		m.nodes[name] = n
	}
	step := n.stream.Observe(sample.Sample)
	if sample.Power != nil {
		n.addJoules(sample.Power.Source, 0) // known, also while nothing is counted yet
	}
	m.learnCosts(n, sample)
	for i := range step.Intervals {
		interval := &step.Intervals[i]
		n.addJoules(interval.Source, interval.Joules)
		m.learnPower(n, sample, interval)
	}
}

// learnCosts learns from new rates what the node's VMs cost.
func (m *Models) learnCosts(n *node, sample Sample) {
	before := n.pulled
	if sample.Rates == nil || before != nil && sample.Rates.Time.Equal(before.Time) {
		return
	}
	n.pulled = sample.Rates
	if m.fit(n, sample, anyScope) {
		seconds, curves := standsFor(before, sample.Rates), n.learned.host.Curves
		for i := range sample.Rates.VMs {
			vm := &sample.Rates.VMs[i]
			if o, tells := curve.OfVM(vm, vm.HeldFor()); tells {
				curves.Observe(o, seconds)
			}
		}
		curves.EndRound()
	}
}

// learnPower learns from an interval what the node's power is made of. Modelled joules teach
// nothing: they are a model's.
func (m *Models) learnPower(n *node, sample Sample, interval *stream.Interval) {
	if !interval.Source.Measures() || !interval.IsWhole() {
		return
	}
	load, seconds, ok := power.LoadBetween(&interval.Begin, &interval.End)
	if ok && m.fit(n, sample, interval.Scope) {
		n.learned.host.Model.Update(load, units.Watts(float64(interval.Joules)/interval.Seconds), seconds)
	}
}

// standsFor returns the seconds that pulled rates stand for: those since the pull
// before, but no more than stream.LongestGap. Of the time before a first pull, or one
// across a restart of the agent, they tell what they are means over.
func standsFor(before, now *model.NodeRates) float64 {
	if before == nil || before.Totals == nil || now.Totals == nil || !before.Totals.Since.Equal(now.Totals.Since) {
		return now.IntervalSeconds
	}
	return min(max(now.IntervalSeconds, now.Totals.Seconds-before.Totals.Seconds), stream.LongestGap.Seconds())
}

func (n *node) addJoules(source v1alpha1.PowerSource, joules units.Joules) {
	for i := range n.energy {
		if n.energy[i].Source == source {
			n.energy[i].Joules += joules
			return
		}
	}
	n.energy = append(n.energy, Energy{Source: source, Joules: joules})
}

// anyScope is that of what tells nothing of power.
const anyScope v1alpha1.PowerScope = ""

// fit makes what is learned that of the node's processor and of a scope. It
// returns false when that cannot be.
func (m *Models) fit(n *node, sample Sample, scope v1alpha1.PowerScope) bool {
	known := sample.Processor != (Processor{})
	if known && n.of != sample.Processor {
		n.of, n.learned, n.before = sample.Processor, knowledge{}, knowledge{}
	}
	if !n.learned.isOf(scope) {
		n.learned, n.before = n.before, n.learned
	}
	if !n.learned.isOf(scope) {
		if !known {
			return false // nothing to make a prior of
		}
		topology, err := sample.Topology()
		if err != nil {
			return false // who plans says so
		}
		n.learned = knowledge{host: whatif.Host{Model: power.NewNodeModel(m.priors.Node(topology)), Curves: curve.New(m.priors.Curve)}}
	}
	if scope != anyScope {
		n.learned.scope = scope
	}
	return true
}

// Retain forgets all nodes but those given.
func (m *Models) Retain(names map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.nodes, func(name string, _ *node) bool { return !names[name] })
}

// Energy returns what a node drew, by source. None ever falls while the node is
// known.
func (m *Models) Energy(name string) []Energy {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.nodes[name]; n != nil {
		return append([]Energy(nil), n.energy...)
	}
	return nil
}

// Accuracy returns how well the model of a node predicted what its meter then
// read, and false while nothing was metered on the node.
func (m *Models) Accuracy(name string) (accuracy power.Accuracy, known bool) {
	known = m.WhatIf(name, func(host whatif.Host) { accuracy = host.Model.Accuracy() })
	return accuracy, known
}

// WhatIf lets somebody ask what changes would save on a node. It returns false,
// and asks nothing, while nothing was metered on the node. What is given must not
// be kept.
func (m *Models) WhatIf(name string, what func(whatif.Host)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[name]
	if n == nil || n.learned.host.Model == nil || n.learned.scope == anyScope {
		return false
	}
	what(n.learned.host)
	return true
}

// Basis is WhatIf also while nothing was metered on the node: what is saved is
// then by the priors of its power, with what its VMs' traffic taught of their
// costs. It returns false, and asks nothing, while nothing at all was learned of
// the node.
func (m *Models) Basis(name string, what func(host whatif.Host)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[name]
	if n == nil || n.learned.host.Model == nil {
		return false
	}
	what(n.learned.host)
	return true
}
