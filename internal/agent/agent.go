// Package agent is the part of the product that runs on each node. Its loop
// samples the node every second, publishes the rates, and makes threads and network
// devices of VMs what the NodePlan wants for as long as the plan exists, is to be applied,
// and its manager is alive.
//
// discover, sample, metering, actuate, journal, watch and publish are its
// parts; this package puts them together.
package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/device"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/slice"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/metering"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
)

const (
	// longestBlind is how long an agent that does not know the cluster's objects leaves what an
	// earlier one changed: longer than an API server takes to start, or a new leader of etcd.
	longestBlind = time.Minute
	// readPlanTimeout is how long an agent that ends waits for the plan that it does not know.
	readPlanTimeout = 5 * time.Second
)

// Cluster is what the agent needs to know of its cluster: a watch.Cluster, or that of a
// simulated node.
type Cluster interface {
	// Synced is false until what is absent is known to be absent.
	Synced() bool
	// Changes signals that the plan or the VMs changed.
	Changes() <-chan struct{}
	// Inventory returns the VMs of the node.
	Inventory(ctx context.Context) (*discover.Inventory, error)
	// Plan returns the node's plan, read-only; nil when it has none.
	Plan(ctx context.Context) (*v1alpha1.NodePlan, error)
	// LeaseRenewed returns when the manager renewed its Lease; zero when never.
	LeaseRenewed(ctx context.Context) (time.Time, error)
}

// Statuses writes the status of the plan: a publish.PlanStatuses, or that of a simulated node.
type Statuses interface {
	Offer(plan *v1alpha1.NodePlan, status v1alpha1.NodePlanStatus)
	// ReadPlan asks the API server for the node's plan; nil when it has none.
	ReadPlan(ctx context.Context) (*v1alpha1.NodePlan, error)
}

// Options are the agent's settings and what it works with.
type Options struct {
	Node string
	// Interval between two rounds of samples.
	Interval time.Duration
	// StaleAfter is the age of the manager's Lease from which on everything is
	// reverted.
	StaleAfter time.Duration
	// StartDelay is how long after the agent's start no lever begins to act on a VM.
	StartDelay time.Duration

	Host     host.Host
	Cluster  Cluster
	Statuses Statuses
	// Prior is the power that is expected of a machine before anything of it is
	// measured. prior.Priors has one.
	Prior func(model.Topology) power.NodePrior
	// CPUTime that the agent itself has used: it counts against what levers save. Nil: not
	// known.
	CPUTime func() time.Duration
	Board   *publish.Board
	Clock   clock.WithTicker
	Log     logr.Logger
}

// Agent is the loop of one node.
type Agent struct {
	opts      Options
	sampler   *sample.Sampler
	affinity  *affinity.Actuator
	slices    *slice.Actuator
	shaping   *device.Actuator[model.Shaping]
	buffering *device.Actuator[model.Buffering]
	keeper    *device.Keeper
	machine   *machine
	sleep     sleep
	programs  programs
	// begins is from when on levers may begin to act on VMs.
	begins   time.Time
	account  *metering.Account
	guarded  guarded
	switches switches
	// journalLost is true until the threads are found that an earlier agent may have changed.
	journalLost bool

	previous *sample.Round
	sent     sample.SentMeans
	// readBacks are what the status says of buffered VMs.
	readBacks map[host.TaskID]readBack
	// changes counts what levers changed or reverted.
	changes map[v1alpha1.Lever]uint64
	state   publish.State
	stale   bool
	// blindSince is since when the cluster's objects are not known. Zero: they are.
	blindSince time.Time
	// renewed is the last renewal of the manager's Lease that was seen, since renewedSeen.
	renewed, renewedSeen time.Time
	// plan is the one that was followed last, nil when the node had none. planKnown is false
	// until it was read.
	plan      *v1alpha1.NodePlan
	planKnown bool
	// switchesDone is what the last round did of the plan's schedules.
	switchesDone []model.Switch
	// reported is the last status of the plan of that UID.
	reported    v1alpha1.NodePlanStatus
	reportedUID types.UID
	// failing is the last round's error as text, to log it once.
	failing string
}

