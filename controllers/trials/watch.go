package trials

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/slots"
	"github.com/joulevirt/joulevirt/internal/plan"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/trials"
)

// Potentials are what levers would save on a node, as far as that was computed.
type Potentials interface {
	Of(node string) []model.Potential
}

// HoldBack is the share of time in which a policy has adopted levers off.
func HoldBack(policy *v1alpha1.EnergyPolicy) float64 {
	return float64(ptr.Deref(policy.Spec.Verification.HoldBackPercent, 0)) / 100
}

// TooSlow says why a meter cannot judge a slot. Empty: it can.
func TooSlow(choice energy.Choice) string {
	if choice.Source == v1alpha1.PowerPrometheus && choice.Power != nil && choice.Power.IntervalSeconds > meterLimit.Seconds() {
		return fmt.Sprintf("the meter's figures are means over %.0f s, and a trial needs means over %.0f s at most: have the server scrape more often", choice.Power.IntervalSeconds, meterLimit.Seconds())
	}
	return ""
}

// UnitOf returns a group or HybridWorkload as trials see it, whose VMs run on nodes whose power is by choices of
// the same order. What it could do now is left out. unknown is true while it is not known of a node whether
// a meter measures it.
func UnitOf(name string, nodes []planner.GroupNode, choices []energy.Choice) (unit trials.Unit, unknown bool) {
	unit = trials.Unit{Name: name, Metered: len(nodes) > 0, Approved: len(nodes) > 0}
	for i := range nodes {
		unit.Nodes = append(unit.Nodes, nodes[i].Name)
		unit.Metered = unit.Metered && choices[i].Metered
		unit.TooSlow = cmp.Or(unit.TooSlow, TooSlow(choices[i]))
		unit.Approved = unit.Approved && nodes[i].Untried
		unknown = unknown || choices[i].Unknown || !choices[i].LostSince.IsZero()
	}
	slices.Sort(unit.Nodes)
	return unit, unknown
}

// Watch records what is known of all governed nodes, with each look at their power, and then lets
// trials decide.
type Watch struct {
	WatchOptions
	// rounds is when trials decided last.
	rounds time.Time
	// known is what was last known of each node.
	known map[string]*knownNode

	mu sync.Mutex
	// facts are of when each node was planned last.
	facts map[string]nodeFacts
}

// WatchOptions are what a Watch works with.
type WatchOptions struct {
	Reader     client.Reader
	Memory     *Memory
	Rates      observe.Rates
	Past       *observe.MeterPast
	Potentials Potentials
	// Groups are a policy's groups of VMs and HybridWorkloads as units.
	Groups   func(policy string) []trials.Unit
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Interval is the least time between two decisions.
	Interval time.Duration
	// Replan is called with units that are to be planned anew, Decided with policies of which something is
	// to be stored and reported soon.
	Replan, Decided func(ctx context.Context, name string)
}

// knownNode is what is remembered of a node between two looks.
type knownNode struct {
	// begun is true once it goes on from what an earlier manager knew.
	begun bool
	// version of the plan that the others are read from.
	version   string
	schedules []model.Schedule
	acting    []v1alpha1.Lever
	// seen is when the node was looked at last.
	seen time.Time
}

// nodeFacts is what is known of a node when it is planned.
type nodeFacts struct {
	policy model.Policy
	// waits is true when nothing new may be done.
	waits bool
}

// NewWatch returns a watch that has looked at no node yet.
func NewWatch(o WatchOptions) *Watch {
	return &Watch{WatchOptions: o, facts: map[string]nodeFacts{}, known: map[string]*knownNode{}}
}

// Planned records what is known of a node when it is planned.
func (w *Watch) Planned(node model.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts[node.Name] = nodeFacts{
		policy: node.Policy,
		waits:  node.Frozen || node.Hold.Reason != "" || node.OptOut.All || !node.Reported || node.Rates == nil || node.MeterUnknown || node.MeterLost,
	}
}

