// Package trials feeds the trials of levers, and stores them and the ledger in EnergyLedgers.
package trials

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/observe/proofs"
	"github.com/joulevirt/joulevirt/internal/plan"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// factsAwaited is how long after its start the manager waits until all groups of a policy
// are known, before it decides without the others: one that is missing would leave its
// trial.
const factsAwaited = 2 * time.Minute

// Watch takes in what is heard of all governed nodes, with each look at their power,
// and then lets proofs decide: which levers are tried where, and what became of them.
type Watch struct {
	WatchOptions
	since time.Time
	// rounds is when the policies' proofs decided last.
	rounds time.Time

	mu sync.Mutex
	// facts are of when each node was planned last.
	facts map[string]nodeFacts
	// known is what was last known of each node.
	known map[string]*knownNode
}

// WatchOptions are what a Watch works with.
type WatchOptions struct {
	Reader     client.Reader
	Store      *proofs.Store
	Rates      observe.Rates
	Past       *observe.MeterPast
	Models     *learned.Models
	Potentials Potentials
	// Groups are a policy's groups of VMs as units. False: not all were looked at yet, and
	// one that is missing would leave its trial.
	Groups   func(ctx context.Context, policy string) ([]proof.Unit, bool)
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Pull is the time between two pulls, interval the least between two decisions.
	Pull, Interval time.Duration
	// Replan is told of nodes, and regroup of groups as "namespace/name", that are to be
	// planned anew, decided of policies of which something is to be stored soon.
	Replan, Regroup func(ctx context.Context, unit string)
	Decided         func(policy string)
	// LookSoon is called when not all nodes are known shortly after the start. It may block. Nil:
	// the next look is in an interval.
	LookSoon func(ctx context.Context)
}

// knownNode is what is remembered of a node between two looks.
type knownNode struct {
	workload proofs.Workload
	// begun is true once it goes on from what an earlier manager knew, to which the node
	// had no meter if it is unmetered.
	begun, unmetered bool
	class            verify.Class
	meter            verify.Meter
	// heard is true once it was known whether the node has a meter.
	heard bool
	// version of the plan that has and acting are read from.
	version string
	has     []model.Schedule
	acting  []v1alpha1.Lever
	// partly are levers that did not come to all VMs yet.
	partly []v1alpha1.Lever
}

// NewWatch returns a watch that has looked at no node yet.
func NewWatch(o WatchOptions) *Watch {
	return &Watch{WatchOptions: o, facts: map[string]nodeFacts{}, known: map[string]*knownNode{}}
}

// Planned notes what is known of a node when it is planned.
func (w *Watch) Planned(node model.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts[node.Name] = factsOf(&node)
}

// Look takes in one look at all governed nodes, whose power is by choices of the same order,
// and decides when it is time. It is called by one goroutine at a time.
func (w *Watch) Look(ctx context.Context, governed []objects.GovernedNode, choices []energy.Choice) error {
	plans, err := objects.ListPlans(ctx, w.Reader)
	if err != nil {
		return err
	}
	now := w.Clock.Now()
	if w.since.IsZero() {
		w.since = now
	}
	names := make(map[string]bool, len(governed))
	nodes := make(map[string][]nodeSight)
	allKnown := true
	for i := range governed {
		s := w.see(governed[i], choices[i], plans[governed[i].Node.Name], now)
		names[s.Node.Name] = true
		nodes[s.Policy] = append(nodes[s.Policy], s)
		allKnown = allKnown && s.isKnown()
	}
	w.retain(names)
	if since := now.Sub(w.rounds); since >= 0 && since < w.Interval {
		return nil
	}
	// The levers of nodes that are not known wait: a new leader looks again soon.
	if allKnown || now.Sub(w.since) >= factsAwaited {
		w.rounds = now
	} else if w.LookSoon != nil {
		go w.LookSoon(ctx)
	}
	var policies v1alpha1.EnergyPolicyList
	if err := w.Reader.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list EnergyPolicies: %w", err)
	}
	for i := range policies.Items {
		w.round(ctx, &policies.Items[i], nodes[policies.Items[i].Name], now)
	}
	return nil
}

