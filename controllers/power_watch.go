package controllers

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
)

// powerWatch looks at what is known of all governed nodes' power, again and
// again, because nothing tells when a figure grows too old. It tells who plans
// that a node's meter came or went, and who writes statuses that there are other
// figures; what is metered it gives to the models. It is a Runnable of the
// controller runtime.
type powerWatch struct {
	powerWatchOptions
	wake chan struct{}
	// seen is the last look, for the metrics. Nil: none yet.
	seen atomic.Pointer[powerSights]
	// said is what was last said of each node, for the statuses.
	said map[string]saidOfPower

	mu sync.Mutex
	// planned is with what each node was last planned, or told to be.
	planned map[string]plannedWith
}

type powerWatchOptions struct {
	reader   client.Reader
	powers   *observe.Powers
	models   *learned.Models
	interval time.Duration
	clock    clock.WithTicker
	log      logr.Logger
	// replan is told that a node's plan should be made anew, changed that other
	// sources give power, or for other reasons do not, and figures that there are
	// new figures. They may block until the context ends.
	replan           func(ctx context.Context, node string)
	changed, figures func(context.Context)
	// heard is given all governed nodes with what is known of their power, in one order.
	// Nil: nobody is.
	heard func(ctx context.Context, governed []governedNode, choices []energy.Choice) error
}

// powerSights is one look at all governed nodes, in no order. It is immutable.
type powerSights []powerSight

type powerSight struct {
	node, policy string
	choice       energy.Choice
}

type plannedWith struct{ metered, unknown, lost bool }

// saidOfPower holds the words, not the figures: they are compared.
type saidOfPower struct {
	source  model.PowerSource
	reasons string
	// at is the time of the figure.
	at time.Time
}

func newPowerWatch(o powerWatchOptions) *powerWatch {
	return &powerWatch{
		powerWatchOptions: o, wake: make(chan struct{}, 1),
		said: map[string]saidOfPower{}, planned: map[string]plannedWith{},
	}
}

// NeedLeaderElection is true: only the leader plans.
func (w *powerWatch) NeedLeaderElection() bool { return true }

// Wake asks for a look at once. It never blocks.
func (w *powerWatch) Wake() {
	select {
	case w.wake <- struct{}{}:
	default: // A wake-up is pending already.
	}
}

// Planned notes with what a node is planned. The watch compares with that, not
// with what it saw last: a meter may go and come between two looks, with a plan
// between.
func (w *powerWatch) Planned(node model.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.planned[node.Name] = plannedWith{metered: node.Metered, unknown: node.MeterUnknown, lost: node.MeterLost}
}

// Seen returns the last look. It must not be changed.
func (w *powerWatch) Seen() powerSights {
	if seen := w.seen.Load(); seen != nil {
		return *seen
	}
	return nil
}

// metered counts the nodes whose power is measured.
func (s powerSights) metered() float64 {
	var count float64
	for _, sight := range s {
		if sight.choice.Metered {
			count++
		}
	}
	return count
}

// Start looks until the context ends.
func (w *powerWatch) Start(ctx context.Context) error {
	ticker := w.clock.NewTicker(w.interval)
	defer ticker.Stop()
	for {
		if err := w.look(ctx); err != nil && ctx.Err() == nil {
			w.log.Error(err, "what is known of the nodes' power was not looked at in this round")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		case <-w.wake:
		}
	}
}

func (w *powerWatch) look(ctx context.Context) error {
	governed, err := governedNodes(ctx, w.reader)
	if err != nil {
		return fmt.Errorf("list governed nodes: %w", err)
	}
	sights := make(powerSights, 0, len(governed))
	choices := make([]energy.Choice, 0, len(governed))
	names := make(map[string]bool, len(governed))
	for _, g := range governed {
		names[g.node.Name] = true
		choice := w.powers.Of(g.node.Name, g.settings, g.report)
		if choice.Metered {
			w.powers.Past.Metered(g.node.Name, w.clock.Now())
		}
		sights = append(sights, powerSight{node: g.node.Name, policy: g.policy, choice: choice})
		choices = append(choices, choice)
		w.learn(g, choice)
	}
	w.forgetOthers(names)
	w.seen.Store(&sights)
	for _, sight := range sights {
		if w.outdated(sight) {
			w.replan(ctx, sight.node)
		}
	}
	w.tell(ctx, sights)
	if w.heard == nil {
		return nil
	}
	return w.heard(ctx, governed, choices)
}

func (w *powerWatch) learn(g governedNode, choice energy.Choice) {
	rates, received := w.powers.Rates.Heard(g.node.Name)
	var topology v1alpha1.Topology
	if g.report != nil {
		topology = g.report.Status.Topology
	}
	power := choice.Power
	if choice.Suspect != nil {
		power = nil // Nothing is learned from what is not believed.
	}
	w.models.Look(g.node.Name, learned.Sight{
		Processor: learned.Processor{Name: topology.CPUModel, Cores: int(topology.PhysicalCores)},
		Topology:  func() (model.Topology, error) { return observe.Topology(topology) },
		Power:     power, Rates: rates, Received: received,
	})
}

// outdated tells whether a node's plan was made with another word about its
// meter. It says so once for each word: who plans tries again by itself, where
// that is of use.
func (w *powerWatch) outdated(sight powerSight) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := plannedWith{metered: sight.choice.Metered, unknown: sight.choice.Unknown, lost: !sight.choice.LostSince.IsZero()}
	with, known := w.planned[sight.node]
	w.planned[sight.node] = now
	return !known || with != now
}

func (w *powerWatch) forgetOthers(names map[string]bool) {
	w.models.Retain(names)
	w.powers.Past.Retain(names)
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.planned, func(name string, _ plannedWith) bool { return !names[name] })
}

// tell compares what is known with what was said.
func (w *powerWatch) tell(ctx context.Context, sights powerSights) {
	said := make(map[string]saidOfPower, len(sights))
	changed, figure := len(sights) != len(w.said), false
	for _, sight := range sights {
		now := wordsOf(sight.choice)
		was, known := w.said[sight.node]
		said[sight.node] = now
		changed = changed || !known || was.source != now.source || was.reasons != now.reasons
		figure = figure || !was.at.Equal(now.at)
	}
	w.said = said
	if changed {
		w.changed(ctx)
	}
	if figure {
		w.figures(ctx)
	}
}

func wordsOf(choice energy.Choice) saidOfPower {
	words := saidOfPower{source: choice.Source}
	for _, attempt := range choice.Attempts {
		words.reasons += string(attempt.Type) + " " + string(attempt.Reason) + "\n"
	}
	if choice.Doubt != nil {
		words.reasons += "doubt " + string(choice.Doubt.Reason)
	}
	if choice.Suspect != nil {
		words.reasons += "suspect " + choice.Suspect.Message
	}
	if !choice.LostSince.IsZero() {
		words.reasons += "lost"
	}
	if choice.Power != nil {
		words.at = choice.Power.Time
	}
	return words
}
