package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/buffer"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/shape"
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

// longestBlind is how long an agent that does not know the cluster's objects leaves what an
// earlier one changed: longer than an API server takes to start, or a new leader of etcd.
const longestBlind = time.Minute

// Cluster is what the agent needs to know of its cluster. watch.Cluster is
// one.
type Cluster interface {
	// Synced is false until what is absent is known to be absent.
	Synced() bool
	// Changes signals that the plan or the VMs changed.
	Changes() <-chan struct{}
	// Inventory returns the VMs of the node.
	Inventory(ctx context.Context) (*discover.Inventory, error)
	// Plan returns the node's plan, read-only; nil when there is none.
	Plan(ctx context.Context) (*v1alpha1.NodePlan, error)
	// LeaseRenewed returns when the manager renewed its Lease; zero when never.
	LeaseRenewed(ctx context.Context) (time.Time, error)
}

// Libvirt gives facts of domains. libvirt.Poller is one.
type Libvirt interface {
	// Offer names the VMs that there are. It does not wait.
	Offer(vms []discover.VM)
	// Facts of a process's domain; nil when there are none.
	Facts(process host.TaskID) *model.DomainFacts
	// Health counts VMs by whether their libvirt answered.
	Health() (answering, failing int)
}

// Statuses takes the status of the plan. publish.PlanStatuses is one.
type Statuses interface {
	Offer(plan *v1alpha1.NodePlan, status v1alpha1.NodePlanStatus)
}

// Options are the agent's settings and what it works with.
type Options struct {
	Node string
	// Interval between two rounds of samples.
	Interval time.Duration
	// StaleAfter is the age of the manager's Lease from which on everything is
	// put back.
	StaleAfter time.Duration

	Host     host.Host
	Cluster  Cluster
	Libvirt  Libvirt
	Statuses Statuses
	// Prior is the power that is expected of a machine before anything of it is
	// measured. prior.Priors has one.
	Prior func(model.Topology) power.NodePrior
	// CPUTime that the agent itself has used. Nil: it is not told.
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
	shaping   *shape.Actuator
	turns     *shape.Turns
	buffering *buffer.Actuator
	keeper    *buffer.Keeper
	machine   *machine
	account   *metering.Account
	guarded   guarded
	switches  switches
	// journalLost is true until the threads that an earlier agent may have
	// changed have been looked for.
	journalLost bool

	previous *sample.Round
	sent     sample.SentMeans
	// told is what the status says of buffered VMs.
	told  map[host.TaskID]told
	state publish.State
	stale bool
	// blindSince is since when the cluster's objects are not known. Zero: they are.
	blindSince time.Time
	// renewed is the last renewal of the manager's Lease that was seen, since renewedSeen.
	renewed, renewedSeen time.Time
	// plan is the one that was followed last, nil when there was none.
	plan *v1alpha1.NodePlan
	// did is what the last round did of the plan's schedules.
	did []model.Switch
	// reported is the last status of the plan of that UID.
	reported    v1alpha1.NodePlanStatus
	reportedUID types.UID
	// failing is the last round's error as text, to log it once.
	failing string
}

