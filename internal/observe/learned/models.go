package learned

import (
	"maps"
	"sync"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/timeline"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/learn"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/power/whatif"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Sight is what is known of a node at one moment.
type Sight struct {
	// Processor that the node has now. The zero value: it is not known now, as
	// when the node's report was deleted by hand.
	Processor Processor
	// Topology is what the node's prior is made of: it is asked for when the model
	// of a processor starts. An error means that it cannot be read now.
	Topology func() (model.Topology, error)
	// Power by the first of the policy's sources that knows. Nil: none does.
	Power *model.Power
	// Rates are the agent's newest, Received when they came. Nil: none are fresh.
	Rates    *model.NodeRates
	Received time.Time
}

// Energy is what a node drew by one source, counted since the manager leads.
type Energy struct {
	Source model.PowerSource
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
	// observed is used again for each node.
	observed []curve.Observation
}

type node struct {
	account account
	// energy by source, in the order in which sources came.
	energy []Energy
	// learned is what holds now, and before what held when another part of the
	// node was measured: while a server is out, agents measure for it, and what was
	// learned in days must outlive that. Both are of one processor: with another
	// they start anew.
	learned, before knowledge
	of              Processor
	// told are the costs that were last told.
	told costs
}

// knowledge is what was learned from meters of one scope.
type knowledge struct {
	// node is nil when nothing came yet.
	node *learn.Node
	// scope is anyScope while nothing was metered.
	scope model.PowerScope
}

func (k knowledge) isOf(scope model.PowerScope) bool {
	return k.node != nil && (k.scope == scope || k.scope == anyScope || scope == anyScope)
}

// Processor tells processors apart.
type Processor struct {
	Name  string
	Cores int
}

// maxCurves is how many curves are learned for a node, one for each class of VMs and
// buffering window: more than a node has at a time, and few enough for a thousand nodes
// in the manager's memory.
const maxCurves = 16

// New returns Models that know nothing but priors.
func New(priors Priors) *Models {
	return &Models{priors: priors, nodes: map[string]*node{}}
}

// Look takes in what is known of a node now. It is called at least as often as
// rates and readings come; what was seen already counts once.
func (m *Models) Look(name string, sight Sight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[name]
	if n == nil {
		n = &node{}
		m.nodes[name] = n
	}
	before := n.account.pulled
	joules, lessons := n.account.look(sight.Power, sight.Rates, sight.Received)
	if sight.Power != nil {
		n.add(sight.Power.Source, joules)
	}
	if n.account.pulled != before && m.fit(n, sight, anyScope) {
		m.observed = learn.Observations(m.observed[:0], sight.Rates.VMs, (*model.VMRates).HeldFor)
		n.learned.node.Update(learn.Sample{Seconds: standsFor(before, sight.Rates), VMs: m.observed})
	}
	for _, lesson := range lessons {
		if m.fit(n, sight, lesson.scope) {
			n.learned.node.Model().Update(lesson.load, lesson.watts, lesson.seconds)
		}
	}
}

// standsFor returns the seconds that pulled rates stand for: those since the pull
// before, but no more than timeline.LongestGap. Of the time before a first pull, or one
// across a restart of the agent, they tell what they are means over.
func standsFor(before, now *model.NodeRates) float64 {
	if before == nil || before.Totals == nil || now.Totals == nil || !before.Totals.Since.Equal(now.Totals.Since) {
		return now.IntervalSeconds
	}
	return min(max(now.IntervalSeconds, now.Totals.Seconds-before.Totals.Seconds), timeline.LongestGap.Seconds())
}

func (n *node) add(source model.PowerSource, joules units.Joules) {
	for i := range n.energy {
		if n.energy[i].Source == source {
			n.energy[i].Joules += joules
			return
		}
	}
	n.energy = append(n.energy, Energy{Source: source, Joules: joules})
}

// anyScope is that of what tells nothing of power.
const anyScope model.PowerScope = ""

// fit makes what is learned that of the node's processor and of a scope. It
// returns false when that cannot be.
func (m *Models) fit(n *node, sight Sight, scope model.PowerScope) bool {
	known := sight.Processor != (Processor{})
	if known && n.of != sight.Processor {
		n.of, n.learned, n.before = sight.Processor, knowledge{}, knowledge{}
	}
	if !n.learned.isOf(scope) {
		n.learned, n.before = n.before, n.learned
	}
	if !n.learned.isOf(scope) {
		if !known {
			return false // nothing to make a prior of
		}
		topology, err := sight.Topology()
		if err != nil {
			return false // who plans says so
		}
		anew, err := learn.New(learn.Options{Power: m.priors.Node(topology), Curve: m.priors.Curve, Curves: maxCurves})
		if err != nil {
			return false // only without priors
		}
		n.learned = knowledge{node: anew}
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

// Predict returns the power of a node at a load, and false while nothing was
// metered on the node.
func (m *Models) Predict(name string, load power.Load) (power.Estimate, bool) {
	return ask(m, name, func(model *power.NodeModel) power.Estimate { return model.Predict(load) })
}

// Coefficients returns what the power of a node is made of, and false while
// nothing was metered on the node.
func (m *Models) Coefficients(name string) (power.Coefficients, bool) {
	return ask(m, name, (*power.NodeModel).Coefficients)
}

// Accuracy returns how well the model of a node foretold what its meter then
// said, and false while nothing was metered on the node.
func (m *Models) Accuracy(name string) (power.Accuracy, bool) {
	return ask(m, name, (*power.NodeModel).Accuracy)
}

// WhatIf lets somebody ask what changes would save on a node. It returns false,
// and asks nothing, while nothing was metered on the node. What is given must not
// be kept.
func (m *Models) WhatIf(name string, what func(whatif.Host)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[name]
	if n == nil || n.learned.node == nil || n.learned.scope == anyScope {
		return false
	}
	what(n.learned.node.WhatIf())
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
	if n == nil || n.learned.node == nil {
		return false
	}
	what(n.learned.node.WhatIf())
	return true
}

func ask[T any](m *Models, name string, what func(*power.NodeModel) T) (T, bool) {
	var answer T
	known := m.WhatIf(name, func(host whatif.Host) { answer = what(host.Model) })
	return answer, known
}