// New takes over what an earlier agent changed, from its journal.
func New(opts Options, j *journal.Journal) (*Agent, error) {
	was, err := j.Load()
	lost := errors.Is(err, journal.ErrCorrupt)
	if err != nil && !lost {
		return nil, err
	}
	if lost {
		opts.Log.Error(err, "assuming that an earlier agent changed the threads of VMs that do not run on their whole cpuset, "+
			"or have a scheduler slice: they are reverted unless the plan wants them so")
	} else if len(was.Threads)+len(was.Slices)+len(was.Uplinks)+len(was.Taps) > 0 {
		opts.Log.Info("took over what an earlier agent had changed",
			"threads", len(was.Threads), "slices", len(was.Slices), "uplinks", len(was.Uplinks), "taps", len(was.Taps))
	}
	machine, err := newMachine(opts.Host, opts.Clock)
	if err != nil {
		return nil, err
	}
	keeper := device.NewKeeper(opts.Host, opts.Clock, opts.Interval)
	return &Agent{
		opts:        opts,
		renewedSeen: opts.Clock.Now(),
		machine:     machine,
		sleep:       sleep{host: opts.Host, clock: opts.Clock, log: opts.Log},
		programs:    programs{host: opts.Host, clock: opts.Clock, log: opts.Log},
		begins:      opts.Clock.Now().Add(opts.StartDelay),
		account:     metering.New(opts.Prior, opts.Clock.Now()),
		sampler:     sample.New(opts.Host, opts.Clock),
		affinity:    affinity.New(opts.Host, j.SaveThreads, was.Threads),
		slices:      slice.New(opts.Host, j.SaveSlices, was.Slices),
		shaping:     device.NewShaping(opts.Host, keeper, j.SaveUplinks, was.Uplinks),
		buffering:   device.NewBuffering(opts.Host, keeper, j.SaveTaps, was.Taps),
		keeper:      keeper,
		guarded:     newGuarded(was.Trips, j.SaveTrips, opts.Clock.Now()),
		switches:    switches{},
		changes:     map[v1alpha1.Lever]uint64{},
		journalLost: lost,
	}, nil
}

// Run works until the context ends, and then reverts all that was changed.
func (a *Agent) Run(ctx context.Context) error {
	var keeper sync.WaitGroup
	keeper.Go(func() { a.keeper.Run(ctx) })
	ticker := a.opts.Clock.NewTicker(a.opts.Interval)
	defer ticker.Stop()
	a.round(ctx, true)
	for {
		boundary, stop := a.boundary()
		select {
		case <-ctx.Done():
			stop()
			keeper.Wait()
			return a.end(ctx)
		case <-ticker.C():
			a.round(ctx, true)
		case <-a.opts.Cluster.Changes():
			// The plan is followed at once. The rates stay at their interval.
			a.round(ctx, false)
		case <-boundary:
			a.round(ctx, false)
		}
		stop()
	}
}

// end reverts everything, and has the plan's status say so: nobody else will until the next
// agent starts. An agent that ends before it knows the plan asks for it, because an earlier one
// that was killed may have left its status.
func (a *Agent) end(ctx context.Context) error {
	err := errors.Join(a.affinity.Restore(), a.slices.Restore(), a.shaping.Restore(), a.buffering.Restore())
	if !a.planKnown {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), readPlanTimeout)
		defer cancel()
		plan, readErr := a.opts.Statuses.ReadPlan(limited)
		if readErr != nil {
			a.opts.Log.Info("NodePlan status of the agent's end not written", "reason", readErr.Error())
		} else if plan != nil {
			a.plan, a.reported = plan, plan.Status
		}
	}
	if a.plan != nil {
		a.opts.Statuses.Offer(a.plan, planStatus(a.plan, &a.reported, outcome{ended: true, err: err, held: a.held()}, a.opts.Clock.Now()))
	}
	if err != nil {
		return fmt.Errorf("revert the node: %w", err)
	}
	a.opts.Log.Info("reverted the node")
	return nil
}

// round samples, follows the plan, and publishes when asked to. Without a list
// of the processes nothing is known, and nothing is done: the state that was
// posted last grows old, which fails the probes.
func (a *Agent) round(ctx context.Context, publishing bool) {
	// Asked before the inventory: one that was read before the cluster's
	// objects were known would make every VM seem gone.
	synced := a.opts.Cluster.Synced()
	inventory, failure := a.opts.Cluster.Inventory(ctx)
	round, err := a.sampler.Read(inventory)
	failure = errors.Join(failure, err)
	if round != nil {
		failure = errors.Join(failure, a.follow(ctx, round, synced))
	}
	a.logFailure(failure)
	if publishing && round != nil {
		a.publish(round, synced, failure)
	}
	a.keeper.Alive()
}

// publish posts the rates since the last published round.
func (a *Agent) publish(round *sample.Round, synced bool, failure error) {
	rates := sample.Rates(a.opts.Node, a.previous, round)
	a.sent.Add(rates, round)
	trips := a.guarded.Trips()
	rates.Trips = trips[:min(len(trips), mostTrips)]
	rates.Switches = a.switchesDone
	a.state.Topology, a.state.Sleep, a.state.Programs = a.machine.now(), a.sleep.now(), a.programs.now()
	a.state.Energy = a.account.Add(rates, round.Energy, a.state.Topology)
	if a.opts.CPUTime != nil {
		rates.Totals.AgentSeconds = a.opts.CPUTime().Seconds()
	}
	a.previous = round
	a.state.Rounds++
	if failure != nil {
		a.state.RoundErrors++
	}
	a.state.Synced = synced
	a.state.Rates, a.state.RoundError = rates, failure
	a.state.ManagerStale, a.state.Trips = a.stale, a.guarded.counts
	a.state.InForce = map[v1alpha1.Lever]int{}
	for lever, pods := range a.podsByLever() {
		a.state.InForce[lever] = len(pods)
	}
	a.state.Changes = maps.Clone(a.changes)
	a.state.Took = a.opts.Clock.Since(round.At)
	state := a.state
	a.opts.Board.Post(&state)
}