// Look records one look at all governed nodes, whose power is by choices of the same order, and
// decides when it is time. It is called by one goroutine at a time.
func (w *Watch) Look(ctx context.Context, governed []objects.GovernedNode, choices []energy.Choice) error {
	plans, err := objects.ListPlans(ctx, w.Reader)
	if err != nil {
		return err
	}
	now := w.Clock.Now()
	names := make(map[string]bool, len(governed))
	for i := range governed {
		names[governed[i].Node.Name] = true
		w.observe(&governed[i], &choices[i], plans[governed[i].Node.Name], now)
	}
	w.retain(names)
	if since := now.Sub(w.rounds); since >= 0 && since < w.Interval {
		return nil
	}
	w.rounds = now
	var policies v1alpha1.EnergyPolicyList
	if err := w.Reader.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list EnergyPolicies: %w", err)
	}
	for i := range policies.Items {
		policy := &policies.Items[i]
		units := w.Groups(policy.Name)
		for n := range governed {
			if governed[n].Policy != policy.Name {
				continue
			}
			if unit, known := w.unit(&governed[n], &choices[n], policy, plans[governed[n].Node.Name], now); known {
				units = append(units, unit)
			}
		}
		w.round(ctx, policy, units)
	}
	return nil
}

// observe records what is known of a node now.
func (w *Watch) observe(g *objects.GovernedNode, choice *energy.Choice, current *objects.IndexedPlan, now time.Time) {
	name := g.Node.Name
	known := w.known[name]
	if known == nil {
		known = &knownNode{seen: now}
		w.known[name] = known
	}
	if was, found, loaded := w.Memory.Known(g.Policy, name); loaded && !known.begun {
		known.begun = true
		if found && was.Metered && !choice.Metered {
			w.Past.Metered(name, now) // When it lost its meter is not known: it counts from now on.
			choice.LostSince = w.Past.Lose(name, g.Settings, choice, now)
		}
	}
	switch {
	case current == nil:
		known.version, known.schedules, known.acting = "", nil, nil
	case known.version == "" || known.version != current.ResourceVersion:
		known.version = current.ResourceVersion
		known.schedules, known.acting = observe.Switched(current.NodePlan)
	}
	s := slots.Sample{Schedules: known.schedules}
	s.Rates, s.Received = w.Rates.Latest(name)
	s.Power, s.Now = choice.Power, now
	w.Memory.Observe(g.Policy, name, s)
	w.bookModelled(g, choice, known, now)
	known.seen = now
}

// bookModelled books what the levers of a node without a meter save by the models, if the policy lets
// them act on those.
func (w *Watch) bookModelled(g *objects.GovernedNode, choice *energy.Choice, known *knownNode, now time.Time) {
	facts, planned := w.planned(g.Node.Name)
	since := now.Sub(known.seen)
	if choice.Metered || choice.Unknown || !choice.LostSince.IsZero() || !planned || !facts.policy.AllowModelled || since <= 0 || since > time.Minute {
		return
	}
	for _, p := range w.Potentials.Of(g.Node.Name) {
		if p.StdErr > 0 && slices.Contains(known.acting, p.Lever) {
			w.Memory.BookModelled(g.Policy, p.Lever, float64(p.Watts)*since.Seconds())
		}
	}
}

func (w *Watch) planned(node string) (nodeFacts, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	facts, known := w.facts[node]
	return facts, known
}

