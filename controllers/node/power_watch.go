package node

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
)

// PowerWatch looks at what is known of all governed nodes' power, again and
// again, because nothing tells when a figure grows too old. It tells who plans
// that a node's meter came or went, and who writes statuses that there are other
// figures; what is metered it gives to the models. It is a Runnable of the
// controller runtime.
type PowerWatch struct {
	PowerWatchOptions
	// seen is the last look, for the metrics. Nil: none yet.
	seen atomic.Pointer[PowerViews]
	// said is what was last said of each node, for the statuses.
	said map[string]saidOfPower

	mu sync.Mutex
	// planned is with what each node was last planned, or reported to be.
	planned map[string]plannedWith
}

// PowerWatchOptions are what a PowerWatch works with.
type PowerWatchOptions struct {
	Reader client.Reader
	Powers *observe.Powers
	Models *learned.Models
	Clock  clock.PassiveClock
	// Replan is called when a node's plan should be made anew, changed that other
	// sources give power, or for other reasons do not, and figures that there are
	// new figures. They may block until the context ends.
	Replan           func(ctx context.Context, node string)
	Changed, Figures func(context.Context)
	// Heard is given all governed nodes with what is known of their power, in one order.
	// Nil: nobody is.
	Heard func(ctx context.Context, governed []objects.GovernedNode, choices []energy.Choice) error
}

// PowerViews is one look at all governed nodes, in no order. It is immutable.
type PowerViews []powerView

type powerView struct {
	Node, policy string
	Choice       energy.Choice
}

type plannedWith struct{ metered, unknown, lost bool }

// saidOfPower holds the words, not the figures: they are compared.
type saidOfPower struct {
	source  v1alpha1.PowerSource
	reasons string
	// at is the time of the figure.
	at time.Time
}

// NewPowerWatch returns a watch that has looked at no node yet.
func NewPowerWatch(o PowerWatchOptions) *PowerWatch {
	return &PowerWatch{
		PowerWatchOptions: o,
		said:              map[string]saidOfPower{}, planned: map[string]plannedWith{},
	}
}

// Planned notes with what a node is planned. The watch compares with that, not
// with what it saw last: a meter may go and come between two looks, with a plan
// between.
func (w *PowerWatch) Planned(node model.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.planned[node.Name] = plannedWith{metered: node.Metered, unknown: node.MeterUnknown, lost: node.MeterLost}
}

// Seen returns the last look. It must not be changed.
func (w *PowerWatch) Seen() PowerViews {
	if seen := w.seen.Load(); seen != nil {
		return *seen
	}
	return nil
}

// metered counts the nodes whose power is measured.
func (s PowerViews) metered() float64 {
	var count float64
	for _, view := range s {
		if view.Choice.Metered {
			count++
		}
	}
	return count
}

// Look observes the power of all governed nodes, and reports what changed.
func (w *PowerWatch) Look(ctx context.Context) error {
	governed, err := objects.GovernedNodes(ctx, w.Reader)
	if err != nil {
		return fmt.Errorf("list governed nodes: %w", err)
	}
	views := make(PowerViews, 0, len(governed))
	choices := make([]energy.Choice, 0, len(governed))
	names := make(map[string]bool, len(governed))
	for _, g := range governed {
		names[g.Node.Name] = true
		choice := w.Powers.Of(g.Node.Name, g.Settings, g.Report)
		if choice.Metered {
			w.Powers.Past.Metered(g.Node.Name, w.Clock.Now())
		}
		views = append(views, powerView{Node: g.Node.Name, policy: g.Policy, Choice: choice})
		choices = append(choices, choice)
		w.learn(g, choice)
	}
	w.forgetOthers(names)
	w.seen.Store(&views)
	for _, view := range views {
		if w.outdated(view) {
			w.Replan(ctx, view.Node)
		}
	}
	w.tell(ctx, views)
	if w.Heard == nil {
		return nil
	}
	return w.Heard(ctx, governed, choices)
}

func (w *PowerWatch) learn(g objects.GovernedNode, choice energy.Choice) {
	rates, received := w.Powers.Rates.Latest(g.Node.Name)
	var topology v1alpha1.Topology
	cores := 0
	if g.Report != nil {
		topology = g.Report.Status.Topology
	}
	for _, group := range topology.CoreGroups {
		cores += len(group.Cores)
	}
	w.Models.Observe(g.Node.Name, learned.Sample{
		Processor: learned.Processor{Name: topology.CPUModel, Cores: cores},
		Topology:  func() (model.Topology, error) { return observe.Topology(topology) },
		Sample:    stream.Sample{Power: choice.Power, Rates: rates, Received: received, Now: w.Clock.Now()},
	})
}

// outdated reports whether a node's plan was made with another word about its
// meter. It says so once for each word: who plans tries again by itself, where
// that is of use.
func (w *PowerWatch) outdated(view powerView) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := plannedWith{metered: view.Choice.Metered, unknown: view.Choice.Unknown, lost: !view.Choice.LostSince.IsZero()}
	with, known := w.planned[view.Node]
	w.planned[view.Node] = now
	return !known || with != now
}

func (w *PowerWatch) forgetOthers(names map[string]bool) {
	w.Models.Retain(names)
	w.Powers.Past.Retain(names)
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.planned, func(name string, _ plannedWith) bool { return !names[name] })
}

// tell compares what is known with what was said.
func (w *PowerWatch) tell(ctx context.Context, views PowerViews) {
	said := make(map[string]saidOfPower, len(views))
	changed, figure := len(views) != len(w.said), false
	for _, view := range views {
		now := wordsOf(view.Choice)
		was, known := w.said[view.Node]
		said[view.Node] = now
		changed = changed || !known || was.source != now.source || was.reasons != now.reasons
		figure = figure || !was.at.Equal(now.at)
	}
	w.said = said
	if changed {
		w.Changed(ctx)
	}
	if figure {
		w.Figures(ctx)
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
	if !choice.LostSince.IsZero() {
		words.reasons += "lost"
	}
	if choice.Power != nil {
		words.at = choice.Power.Time
	}
	return words
}