// New takes over what the journal of an earlier agent holds.
func New(opts Options, j *journal.Journal) (*Agent, error) {
	entries, err := j.Load()
	lost := errors.Is(err, journal.ErrCorrupt)
	if err != nil && !lost {
		return nil, err
	}
	if lost {
		opts.Log.Error(err, "what an earlier agent had changed is not known: threads of VMs that do not run on their "+
			"whole cpuset, or have a scheduler slice, are taken for changed by it, and are put back unless the plan wants them so")
	} else if slices, uplinks, taps := j.Slices(), j.Uplinks(), j.Taps(); len(entries)+len(slices)+len(uplinks)+len(taps) > 0 {
		opts.Log.Info("took over what an earlier agent had changed",
			"threads", len(entries), "slices", len(slices), "uplinks", len(uplinks), "taps", len(taps))
	}
	machine, err := newMachine(opts.Host, opts.Clock)
	if err != nil {
		return nil, err
	}
	turns := shape.NewTurns(opts.Host, opts.Clock)
	keeper := buffer.NewKeeper(opts.Host, opts.Clock, opts.Interval)
	return &Agent{
		opts:        opts,
		renewedSeen: opts.Clock.Now(),
		machine:     machine,
		account:     metering.New(opts.Prior, opts.Clock.Now()),
		sampler:     sample.New(opts.Host, opts.Clock),
		affinity:    affinity.New(opts.Host, j, entries),
		slices:      slice.New(opts.Host, j, j.Slices()),
		shaping:     shape.New(opts.Host, j, j.Uplinks(), turns),
		turns:       turns,
		buffering:   buffer.New(opts.Host, j, j.Taps(), keeper),
		keeper:      keeper,
		guarded:     newGuarded(j, opts.Clock.Now()),
		switches:    switches{},
		journalLost: lost,
	}, nil
}

// Run works until the context ends, and then puts back all that was changed.
func (a *Agent) Run(ctx context.Context) error {
	var beside sync.WaitGroup
	beside.Go(func() { a.turns.Run(ctx) })
	beside.Go(func() { a.keeper.Run(ctx) })
	ticker := a.opts.Clock.NewTicker(a.opts.Interval)
	defer ticker.Stop()
	a.round(ctx, true)
	for {
		boundary, stop := a.boundary()
		select {
		case <-ctx.Done():
			stop()
			beside.Wait()
			return a.end()
		case <-ticker.C():
			a.round(ctx, true)
		case <-a.opts.Cluster.Changes():
			// The plan is followed at once. The rates keep their interval.
			a.round(ctx, false)
		case <-boundary:
			a.round(ctx, false)
		}
		stop()
	}
}

// end puts the node back, and has the plan's status say so: nobody else will
// until the next agent starts.
func (a *Agent) end() error {
	err := errors.Join(a.affinity.Restore(), a.slices.Restore(), a.shaping.Restore(), a.buffering.Restore())
	if a.plan != nil {
		a.opts.Statuses.Offer(a.plan, planStatus(a.plan, &a.reported, outcome{ended: true, err: err}, a.opts.Clock.Now()))
	}
	if err != nil {
		return fmt.Errorf("put the node back: %w", err)
	}
	a.opts.Log.Info("put the node back")
	return nil
}

// round samples, follows the plan, and publishes when asked to. Without a list
// of the processes nothing is known, and nothing is done: the state that was
// posted last grows old, which the probes tell.
func (a *Agent) round(ctx context.Context, publishing bool) {
	// Asked before the inventory: one that was read before the cluster's
	// objects were known would make every VM look gone.
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
	a.addDomains(rates, round)
	a.tellTrips(rates)
	rates.Switches = a.did
	a.state.Topology, a.state.Actors = a.machine.now()
	a.state.Energy = a.account.Add(rates, round.Energy, a.state.Topology)
	a.tellOwn(rates)
	a.previous = round
	a.state.Rounds++
	if failure != nil {
		a.state.RoundErrors++
	}
	a.state.Synced = synced
	a.state.Rates, a.state.Unknown, a.state.RoundError = rates, round.Unknown, failure
	a.state.Pinned, a.state.ManagerStale = a.affinity.Pinned(), a.stale
	a.state.Sliced, a.state.SlicedThreads = a.slices.Held()
	turns := a.turns.Stats()
	a.state.Shaped, a.state.Gates, a.state.GateChanges, a.state.GateDelay = a.shaping.Pods(), turns.Gates, turns.Changes, turns.Late
	a.state.Buffered = a.buffering.Pods()
	a.state.LibvirtAnswering, a.state.LibvirtFailing = a.opts.Libvirt.Health()
	a.state.Took = a.opts.Clock.Since(round.At)
	state := a.state
	a.opts.Board.Post(&state)
}

