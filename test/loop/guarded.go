package loop

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/guards"
	"github.com/joulevirt/joulevirt/internal/observe/leverstate"
)

// guarded is what the manager's guard does on a node. It hears of service levels: no guest
// ceases to be ready, and there are no alerts.
type guarded struct {
	// store is nil where there is no guard.
	store *guards.Store
	// news is true when a lever was withdrawn since the node was planned.
	news bool
	// seen is when each lever was withdrawn last.
	seen  map[withdrawnFrom]time.Time
	count Withdrawals
}

// withdrawnFrom is a lever of a VM, or of the node when pod is empty.
type withdrawnFrom struct {
	pod   string
	lever model.Lever
}

// Withdrawals are the levers that the manager's guard took.
type Withdrawals struct {
	// VMDays for which lever Affinity acted on VMs: the only one here that the guard judges by
	// service levels.
	VMDays float64
	// Right ones are of VMs that waited for longer than their profile bears, in the mean of the
	// time that the guard judges by, and would not have without the lever. False are the others.
	// Doubts are of VMs of which it was not known how they are without.
	Right, False, Doubts int
	// Nodes are those from which a lever was taken for all VMs, and Blocks those that counted
	// against a lever for any guard's doing, the agents' too.
	Nodes, Blocks int
}

func (w *Withdrawals) add(o *Withdrawals) {
	w.VMDays += o.VMDays
	w.Right, w.False, w.Doubts = w.Right+o.Right, w.False+o.False, w.Doubts+o.Doubts
	w.Nodes, w.Blocks = w.Nodes+o.Nodes, w.Blocks+o.Blocks
}

// FalseADay is how often a day a lever was withdrawn from a VM on which it acted and that it
// did not hurt.
func (w *Withdrawals) FalseADay() float64 { return float64(w.False) / max(w.VMDays, 1e-9) }

// guard lets the manager's guard hear of a round, as its controller does.
func (n *node) guard(rates *model.NodeRates) {
	g := &n.guarded
	latest := n.agent.Latest()
	if g.store == nil || latest == nil {
		return
	}
	plan := &leverstate.Plan{NodePlan: &v1alpha1.NodePlan{ObjectMeta: latest.ObjectMeta, Spec: latest.Spec, Status: n.agent.Status()}}
	acts := func(pod string) (in []model.Lever) {
		for _, lever := range model.NodeLevers() {
			if leverstate.Of(v1alpha1.Lever(lever))(plan, types.UID(pod)).State == v1alpha1.LeverInForce {
				in = append(in, lever)
			}
		}
		return in
	}
	g.store.Sweep()
	g.news = g.store.Hear(rates, guards.Circumstances{VM: func(pod string) (guards.VM, bool) {
		vm, is := n.guest(pod)
		of := guards.VM{MaxSteal: vm.MaxSteal, MaxDrops: vm.MaxDrops, KeepThroughput: vm.KeepThroughput, Acts: acts(pod)}
		if slices.Contains(of.Acts, model.LeverAffinity) && n.on(model.LeverAffinity, n.schedules(), n.now) {
			g.count.VMDays += rates.IntervalSeconds / (24 * time.Hour).Seconds()
		}
		return of, is
	}}) || g.news
	n.judge()
}

// judge counts what was withdrawn of late, by what is true.
func (n *node) judge() {
	g := &n.guarded
	for _, w := range g.store.Of(n.spec.name, nil) {
		of := withdrawnFrom{w.PodUID, w.Lever}
		if w.Time.Equal(g.seen[of]) {
			continue
		}
		if g.seen == nil {
			g.seen = map[withdrawnFrom]time.Time{}
		}
		g.seen[of] = w.Time
		vm, is := n.guest(w.PodUID)
		const window = 4 // rounds of a tick
		with, without, _ := n.truth.waited(w.PodUID, window*n.spec.Tick)
		switch {
		case w.PodUID == "":
			g.count.Nodes++
		case w.Count == 0:
			g.count.Doubts++
		case is && with > vm.MaxSteal && without <= vm.MaxSteal:
			g.count.Right++
		default:
			g.count.False++
		}
	}
}

// withdrawn are the levers that the node's plan is to leave away, but for VMs that are gone.
func (n *node) withdrawn() []model.Withdrawal {
	if n.guarded.store == nil {
		return nil
	}
	var held []model.Withdrawal
	if n.plan != nil {
		held = n.plan.Withdrawn
	}
	return slices.DeleteFunc(n.guarded.store.Of(n.spec.name, held), func(w model.Withdrawal) bool {
		_, is := n.guest(w.PodUID)
		return w.PodUID != "" && !is
	})
}