// unit is a node as something on which levers are tried. False: it is not known yet what it is.
func (w *Watch) unit(g *objects.GovernedNode, choice *energy.Choice, policy *v1alpha1.EnergyPolicy, current *objects.IndexedPlan, now time.Time) (trials.Unit, bool) {
	name := g.Node.Name
	unit, known, _ := w.Memory.Known(policy.Name, name)
	unit.Name, unit.Nodes = name, []string{name}
	unit.Approved = policy.Spec.Verification.Trials == v1alpha1.TrialsDisabled || policy.Spec.Mode == v1alpha1.ModeRecommend
	if reported := g.Report != nil && len(g.Report.Status.Topology.CoreGroups) > 0; !reported && !known {
		return unit, false
	} else if reported && g.Report.Status.Topology.CPUModel != "" {
		unit.CPUModel = g.Report.Status.Topology.CPUModel
	}
	lost := !choice.LostSince.IsZero()
	switch {
	case !choice.Unknown && !lost:
		unit.Metered, unit.TooSlow = choice.Metered, TooSlow(*choice)
	case !known && !slices.ContainsFunc(g.Settings, func(s energy.Setting) bool { return s.Type.Measures() }):
		unit.Metered = false
	case !known:
		return unit, false
	}
	facts, planned := w.planned(name)
	ready := planned && facts.policy.Name == policy.Name && !facts.waits && !policy.Spec.Paused && policy.Spec.Mode != v1alpha1.ModeObserve &&
		!choice.Unknown && !lost && current != nil && current.Spec.Apply && current.Spec.Policy == policy.Name && !objects.IsChanging(current.NodePlan, now)
	for _, p := range w.Potentials.Of(name) {
		if ready && p.VMs > 0 && facts.policy.Allows(p.Lever) {
			unit.Candidates = append(unit.Candidates, p.Lever)
		}
	}
	if rates, _ := w.Rates.Latest(name); rates != nil && current != nil {
		unit.Stopped = stopped(rates, plan.DecodeWithdrawals(current.Spec.Withdrawn))
	}
	return unit, true
}

// few is of how many of a node's VMs one may be hurt, by chance, before a lever is stopped.
const few = 4

// stopped are levers that guards undid on a node: for the whole node, or for so many of its VMs that
// it is no chance.
func stopped(rates *model.NodeRates, withdrawn []model.Withdrawal) map[v1alpha1.Lever]trials.Stop {
	type undone struct {
		pod   string
		lever v1alpha1.Lever
		trials.Stop
	}
	var all []undone
	for i := range rates.Trips {
		t := &rates.Trips[i]
		all = append(all, undone{t.PodUID, t.Lever, trials.Stop{At: t.Time, Evidence: t.Evidence()}})
	}
	for i := range withdrawn {
		if w := &withdrawn[i]; w.Count > 0 { // one that did nothing counts against none
			all = append(all, undone{w.PodUID, w.Lever, trials.Stop{At: w.Time, Evidence: w.Message}})
		}
	}
	// The newest of each VM counts, and of those the one with which there are too many.
	slices.SortStableFunc(all, func(x, y undone) int { return y.At.Compare(x.At) })
	out, pods := map[v1alpha1.Lever]trials.Stop{}, map[v1alpha1.Lever]map[string]bool{}
	for _, u := range all {
		if pods[u.lever] == nil {
			pods[u.lever] = map[string]bool{}
		}
		if pods[u.lever][u.pod] = true; u.pod != "" && few*len(pods[u.lever]) < len(rates.VMs) {
			continue
		}
		if _, done := out[u.lever]; !done {
			out[u.lever] = u.Stop
		}
	}
	return out
}

func (w *Watch) retain(names map[string]bool) {
	w.Memory.Retain(names)
	maps.DeleteFunc(w.known, func(name string, _ *knownNode) bool { return !names[name] })
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.facts, func(name string, _ nodeFacts) bool { return !names[name] })
}

// round lets the trials of one policy decide.
func (w *Watch) round(ctx context.Context, policy *v1alpha1.EnergyPolicy, units []trials.Unit) {
	decided, changed := w.Memory.Round(policy.Name, units, HoldBack(policy))
	if len(decided) > 0 {
		w.Decided(ctx, policy.Name)
		report(w.Recorder, policy, decided)
	}
	for _, unit := range changed {
		w.Replan(ctx, unit)
	}
}
