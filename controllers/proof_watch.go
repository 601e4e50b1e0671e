package controllers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/observe/proofs"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/whatif"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// factsAwaited is how long after its start the manager waits until all groups of a policy
// are known, before it decides without the others: one that is missing would leave its
// trial.
const factsAwaited = 2 * time.Minute

// proofWatch takes in what is heard of all governed nodes, with each look at their power,
// and then lets proofs decide: which levers are tried where, and what became of them.
type proofWatch struct {
	proofWatchOptions
	since time.Time
	// rounds is when the policies' proofs decided last.
	rounds time.Time

	mu sync.Mutex
	// facts are of when each node was planned last.
	facts map[string]nodeFacts
	// known is what was last known of each node.
	known map[string]*knownNode
}

type proofWatchOptions struct {
	reader     client.Reader
	store      *proofs.Store
	rates      observe.Rates
	past       *observe.MeterPast
	models     *learned.Models
	potentials Potentials
	// groups are a policy's groups of VMs as units. False: not all were looked at yet, and
	// one that is missing would leave its trial.
	groups   func(ctx context.Context, policy string) ([]proof.Unit, bool)
	recorder events.EventRecorder
	clock    clock.PassiveClock
	// pull is the time between two pulls, interval the least between two decisions.
	pull, interval time.Duration
	// cpuTime that the manager itself has used. Nil: it is not counted.
	cpuTime func() time.Duration
	// replan is told of nodes, and regroup of groups as "namespace/name", that are to be
	// planned anew, decided of policies of which something is to be stored soon.
	replan, regroup func(ctx context.Context, unit string)
	decided         func(policy string)
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
	// doubted is since when its meter is not believed, as was told. Zero: it is.
	doubted time.Time
	// version of the plan that has and acting are read from.
	version string
	has     []model.Schedule
	acting  []model.Lever
	// partly are levers that did not come to all VMs yet.
	partly []model.Lever
}

func newProofWatch(o proofWatchOptions) *proofWatch {
	return &proofWatch{proofWatchOptions: o, facts: map[string]nodeFacts{}, known: map[string]*knownNode{}}
}

// Planned notes what is known of a node when it is planned.
func (w *proofWatch) Planned(node model.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts[node.Name] = factsOf(&node)
}

// Look takes in one look at all governed nodes, whose power is by choices of the same order,
// and decides when it is time. It is called by one goroutine at a time.
func (w *proofWatch) Look(ctx context.Context, governed []governedNode, choices []energy.Choice) error {
	plans, err := listPlans(ctx, w.reader)
	if err != nil {
		return err
	}
	now := w.clock.Now()
	if w.since.IsZero() {
		w.since = now
	}
	names := make(map[string]bool, len(governed))
	nodes := make(map[string][]nodeSight)
	for i := range governed {
		s := w.see(governed[i], choices[i], plans[governed[i].node.Name], now)
		names[s.node.Name] = true
		nodes[s.policy] = append(nodes[s.policy], s)
	}
	w.retain(names)
	if since := now.Sub(w.rounds); since >= 0 && since < w.interval {
		return nil
	}
	w.rounds = now
	w.own(nodes, now)
	var policies v1alpha1.EnergyPolicyList
	if err := w.reader.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list EnergyPolicies: %w", err)
	}
	for i := range policies.Items {
		w.round(ctx, &policies.Items[i], nodes[policies.Items[i].Name], now)
	}
	return nil
}

