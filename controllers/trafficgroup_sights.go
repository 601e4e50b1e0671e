package controllers

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// trafficSights are the last looks at all groups, for metrics and the statuses of
// policies. They are safe for concurrent use.
type trafficSights struct {
	// changed is told that groups are steered otherwise, figures that they are
	// foretold to save something else. They may block until the context ends.
	changed, figures func(context.Context)
	// again are groups to be planned anew.
	again chan event.GenericEvent

	mu sync.Mutex
	of map[types.NamespacedName]*groupSight
	// members of all groups by their launcher pods.
	members map[string]groupMember
}

// groupSight is one look at one group. It is immutable.
type groupSight struct {
	profile types.NamespacedName
	state   leverState
	// vms are the nodes of the members, by name.
	vms map[string]string
	// counts of members by what they are.
	counts map[string]int
	spread *v1alpha1.TrafficSpread
	// saving by node. Nil: not known.
	total  *power.Estimate
	saving map[string]power.Estimate
	// lingering is a percentage. Nil: not known.
	lingering *int32
	// members by their launcher pods.
	members map[string]groupMember
	// unit is the group as trials see it, policy the one in whose proofs it is. Empty: none.
	unit   proof.Unit
	policy string
}

func newTrafficSights(changed, figures func(context.Context)) *trafficSights {
	return &trafficSights{changed: changed, figures: figures, again: make(chan event.GenericEvent), of: map[types.NamespacedName]*groupSight{}, members: map[string]groupMember{}}
}

// sight returns what others are shown of the round.
func (r *groupRound) sight() *groupSight {
	s := &groupSight{
		profile: r.seen.Routing.Profile, state: r.verdict(), vms: map[string]string{},
		counts: map[string]int{"all": len(r.seen.Plan.Members)}, spread: apiSpread(r.plan.Now),
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

func (t *trafficSights) put(ctx context.Context, sight *groupSight) {
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

func (t *trafficSights) forget(ctx context.Context, profile types.NamespacedName) {
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
func (t *trafficSights) leave(was *groupSight) {
	if was == nil {
		return
	}
	for pod := range was.members {
		if t.members[pod].group == was.profile.String() {
			delete(t.members, pod)
		}
	}
}

// member returns the VM of a launcher pod as one of a group. The zero value: it is of none.
func (t *trafficSights) member(podUID string) groupMember {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.members[podUID]
}

// all returns the sights by profile.
func (t *trafficSights) all() map[types.NamespacedName]*groupSight {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.of)
}

// trafficCollector shows the groups, from the last looks: a group that went has
// no series any longer.
type trafficCollector struct {
	sights *trafficSights

	members, sigma, talkers, saving, lingering *prometheus.Desc
}

func newTrafficCollector(sights *trafficSights) *trafficCollector {
	table := metrics.Manager()
	describe := func(name string) *prometheus.Desc { return table.Desc("joulevirt_group_"+name, nil) }
	return &trafficCollector{
		sights: sights, members: describe("members"), sigma: describe("sigma_bytes_per_second"), talkers: describe("effective_talkers"),
		saving: describe("predicted_saving_watts"), lingering: describe("lingering_bytes_ratio"),
	}
}

// Describe implements prometheus.Collector.
func (c *trafficCollector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.members, c.sigma, c.talkers, c.saving, c.lingering} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *trafficCollector) Collect(out chan<- prometheus.Metric) {
	const bitsPerByte, percent = 8, 100
	sights := c.sights.all()
	keys := slices.SortedFunc(maps.Keys(sights), func(x, y types.NamespacedName) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for _, key := range keys {
		sight := sights[key]
		gauge := func(desc *prometheus.Desc, value float64, more ...string) {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, append([]string{key.Namespace, key.Name}, more...)...)
		}
		for state, count := range sight.counts {
			gauge(c.members, float64(count), state)
		}
		if sight.spread != nil {
			gauge(c.sigma, float64(sight.spread.SigmaBitsPerSecond)/bitsPerByte)
			gauge(c.talkers, sight.spread.EffectiveTalkers.AsApproximateFloat64())
		}
		if sight.total != nil {
			gauge(c.saving, float64(sight.total.Watts))
		}
		if sight.lingering != nil {
			gauge(c.lingering, float64(*sight.lingering)/percent)
		}
	}
}
