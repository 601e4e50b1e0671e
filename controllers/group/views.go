package group

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/collect"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/observe/guards"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// Views are the last looks at all groups, for metrics and the statuses of
// policies. They are safe for concurrent use.
type Views struct {
	// changed is called when groups are steered otherwise, figures that they are
	// predicted to save something else. They may block until the context ends.
	changed, figures func(context.Context)
	// again are groups to be planned anew.
	again chan event.GenericEvent

	mu sync.Mutex
	of map[types.NamespacedName]*View
	// members of all groups by their launcher pods.
	members map[string]groupMember
}

// View is one look at one group. It is immutable.
type View struct {
	profile types.NamespacedName
	state   objects.LeverState
	// vms are the nodes of the members, by name.
	vms map[string]string
	// counts of members by what they are.
	counts map[string]int
	// spread and planned are how the traffic is spread, and how it would be. Nil: not known.
	spread, planned *traffic.Spread
	// saving by node. Nil: not known.
	total  *power.Estimate
	saving map[string]power.Estimate
	// lingering is a part of the bytes, 1 for all. Nil: not known.
	lingering *float64
	// members by their launcher pods.
	members map[string]groupMember
	// unit is the group as trials see it, policy the one in whose proofs it is. Empty: none.
	unit   proof.Unit
	policy string
}

// NewViews returns a store without sights. changed is called when groups have something
// else to say, figures that only their figures are new.
func NewViews(changed, figures func(context.Context)) *Views {
	return &Views{changed: changed, figures: figures, again: make(chan event.GenericEvent), of: map[types.NamespacedName]*View{}, members: map[string]groupMember{}}
}

// sight returns what others are shown of the round.
func (r *groupRound) sight() *View {
	s := &View{
		profile: r.seen.Routing.Profile, state: r.verdict(), vms: map[string]string{},
		counts: map[string]int{"all": len(r.seen.Plan.Members)}, spread: r.plan.Now, planned: r.plan.Planned,
		total: r.saving, saving: r.byNode, lingering: r.lingering(), members: r.members(),
	}
	for i := range r.seen.Plan.Members {
		m := &r.seen.Plan.Members[i]
		s.vms[m.Name] = r.seen.Plan.Nodes[m.Node].Name
		if m.Ready {
			s.counts["ready"]++
			if r.inForce(m.Name) > 0 {
				s.counts["active"]++
			}
		}
	}
	if r.plan.Action == planner.GroupLeave && s.counts["active"] == 0 {
		delete(s.counts, "active") // it was not read
	}
	return s
}

func (t *Views) put(ctx context.Context, sight *View) {
	t.mu.Lock()
	was := t.of[sight.profile]
	t.of[sight.profile] = sight
	t.leave(was)
	maps.Copy(t.members, sight.members)
	t.mu.Unlock()
	switch {
	case was == nil || was.state.State != sight.state.State || was.state.Reason != sight.state.Reason || !maps.Equal(was.vms, sight.vms):
		t.changed(ctx)
	case !maps.Equal(was.saving, sight.saving):
		t.figures(ctx)
	}
}

func (t *Views) forget(ctx context.Context, profile types.NamespacedName) {
	t.mu.Lock()
	was, known := t.of[profile]
	delete(t.of, profile)
	t.leave(was)
	t.mu.Unlock()
	if known {
		t.changed(ctx)
	}
}

// leave drops the members of a look that is over.
func (t *Views) leave(was *View) {
	if was == nil {
		return
	}
	for pod := range was.members {
		if t.members[pod].group == was.profile.String() {
			delete(t.members, pod)
		}
	}
}

// Member returns the group of the VM of a launcher pod, empty for none, and how its share compares.
func (t *Views) Member(podUID string) (group string, share guards.Share) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.members[podUID]
	return m.group, m.share
}

// All returns the sights by profile.
func (t *Views) All() map[types.NamespacedName]*View {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.of)
}

// collector shows the groups, from the last looks: a group that went has
// no series any longer.
type collector struct {
	collect.Set
	sights *Views
}

// NewCollector returns the collector of the groups' metrics.
func NewCollector(sights *Views) prometheus.Collector {
	return &collector{collect.NewSet("group_members", "group_sigma_bytes_per_second", "group_effective_talkers", "group_predicted_saving_watts", "group_lingering_bytes_ratio"), sights}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	const bitsPerByte = 8
	sights := c.sights.All()
	keys := slices.SortedFunc(maps.Keys(sights), func(x, y types.NamespacedName) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for _, key := range keys {
		sight := sights[key]
		gauge := func(name string, value float64, more ...string) {
			c.Gauge(out, "group_"+name, value, append([]string{key.Namespace, key.Name}, more...)...)
		}
		for state, count := range sight.counts {
			gauge("members", float64(count), state)
		}
		for share, spread := range map[string]*traffic.Spread{"Measured": sight.spread, "Planned": sight.planned} {
			if spread != nil {
				gauge("sigma_bytes_per_second", float64(spread.Sigma)/bitsPerByte, share)
				gauge("effective_talkers", spread.Talkers, share)
			}
		}
		if sight.total != nil {
			gauge("predicted_saving_watts", float64(sight.total.Watts))
		}
		if sight.lingering != nil {
			gauge("lingering_bytes_ratio", *sight.lingering)
		}
	}
}

// Summary is what policies tell of groups.
type Summary struct {
	// States of the members, by namespace and name.
	States map[types.NamespacedName]objects.LeverState
	// InForce are the groups, as "namespace/name", of which traffic is steered as planned.
	InForce []string
	// Savings by node: those of groups with members there.
	Savings map[string]power.Estimate
}

// Summarize sums up the looks at the groups that there are. It returns true
// while some of them were not looked at yet, as after a change of leader.
func Summarize(profiles []v1alpha1.VMNetworkProfile, sights map[types.NamespacedName]*View) (view Summary, awaited bool) {
	view = Summary{States: map[types.NamespacedName]objects.LeverState{}, Savings: map[string]power.Estimate{}}
	for i := range profiles {
		profile := &profiles[i]
		if profile.Spec.Group == nil || !profile.DeletionTimestamp.IsZero() {
			continue
		}
		sight := sights[client.ObjectKeyFromObject(profile)]
		if sight != nil && sight.state.State == v1alpha1.LeverInForce || sight == nil && wasInForce(profile) {
			view.InForce = append(view.InForce, client.ObjectKeyFromObject(profile).String())
		}
		if sight == nil {
			awaited = true
			continue
		}
		for name := range sight.vms {
			view.States[types.NamespacedName{Namespace: profile.Namespace, Name: name}] = sight.state
		}
		for node, saving := range sight.saving {
			sum := view.Savings[node]
			sum.Watts += saving.Watts
			sum.StdErr += saving.StdErr
			view.Savings[node] = sum
		}
	}
	return view, awaited
}

// wasInForce tells what was said of a group that was not looked at yet.
func wasInForce(profile *v1alpha1.VMNetworkProfile) bool {
	said := profile.Status.Traffic
	return said != nil && said.State == v1alpha1.LeverInForce && said.ObservedGeneration == profile.Generation
}
