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

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/proofs"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// loop is a fleet under one policy, with the manager's memory of it.
type loop struct {
	Config
	nodes  []member
	groups []*group
	memory *proofs.Store
	now    time.Time
	events []Event
	// progress is told what happens.
	progress io.Writer
}

// Event is what the memory decided.
type Event struct {
	At time.Duration
	proof.News
}

// Run lets a fleet run, and the oracle's. progress is told what happens.
func Run(ctx context.Context, c Config, progress io.Writer) (o Outcome, err error) {
	l := &loop{Config: c, progress: progress}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.wake(); err != nil {
		return o, err
	}
	if err := l.run(ctx); err != nil {
		return o, err
	}
	if o, err = l.outcome(); err != nil {
		return o, err
	}
	return o, l.oracle(ctx, &o)
}

// wake makes all nodes and groups.
func (l *loop) wake() error {
	models, err := newModels()
	if err != nil {
		return err
	}
	nodes := make([]*node, l.Nodes)
	for i := range nodes {
		if nodes[i], err = newNode(l.spec(i), start(), false); err != nil {
			return err
		}
		l.nodes = append(l.nodes, nodes[i])
		if err := nodes[i].wake(models); err != nil {
			return err
		}
	}
	l.groups = groupsOf(nodes, start(), models)
	return nil
}

// run lets all hours pass.
func (l *loop) run(ctx context.Context) error {
	l.memory, l.now = proofs.NewStore(), start()
	if err := l.memory.Load(policyOf().Name, nil, nil); err != nil {
		return err
	}
	for end := start().Add(time.Duration(l.Hours) * time.Hour); l.now.Before(end); {
		if err := errors.Join(l.tick(), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

func (l *loop) close() error {
	var errs []error
	for _, n := range l.nodes {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}

// tick lets one pass on all nodes, the manager's memory decide, and nodes be planned.
func (l *loop) tick() error {
	for _, g := range l.groups {
		if err := g.pass(l.now); err != nil {
			return err
		}
	}
	if err := each(l.nodes, member.pass); err != nil {
		return err
	}
	l.now = l.now.Add(l.Tick)
	l.hear()
	policy := policyOf().Name
	units := make([]proof.Unit, len(l.nodes), len(l.nodes)+len(l.groups))
	for i, n := range l.nodes {
		units[i] = n.unit()
	}
	for _, g := range l.groups {
		if g.plan != nil {
			units = append(units, g.tried)
		}
	}
	news, changed := l.memory.Round(policy, units, proof.Settings{HoldBack: holdBack, Confidence: confidence}, l.now)
	for _, one := range news {
		l.events = append(l.events, Event{l.now.Sub(start()), one})
		fmt.Fprintf(l.progress, "simulated: hour %.1f: %s %s, %s, %d units: %s\n",
			l.now.Sub(start()).Hours(), one.Lever, one.Kind, one.Class, len(one.Units), one.Message)
	}
	for _, g := range l.groups {
		if err := g.follow(l.memory, l.now); err != nil {
			return err
		}
	}
	return each(l.nodes, func(n member) error {
		name := n.recorded().name
		_, due := slices.BinarySearch(changed, name)
		stand, known := l.memory.Of(policy, name)
		n.recorded().follow(stand)
		n.replan(stand, !known, due)
		return nil
	})
}

// hear lets the manager's memory learn from what nodes told in the tick, and measures each
// block once more, as the memory does: by a meter that it believes.
func (l *loop) hear() {
	for _, n := range l.nodes {
		of := n.recorded()
		for _, sight := range of.sights {
			l.memory.Hear(of.name, proofs.Heard{Policy: policyOf().Name, Class: n.class(), Sight: sight, BusyCore: n.busyCore()}, sight.Received)
			sight.Meter = l.memory.Meter(of.name)
			of.closed = append(of.closed, of.blocks.Look(of.name, sight, sight.Received)...)
			for _, g := range l.groups {
				g.closed = append(g.closed, g.blocks.Look(of.name, sight, sight.Received)...)
			}
		}
		of.sights = of.sights[:0]
	}
}

// The API's defaults.
const holdBack, confidence = 0.05, 0.95

// classOf a node. All run the same mix of VMs, and the kernel is none.
func classOf(s *spec) verify.Class {
	return verify.Class{CPUModel: modelOf(s.kind.model), Kernel: "simulated", Idle: "C6", Workload: proofs.WorkloadMixed}
}

// modelOf a kind of servers, as classes tell it.
func modelOf(kind string) string { return "simulated " + kind }

// pull is the product's time between two pulls, which blocks are made for. Here there are
// fewer, and one at each of a block's ends.
const pull = 15 * time.Second

// warming is how long the manager learns before anything is done.
const warming = 20 * time.Minute

// each does something with all nodes, side by side.
func each(nodes []member, do func(member) error) error {
	return all(len(nodes), func(i int) error { return do(nodes[i]) })
}

// all does something so many times, side by side.
func all(count int, do func(int) error) error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range count {
		group.Go(func() error { return do(i) })
	}
	return group.Wait()
}

// ledger gives what was booked.
func (l *loop) ledger() (statement ledger.Statement, stored []byte) {
	l.memory.View(policyOf().Name, func(_ *proof.Proofs, booked *ledger.Ledger) {
		statement, stored = booked.Statement(ledger.AllTime, false, confidence), booked.Save()
	})
	return statement, stored
}

// levers of the loop.
func levers() []model.Lever { return policyOf().Levers }
