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
	"github.com/joulevirt/joulevirt/internal/trials"
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
	unit   trials.Unit
	policy string
}

// NewViews returns a store without views. changed is called when groups have something
// else to say, figures that only their figures are new.
func NewViews(changed, figures func(context.Context)) *Views {
	return &Views{changed: changed, figures: figures, again: make(chan event.GenericEvent), of: map[types.NamespacedName]*View{}, members: map[string]groupMember{}}
}

// view returns what others are shown of the round.
func (r *groupRound) view() *View {
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

func (t *Views) put(ctx context.Context, view *View) {
	t.mu.Lock()
	was := t.of[view.profile]
	t.of[view.profile] = view
	t.leave(was)
	maps.Copy(t.members, view.members)
	t.mu.Unlock()
	switch {
	case was == nil || was.state.State != view.state.State || was.state.Reason != view.state.Reason || !maps.Equal(was.vms, view.vms):
		t.changed(ctx)
	case !maps.Equal(was.saving, view.saving):
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

// All returns the views by profile.
func (t *Views) All() map[types.NamespacedName]*View {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.of)
}

// collector shows the groups, from the last looks: a group that went has
// no series any longer.
type collector struct {
	collect.Set
	views *Views
}

// NewCollector returns the collector of the groups' metrics.
func NewCollector(views *Views) prometheus.Collector {
	return &collector{collect.NewSet("group_members", "group_sigma_bytes_per_second", "group_effective_talkers", "group_predicted_saving_watts", "group_lingering_bytes_ratio"), views}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	const bitsPerByte = 8
	views := c.views.All()
	keys := slices.SortedFunc(maps.Keys(views), func(x, y types.NamespacedName) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for _, key := range keys {
		view := views[key]
		gauge := func(name string, value float64, more ...string) {
			c.Gauge(out, "group_"+name, value, append([]string{key.Namespace, key.Name}, more...)...)
		}
		for state, count := range view.counts {
			gauge("members", float64(count), state)
		}
		for share, spread := range map[string]*traffic.Spread{"Measured": view.spread, "Planned": view.planned} {
			if spread != nil {
				gauge("sigma_bytes_per_second", float64(spread.Sigma)/bitsPerByte, share)
				gauge("effective_talkers", spread.Talkers, share)
			}
		}
		if view.total != nil {
			gauge("predicted_saving_watts", float64(view.total.Watts))
		}
		if view.lingering != nil {
			gauge("lingering_bytes_ratio", *view.lingering)
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
func Summarize(profiles []v1alpha1.VMNetworkProfile, views map[types.NamespacedName]*View) (sum Summary, awaited bool) {
	sum = Summary{States: map[types.NamespacedName]objects.LeverState{}, Savings: map[string]power.Estimate{}}
	for i := range profiles {
		profile := &profiles[i]
		if profile.Spec.Group == nil || !profile.DeletionTimestamp.IsZero() {
			continue
		}
		view := views[client.ObjectKeyFromObject(profile)]
		if view != nil && view.state.State == v1alpha1.LeverInForce || view == nil && wasInForce(profile) {
			sum.InForce = append(sum.InForce, client.ObjectKeyFromObject(profile).String())
		}
		if view == nil {
			awaited = true
			continue
		}
		for name := range view.vms {
			sum.States[types.NamespacedName{Namespace: profile.Namespace, Name: name}] = view.state
		}
		for node, saving := range view.saving {
			all := sum.Savings[node]
			all.Watts += saving.Watts
			all.StdErr += saving.StdErr
			sum.Savings[node] = all
		}
	}
	return sum, awaited
}

// wasInForce tells what was said of a group that was not looked at yet.
func wasInForce(profile *v1alpha1.VMNetworkProfile) bool {
	said := profile.Status.Traffic
	return said != nil && said.State == v1alpha1.LeverInForce && said.ObservedGeneration == profile.Generation
}