// follow makes the node what the plan wants.
func (a *Agent) follow(ctx context.Context, round *sample.Round, synced bool) error {
	a.switchesDone = nil
	if !synced {
		return a.waitForCluster(round)
	}
	a.blindSince = time.Time{}
	renewed, err := a.opts.Cluster.LeaseRenewed(ctx)
	if err != nil {
		return err
	}
	a.updateStale(renewed)
	a.assume(round)
	plan, err := a.opts.Cluster.Plan(ctx)
	if err != nil {
		return err
	}
	o := outcome{orders: ordersOf(plan, a.stale), stale: a.stale, renewed: renewed}
	guardErr := a.guardRound(round)
	o.orders.withhold(a.guarded.Guard, round.At)
	if err := a.switchLevers(o.orders); err != nil {
		return err
	}
	if a.opts.Clock.Now().Before(a.begins) {
		o.orders.begins, o.orders.acting = a.begins, a.podsByLever()
	}
	// A lever that waits does not do what its schedule says.
	if o.applied, o.err = a.apply(round, o.orders); o.err == nil && o.orders.acting == nil {
		a.switchesDone = a.switches.list()
	}
	o.err, o.held = errors.Join(o.err, guardErr), a.held()
	a.plan, a.planKnown = plan, true
	if plan == nil {
		return o.err
	}
	if a.reportedUID != plan.UID {
		a.reportedUID, a.reported = plan.UID, *plan.Status.DeepCopy()
	}
	a.reported = planStatus(plan, &a.reported, o, a.opts.Clock.Now())
	a.opts.Statuses.Offer(plan, a.reported)
	return o.err
}

// held returns of how many VMs some lever holds something.
func (a *Agent) held() int {
	most := 0
	for _, pods := range a.podsByLever() {
		most = max(most, len(pods))
	}
	return most
}

// podsByLever are the pods that each lever acts on.
func (a *Agent) podsByLever() map[v1alpha1.Lever]map[string]bool {
	return map[v1alpha1.Lever]map[string]bool{
		v1alpha1.LeverAffinity: a.affinity.Pods(), v1alpha1.LeverSlice: a.slices.Pods(),
		v1alpha1.LeverShaping: a.shaping.Pods(), v1alpha1.LeverBuffering: a.buffering.Pods(),
	}
}

// waitForCluster leaves what an earlier agent changed as it is, for the plan may want it so,
// but not for long: VMs are not known, so that no guard watches over them.
func (a *Agent) waitForCluster(round *sample.Round) error {
	a.updateStale(time.Time{})
	now := a.opts.Clock.Now()
	if a.blindSince.IsZero() {
		a.blindSince = now
	}
	long := now.Sub(a.blindSince) >= longestBlind
	if !long && !a.stale {
		return nil
	}
	clear(a.switches)
	_, err := a.apply(round, ordersOf(nil, false))
	if long {
		err = errors.Join(err, fmt.Errorf("the API server did not answer for %s, and no guard watches over VMs that are not known: "+
			"what an earlier agent had changed is reverted; check that the API server answers this node", longestBlind))
	}
	return err
}

func (a *Agent) updateStale(renewed time.Time) {
	now := a.opts.Clock.Now()
	if !renewed.IsZero() && !renewed.Equal(a.renewed) {
		a.renewed, a.renewedSeen = renewed, now
	}
	stale := isStale(now, a.renewedSeen, renewed, a.opts.StaleAfter)
	switch {
	case stale && !a.stale:
		a.opts.Log.Info("the manager does not renew its Lease: reverting everything", "renewed", renewed, "staleAfter", a.opts.StaleAfter)
	case !stale && a.stale:
		a.opts.Log.Info("the manager renews its Lease again: following the plan", "renewed", renewed)
	}
	a.stale = stale
}

// isStale reports whether the manager's Lease is out of date: by its time, and by how long
// ago a renewal was seen, which no clock that is set prolongs. seen is the agent's start
// when none was.
func isStale(now, seen, renewed time.Time, after time.Duration) bool {
	return now.Sub(seen) > after || !renewed.IsZero() && now.Sub(renewed) > after
}

// assume finds, once, what an earlier agent changed whose journal is lost.
func (a *Agent) assume(round *sample.Round) {
	if !a.journalLost {
		return
	}
	a.journalLost = false
	for _, thread := range a.affinity.Assume(round.All()) {
		a.opts.Log.Info("assuming thread was pinned by an earlier agent", "pid", thread.PID, "tid", thread.TID)
	}
	for _, thread := range a.slices.Assume(round.All()) {
		a.opts.Log.Info("assuming slice was set by an earlier agent", "pid", thread.PID, "tid", thread.TID)
	}
}

// logFailure logs a failure when it is another one than in the last round.
func (a *Agent) logFailure(failure error) {
	text := ""
	if failure != nil {
		text = failure.Error()
	}
	if text != "" && text != a.failing {
		a.opts.Log.Error(failure, "some part of the round failed")
	}
	a.failing = text
}