// see takes in what is known of a node now.
func (w *proofWatch) see(g governedNode, choice energy.Choice, plan *indexedPlan, now time.Time) nodeSight {
	name := g.node.Name
	s := nodeSight{governedNode: g, choice: choice}
	if w.potentials != nil {
		s.potentials = w.potentials.Of(name)
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
	if plan != nil {
		s.plan = plan.NodePlan
	}
	if was, read := w.store.Was(g.policy, name); read && !known.begun {
		known.begin(was)
		if was != nil && was.Metered && !choice.Metered {
			w.past.Metered(name, now) // When it lost its meter is not known: it counts from now on.
			s.choice.LostSince = w.past.Lose(name, g.settings, &choice, now)
		}
	}
	known.update(&s, w.pull, now)
	s.begun, s.class, s.meter, s.has = known.begun, known.class, known.meter, known.has
	s.meter = w.noisy(s.meter, name)
	heard := proofs.Heard{Policy: g.policy, Class: s.class, Acting: known.acting}
	heard.Rates, heard.Received = w.rates.Heard(name)
	heard.Power, heard.Schedules = choice.Power, s.has
	if s.plan != nil {
		heard.Withdrawn, heard.Partly = observe.Withdrawn(s.plan), known.partly
	}
	heard.Foretold = s.foretold(known.partly)
	heard.BusyCore, heard.MostWatts = busyCore(w.models, name), mostWatts(s.report, choice)
	w.store.Hear(name, heard, now)
	w.doubt(&s, known)
	return s
}

// noisy is a meter with what is known of the noise of nodes' figures. Blocks that were drawn
// keep their length.
func (w *proofWatch) noisy(meter verify.Meter, nodes ...string) verify.Meter {
	if meter == (verify.Meter{}) {
		return meter
	}
	for _, node := range nodes {
		meter.Noise = max(meter.Noise, w.store.Meter(node).Noise)
	}
	return meter
}

// doubt tells once that a node's meter is not believed any more.
func (w *proofWatch) doubt(s *nodeSight, known *knownNode) {
	verdict := w.store.Meter(s.node.Name)
	since := verdict.Since()
	if since.Equal(known.doubted) {
		return
	}
	if known.doubted = since; since.IsZero() || s.report == nil {
		return
	}
	const percent = 100
	w.recorder.Eventf(s.report, nil, corev1.EventTypeWarning, v1alpha1.ReasonMeterSuspect, "Doubt",
		"the meter of node %s (%s) says %+.0f %% against what it said, since %s by the node's clock, which neither the load nor a lever explains: nothing of that time is judged or booked",
		s.node.Name, s.choice.Source, percent*(verdict.Factor-1), since.UTC().Format(time.RFC3339))
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
		if class := observe.ClassOf(s.report, k.workload.Look(s.facts.vms, now)); class != (verify.Class{}) {
			if k.class.CPUModel == class.CPUModel {
				// An agent that once cannot read them does not make another node of it.
				class.Clocks = cmp.Or(class.Clocks, k.class.Clocks)
			}
			k.class = class
		}
	}
	switch {
	case !s.choice.Unknown && s.choice.LostSince.IsZero():
		k.meter, k.heard = meterOf(s.choice, pull), true
	case !k.heard && k.unmetered:
		// Its levers act by what is modelled, and go on.
		k.meter = verify.Meter{}
	case !k.heard:
		k.meter = meterAwaited(s.settings, pull)
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

// busyCore is what one more busy core of a node draws, by what was learned of it or by its
// priors. The zero value: nothing is known of the node.
func busyCore(models *learned.Models, node string) power.Estimate {
	var estimate power.Estimate
	models.Basis(node, func(host whatif.Host) {
		estimate = host.Model.Change(power.Load{}, power.Load{BusyCores: 1})
	})
	return estimate
}

func (w *proofWatch) retain(names map[string]bool) {
	w.store.Retain(names)
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.facts, func(name string, _ nodeFacts) bool { return !names[name] })
	maps.DeleteFunc(w.known, func(name string, _ *knownNode) bool { return !names[name] })
}

// own tells what the manager itself used.
func (w *proofWatch) own(nodes map[string][]nodeSight, now time.Time) {
	if w.cpuTime == nil {
		return
	}
	shares := make(map[string]proofs.Share, len(nodes))
	for policy, sights := range nodes {
		share := proofs.Share{Nodes: len(sights), Modelled: true}
		for i := range sights {
			cost := busyCore(w.models, sights[i].node.Name)
			share.BusyCore.Watts += cost.Watts / units.Watts(len(sights))
			share.BusyCore.StdErr += cost.StdErr / units.Watts(len(sights))
			share.Modelled = share.Modelled && !sights[i].choice.Metered
		}
		shares[policy] = share
	}
	w.store.Own(w.cpuTime(), shares, now)
}

// round lets one policy's proofs decide.
func (w *proofWatch) round(ctx context.Context, policy *v1alpha1.EnergyPolicy, sights []nodeSight, now time.Time) {
	all := make([]proof.Unit, 0, len(sights))
	for i := range sights {
		if sights[i].isKnown() {
			all = append(all, sights[i].unit(policy, now))
		}
	}
	groups, known := w.groups(ctx, policy.Name)
	if !known && now.Sub(w.since) < factsAwaited {
		return
	}
	for i := range groups {
		groups[i].Meter = w.noisy(groups[i].Meter, groups[i].Nodes...)
	}
	all = append(all, groups...)
	news, changed := w.store.Round(policy.Name, all, proofSettings(policy), now)
	if len(news) > 0 {
		w.decided(policy.Name)
		tellProof(w.recorder, policy, news)
	}
	for _, unit := range changed {
		if strings.Contains(unit, "/") {
			w.regroup(ctx, unit)
		} else {
			w.replan(ctx, unit)
		}
	}
}
