package loop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe/proofs"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

const (
	// holdBack and confidence are the API's defaults.
	holdBack, confidence = 0.05, 0.95
	// pull is the product's time between two pulls, which blocks are made for. Here there are
	// fewer, and one at each of a block's ends.
	pull = 15 * time.Second
	// warming is how long the manager learns before anything is done.
	warming = 20 * time.Minute
)

// loop is a fleet under one policy, with the manager's memory of it.
type loop struct {
	Config
	nodes  []*node
	memory *proofs.Store
	now    time.Time
	events []Event
	// progress is reported what happens.
	progress io.Writer
}

// Event is what the memory decided.
type Event struct {
	At time.Duration
	proof.News
}

// Outcome is what came of a loop. All of it is simulated. Energies are joules of packages.
type Outcome struct {
	Events []Event
	// Without is what twins without levers drew, and Saved what the fleet drew less.
	Without, Saved float64
	// Ledger is what was booked, Truth what the levers truly saved in the same blocks, and
	// Blocks how many these are.
	Ledger ledger.Range
	Truth  float64
	Blocks int
	// Checked is how many VMs were checked, each 5 minutes, and Broken on how many levers
	// cost service.
	Checked, Broken int
	// Standings at the end.
	Standings []proof.Standing
}

// Run lets a fleet run. progress is reported what happens.
func Run(ctx context.Context, c Config, progress io.Writer) (o Outcome, err error) {
	l := &loop{Config: c, memory: proofs.NewStore(), now: start(), progress: progress}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.wake(); err != nil {
		return o, err
	}
	for end := start().Add(time.Duration(l.Hours) * time.Hour); l.now.Before(end); {
		if err := errors.Join(l.tick(), ctx.Err()); err != nil {
			return o, err
		}
	}
	return l.outcome(), nil
}

// wake makes all nodes.
func (l *loop) wake() error {
	models, err := newModels()
	if err != nil {
		return err
	}
	for i := range l.Nodes {
		n, err := newNode(l.spec(i), models)
		if err != nil {
			return err
		}
		l.nodes = append(l.nodes, n)
	}
	return l.memory.Load(policyOf().Name, nil)
}

func (l *loop) close() error {
	var errs []error
	for _, n := range l.nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// each does something with all nodes, side by side.
func (l *loop) each(do func(*node) error) error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, n := range l.nodes {
		group.Go(func() error { return do(n) })
	}
	return group.Wait()
}

// tick lets one pass on all nodes, the manager's memory decide, and nodes be planned.
func (l *loop) tick() error {
	if err := l.each((*node).pass); err != nil {
		return err
	}
	l.now = l.now.Add(l.Tick)
	l.learn()
	policy := policyOf().Name
	units := make([]proof.Unit, len(l.nodes))
	for i, n := range l.nodes {
		units[i] = n.unit()
	}
	news, changed := l.memory.Round(policy, units, proof.Settings{HoldBack: holdBack, Confidence: confidence}, l.now)
	for _, one := range news {
		l.events = append(l.events, Event{l.now.Sub(start()), one})
		fmt.Fprintf(l.progress, "simulated: hour %.1f: %s %s, %s, %d units: %s\n",
			l.now.Sub(start()).Hours(), one.Lever, one.Kind, one.Class, len(one.Units), one.Message)
	}
	return l.each(func(n *node) error {
		_, due := slices.BinarySearch(changed, n.name)
		stand, known := l.memory.Of(policy, n.name)
		n.replan(stand, !known, due)
		return nil
	})
}

// learn lets the manager's memory learn from what nodes reported in the tick, and measures each
// block once more, as the memory does.
func (l *loop) learn() {
	for _, n := range l.nodes {
		for _, sight := range n.sights {
			l.memory.Hear(n.name, proofs.Heard{Policy: policyOf().Name, Class: n.class(), Sight: sight}, sight.Received)
			n.closed = append(n.closed, n.blocks.Look(n.name, sight, sight.Received)...)
		}
		n.sights = n.sights[:0]
	}
}

// outcome of the loop so far.
func (l *loop) outcome() Outcome {
	o := Outcome{Events: l.events}
	for _, n := range l.nodes {
		all := n.truth.drawn(start(), l.now)
		o.Without += all[withoutAny]
		o.Saved += all[withoutAny] - all[actual]
		o.Checked, o.Broken = o.Checked+n.truth.checked, o.Broken+n.truth.broken
	}
	l.memory.View(policyOf().Name, func(p *proof.Proofs, booked *ledger.Ledger) {
		o.Standings = p.Standings()
		o.Ledger = booked.Statement(ledger.AllTime, false, confidence).Saved
		for _, n := range l.nodes {
			for i := range n.closed {
				b := &n.closed[i]
				if b.On && b.Excluded == "" && isBooked(booked, b.Unit, b.Lever, b.From, b.To, l.now) {
					washed := b.To.Sub(b.From) - time.Duration(b.Seconds*float64(time.Second))
					drawn := n.truth.drawn(b.From.Add(max(0, washed)), b.To)
					o.Truth += drawn[lacking(b.Lever)] - drawn[actual]
					o.Blocks++
				}
			}
		}
	})
	return o
}

// isBooked reports whether a block is in a ledger: it refuses it then.
func isBooked(l *ledger.Ledger, name string, lever v1alpha1.Lever, from, to, now time.Time) bool {
	return l.Book(ledger.Block{
		Node: name, Lever: lever, From: from, To: to, On: true, Effect: verify.Shrunk{Log: -0.01, Own: 0.01, Freedom: 10, CommonFreedom: 10},
		Measured: ledger.Measured{Seconds: to.Sub(from).Seconds(), Joules: 1e4, Bytes: 1e6},
	}, now) == ledger.AlreadyBooked
}

// Covered is true when the ledger's interval covers the truth.
func (o *Outcome) Covered() bool { return o.Ledger.Low <= o.Truth && o.Truth <= o.Ledger.High }

// SavedPercent is what the fleet drew less than without levers.
func (o *Outcome) SavedPercent() float64 { return 100 * o.Saved / o.Without }

// BrokenPercent is the part of VMs' time in which levers cost service.
func (o *Outcome) BrokenPercent() float64 {
	return 100 * float64(o.Broken) / float64(max(1, o.Checked))
}

// Adopted is after how many hours a class adopted a lever first. False: none did.
func (o *Outcome) Adopted(lever v1alpha1.Lever) (hours float64, is bool) {
	for _, e := range o.Events {
		if e.Kind == proof.Adopted && e.Lever == lever {
			return e.At.Hours(), true
		}
	}
	return 0, false
}