// addDomains completes the rates, whose VMs are in the order of the round's.
func (a *Agent) addDomains(rates *model.NodeRates, round *sample.Round) {
	vms := make([]discover.VM, 0, len(round.VMs))
	for i := range round.VMs {
		vms = append(vms, round.VMs[i].VM)
		rates.VMs[i].Domain = a.opts.Libvirt.Facts(round.VMs[i].Process)
	}
	a.opts.Libvirt.Offer(vms)
}

// follow makes the node what the plan wants.
func (a *Agent) follow(ctx context.Context, round *sample.Round, synced bool) error {
	a.did = nil
	if !synced {
		return a.waitForCluster(round)
	}
	a.blindSince = time.Time{}
	renewed, err := a.opts.Cluster.LeaseRenewed(ctx)
	if err != nil {
		return err
	}
	a.noteStale(renewed)
	a.assume(round)
	plan, err := a.opts.Cluster.Plan(ctx)
	if err != nil {
		return err
	}
	o := outcome{orders: ordersOf(plan, a.stale), stale: a.stale, renewed: renewed}
	unkept := a.watchOver(round)
	o.orders.withhold(a.guarded.Guard, round.At)
	if err := a.switchLevers(&o.orders); err != nil {
		return err
	}
	if o.applied, o.err = a.apply(round, o.orders); o.err == nil {
		a.did = a.switches.tell()
	}
	o.err = errors.Join(o.err, unkept)
	a.plan = plan
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

// waitForCluster leaves what an earlier agent changed as it is, for the plan may want it so,
// but not for long: VMs are not known, so that no guard watches over them.
func (a *Agent) waitForCluster(round *sample.Round) error {
	a.noteStale(time.Time{})
	now := a.opts.Clock.Now()
	if a.blindSince.IsZero() {
		a.blindSince = now
	}
	long := now.Sub(a.blindSince) >= longestBlind
	if !long && !a.stale {
		return nil
	}
	clear(a.switches)
	_, err := a.apply(round, orders{})
	if long {
		err = errors.Join(err, fmt.Errorf("the API server told nothing for %s, and no guard watches over VMs that are not known: "+
			"what an earlier agent had changed is put back; see whether the API server answers this node", longestBlind))
	}
	return err
}

func (a *Agent) noteStale(renewed time.Time) {
	now := a.opts.Clock.Now()
	if !renewed.IsZero() && !renewed.Equal(a.renewed) {
		a.renewed, a.renewedSeen = renewed, now
	}
	stale := isStale(now, a.renewedSeen, renewed, a.opts.StaleAfter)
	switch {
	case stale && !a.stale:
		a.opts.Log.Info("the manager does not renew its Lease: putting everything back", "renewed", renewed, "staleAfter", a.opts.StaleAfter)
	case !stale && a.stale:
		a.opts.Log.Info("the manager renews its Lease again: following the plan", "renewed", renewed)
	}
	a.stale = stale
}

// isStale tells whether the manager's Lease is out of date: by its time, and by how long
// ago a renewal was seen, which no clock that is set prolongs. seen is the agent's start
// when none was.
func isStale(now, seen, renewed time.Time, after time.Duration) bool {
	return now.Sub(seen) > after || !renewed.IsZero() && now.Sub(renewed) > after
}

// assume looks, once, for what an earlier agent changed whose journal is lost.
func (a *Agent) assume(round *sample.Round) {
	if !a.journalLost {
		return
	}
	a.journalLost = false
	for _, thread := range a.affinity.Assume(affinityVMs(round)) {
		a.opts.Log.Info("taken for bound by an earlier agent", "pid", thread.PID, "tid", thread.TID)
	}
	for _, thread := range a.slices.Assume(sliceVMs(round)) {
		a.opts.Log.Info("its slice is taken for set by an earlier agent", "pid", thread.PID, "tid", thread.TID)
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