// see takes in what is known of a node now.
func (w *Watch) see(g objects.GovernedNode, choice energy.Choice, current *objects.IndexedPlan, now time.Time) nodeSight {
	name := g.Node.Name
	s := nodeSight{GovernedNode: g, choice: choice}
	if w.Potentials != nil {
		s.potentials = w.Potentials.Of(name)
	}
	known := w.known[name]
	if known == nil {
		known = &knownNode{}
		w.known[name] = known
	}
	w.mu.Lock()
	if facts, found := w.facts[name]; found {
		s.facts = &facts
	}
	w.mu.Unlock()
	if current != nil {
		s.plan = current.NodePlan
	}
	if was, read := w.Store.Was(g.Policy, name); read && !known.begun {
		known.begin(was)
		if was != nil && was.Metered && !choice.Metered {
			w.Past.Metered(name, now) // When it lost its meter is not known: it counts from now on.
			s.choice.LostSince = w.Past.Lose(name, g.Settings, &choice, now)
		}
	}
	known.update(&s, w.Pull, now)
	s.begun, s.class, s.meter, s.has = known.begun, known.class, known.meter, known.has
	heard := proofs.Heard{Policy: g.Policy, Class: s.class, Acting: known.acting}
	heard.Rates, heard.Received = w.Rates.Latest(name)
	heard.Power, heard.Schedules = choice.Power, s.has
	if s.plan != nil {
		heard.Withdrawn, heard.Partly = plan.DecodeWithdrawals(s.plan.Spec.Withdrawn), known.partly
	}
	heard.Predicted = s.foretold(known.partly)
	heard.MostWatts = MostWatts(s.Report, choice)
	w.Store.Hear(name, heard, now)
	return s
}

// begin with what an earlier manager took the node to be. Nil: none knew it.
func (k *knownNode) begin(was *proof.Was) {
	k.begun = true
	if was != nil {
		k.workload.Begin(was.Class.Workload)
		k.unmetered = !was.Metered
	}
}

// update what is known. What is not known now is as it was.
func (k *knownNode) update(s *nodeSight, pull time.Duration, now time.Time) {
	if s.facts != nil {
		if class := observe.ClassOf(s.Report, k.workload.Look(s.facts.vms, now)); class != (verify.Class{}) {
			if k.class.CPUModel == class.CPUModel {
				// An agent that once cannot read them does not make another node of it.
				class.Clocks = cmp.Or(class.Clocks, k.class.Clocks)
			}
			k.class = class
		}
	}
	switch {
	case !s.choice.Unknown && s.choice.LostSince.IsZero():
		k.meter, k.heard = MeterOf(s.choice, pull), true
	case !k.heard && k.unmetered:
		// Its levers act by what is modelled, and go on.
		k.meter = verify.Meter{}
	case !k.heard:
		k.meter = meterAwaited(s.Settings, pull)
	}
	switch {
	case s.plan == nil:
		k.version, k.has, k.acting, k.partly = "", nil, nil, nil
	case k.version == "" || k.version != s.plan.ResourceVersion:
		k.version = s.plan.ResourceVersion
		k.has, k.acting = observe.Switched(s.plan)
		k.partly = observe.Partly(s.plan)
	}
}

func (w *Watch) retain(names map[string]bool) {
	w.Store.Retain(names)
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.facts, func(name string, _ nodeFacts) bool { return !names[name] })
	maps.DeleteFunc(w.known, func(name string, _ *knownNode) bool { return !names[name] })
}

// round lets one policy's proofs decide.
func (w *Watch) round(ctx context.Context, policy *v1alpha1.EnergyPolicy, sights []nodeSight, now time.Time) {
	all := make([]proof.Unit, 0, len(sights))
	for i := range sights {
		if sights[i].isKnown() {
			all = append(all, sights[i].unit(policy, now))
		}
	}
	groups, known := w.Groups(ctx, policy.Name)
	if !known && now.Sub(w.since) < factsAwaited {
		return
	}
	all = append(all, groups...)
	news, changed := w.Store.Round(policy.Name, all, ProofSettings(policy), now)
	if len(news) > 0 {
		w.Decided(policy.Name)
		reportProof(w.Recorder, policy, news)
	}
	for _, unit := range changed {
		if strings.Contains(unit, "/") {
			w.Regroup(ctx, unit)
		} else {
			w.Replan(ctx, unit)
		}
	}
}
