package loop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/ledger"

	"golang.org/x/sync/errgroup"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/slots"
	"github.com/joulevirt/joulevirt/internal/trials"
)

const (
	// holdBack is the API's default.
	holdBack = 0.05
	// warming is how long the manager learns before anything is done.
	warming = 20 * time.Minute
)

// loop is a fleet under one policy, with the manager's memory of it.
type loop struct {
	Config
	nodes    []*node
	recorder *slots.Recorder
	trials   *trials.Trials
	ledger   ledger.Ledger
	stands   map[string][]model.Proof
	now      time.Time
	events   []Event
	// truth is what levers truly saved in what is booked.
	truth  float64
	strata int
	// progress is reported what happens.
	progress io.Writer
}

// Event is what was decided.
type Event struct {
	At time.Duration
	trials.Event
}

// Outcome is what came of a loop. All of it is simulated. Energies are joules of packages.
type Outcome struct {
	Events []Event
	// Without is what twins without levers drew, and Saved what the fleet drew less.
	Without, Saved float64
	// LateSaved and LateOracle are what the fleet saved in the second half of the time, and what it
	// would have if what truly saves on a node had acted there all the time.
	LateSaved, LateOracle float64
	// Explored is what the trials cost: what the oracle saves more in their slots.
	Explored float64
	// Ledger is what was booked, Truth what the levers truly saved in the same Strata.
	Ledger ledger.Range
	Truth  float64
	Strata int
	// WrongAdoptions are levers that act at the end on nodes where together they cost energy.
	WrongAdoptions int
	// Checked is how many VMs were checked, each 5 minutes, and Broken on how many levers
	// cost service.
	Checked, Broken int
	// States at the end.
	States []*trials.State
}

// Run lets a fleet run. progress is reported what happens.
func Run(ctx context.Context, c Config, progress io.Writer) (o Outcome, err error) {
	l := &loop{Config: c, recorder: slots.NewRecorder(), trials: trials.New(), stands: map[string][]model.Proof{}, now: start(), progress: progress}
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
	return nil
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

// tick lets one pass on all nodes, trials decide, and nodes be planned.
func (l *loop) tick() error {
	if err := l.each((*node).pass); err != nil {
		return err
	}
	l.now = l.now.Add(l.Tick)
	l.learn()
	units := make([]trials.Unit, len(l.nodes))
	for i, n := range l.nodes {
		units[i] = n.unit()
	}
	for _, one := range l.trials.Round(units, l.now) {
		l.events = append(l.events, Event{l.now.Sub(start()), one})
		fmt.Fprintf(l.progress, "simulated: hour %.1f: %s %s, %s, %d units: %s\n",
			l.now.Sub(start()).Hours(), one.Lever, one.Reason, one.Set, len(one.Units), one.Message)
	}
	due := map[string]bool{}
	for _, n := range l.nodes {
		is, _ := l.trials.Of(n.name, holdBack, l.now)
		due[n.name] = !slices.EqualFunc(is, l.stands[n.name], func(x, y model.Proof) bool {
			return x.Stance == y.Stance && x.Schedule.Equal(y.Schedule)
		})
		l.stands[n.name] = is
	}
	return l.each(func(n *node) error {
		n.replan(l.stands[n.name], due[n.name])
		return nil
	})
}

// learn records what nodes reported in the tick, and books what the levers truly saved in the strata
// that end.
func (l *loop) learn() {
	for _, n := range l.nodes {
		for _, sample := range n.samples {
			for _, one := range l.recorder.Observe(n.name, sample) {
				for _, stratum := range l.trials.Record(n.name, one.Slot, one.End) {
					l.ledger.Book(stratum.Lever, one.End, stratum.Comparison, stratum.Before)
					l.strata++
					l.truth += n.savedIn(stratum.Lever, one.Number)
				}
				n.measured = append(n.measured, one.Slot)
			}
		}
		n.samples = n.samples[:0]
	}
}

// outcome of the loop.
func (l *loop) outcome() Outcome {
	o := Outcome{Events: l.events, Truth: l.truth, Strata: l.strata, States: l.trials.States}
	o.Ledger = l.ledger.Statement(ledger.AllTime, false).Saved
	half := start().Add(l.now.Sub(start()) / 2)
	shares := map[string]map[v1alpha1.Lever]float64{}
	for _, n := range l.nodes {
		all, late := n.truth.drawn(start(), l.now), n.truth.drawn(half, l.now)
		o.Without += all[withoutAny]
		o.Saved += all[withoutAny] - all[actual]
		o.LateSaved += late[withoutAny] - late[actual]
		o.Checked, o.Broken = o.Checked+n.truth.checked, o.Broken+n.truth.broken
		shares[n.name] = map[v1alpha1.Lever]float64{}
		for _, lever := range levers() {
			share := n.trueShare(lever)
			shares[n.name][lever] = share
			o.Explored += n.explored(lever, max(0, share))
		}
		o.LateOracle += late[withoutAny] - late[oracle]
	}
	for _, s := range l.trials.States {
		sum := 0.
		for _, unit := range l.trials.Members(s) {
			sum += shares[unit.Name][s.Lever]
		}
		if s.Stance == model.StanceAdopted && sum < 0 {
			o.WrongAdoptions++
		}
	}
	return o
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
		if e.Reason == v1alpha1.ReasonLeverAdopted && e.Lever == lever {
			return e.At.Hours(), true
		}
	}
	return 0, false
}
