package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/guards"
)

// globalGuard gives what agents, the API server and Prometheus servers tell to the store of
// what hurts VMs, and tells who plans of what is withdrawn. It is a Runnable of the
// controller runtime.
type globalGuard struct {
	globalGuardOptions
	asking sync.WaitGroup

	mu sync.Mutex
	// busy alerts are asked for, and answers are the last of each.
	busy    map[alertKey]bool
	answers map[alertKey]alertAnswer
	// asked is when alerts were last asked for.
	asked time.Time
}

type globalGuardOptions struct {
	reader client.Reader
	store  *guards.Store
	// seen is the last look at VMs, or nil.
	seen  func() *disturbanceFacts
	asker energy.Asker
	// interval between two looks at guests.
	interval time.Duration
	clock    clock.WithTicker
	log      logr.Logger
	// replan is told of a node whose levers are withdrawn, or are no more, changed that
	// answers of alerts say something else. They may block until the context ends.
	replan  func(ctx context.Context, node string)
	changed func(context.Context)
	// member tells of the VM of a launcher pod as one of a group, and regroup is told of a
	// group, as replan is of a node.
	member  func(podUID string) groupMember
	regroup func(ctx context.Context, group string)
}

// addGlobalGuard adds what withdraws levers that hurt.
func addGlobalGuard(mgr ctrl.Manager, o Options, parts *reconcilerParts) error {
	parts.guard = newGlobalGuard(globalGuardOptions{
		reader: mgr.GetClient(), store: guards.NewStore(o.Clock, missedRounds*o.Pull.Interval), seen: parts.disturbed.Seen,
		asker:    energy.Asker{Secrets: liveSecrets{mgr.GetAPIReader()}, NewSource: o.Energy.newSource},
		interval: o.Pull.Interval, clock: o.Clock, log: mgr.GetLogger().WithName("guards"),
		replan: parts.news.plan, changed: parts.news.policyWords,
		// The groups are added later.
		member:  func(podUID string) groupMember { return parts.sights.member(podUID) },
		regroup: func(ctx context.Context, group string) { parts.sights.replan(ctx, group) },
	})
	if err := mgr.Add(parts.guard); err != nil {
		return fmt.Errorf("add the guard of service levels, guests and alerts: %w", err)
	}
	return nil
}

func newGlobalGuard(o globalGuardOptions) *globalGuard {
	return &globalGuard{globalGuardOptions: o, busy: map[alertKey]bool{}, answers: map[alertKey]alertAnswer{}}
}

// NeedLeaderElection is true: only the leader hears rates, and plans.
func (g *globalGuard) NeedLeaderElection() bool { return true }

// Hear takes in a new round of a node. Nothing is taken in of a node, or a VM, that no look
// has seen there: no agent speaks for others.
func (g *globalGuard) Hear(ctx context.Context, rates *model.NodeRates) {
	facts := g.seen()
	if facts == nil {
		return
	}
	nested, known := facts.nested[rates.Node]
	if !known {
		return
	}
	plan := &v1alpha1.NodePlan{}
	if err := g.reader.Get(ctx, types.NamespacedName{Name: rates.Node}, plan); client.IgnoreNotFound(err) != nil {
		g.log.Error(err, "what levers do to VMs of the node is not looked at in this round", "node", rates.Node)
		return
	}
	indexed := &indexedPlan{NodePlan: plan}
	news := g.store.Hear(rates, guards.Circumstances{Nested: nested, VM: func(podUID string) (guards.VM, bool) {
		pod, governed := facts.pods[podUID]
		of := g.member(podUID)
		return guards.VM{
			MaxSteal: pod.maxSteal, MaxDrops: pod.wishes.MaxDrops, KeepThroughput: pod.wishes.KeepThroughput,
			Acts: inForce(indexed, types.UID(podUID)), Group: of.group, Share: of.share,
		}, governed && pod.node == rates.Node
	}})
	if news {
		g.replan(ctx, rates.Node)
	}
	g.regroups(ctx)
}

// regroups has groups planned anew of which something else is withdrawn.
func (g *globalGuard) regroups(ctx context.Context) {
	for _, group := range g.store.Regroup() {
		g.regroup(ctx, group)
	}
}

// inForce lists the levers that act on a VM by its node's plan and agent.
func inForce(plan *indexedPlan, podUID types.UID) []model.Lever {
	var out []model.Lever
	for _, lever := range model.NodeLevers() {
		if leverStateOf(v1alpha1.Lever(lever))(plan, podUID).State == v1alpha1.LeverInForce {
			out = append(out, lever)
		}
	}
	return out
}

// Start looks until the context ends, and returns when nothing is asked any longer.
func (g *globalGuard) Start(ctx context.Context) error {
	defer g.asking.Wait()
	ticker := g.clock.NewTicker(g.interval)
	defer ticker.Stop()
	for {
		g.store.Sweep()
		if err := g.look(ctx); err != nil && ctx.Err() == nil {
			g.log.Error(err, "guests and alerts were not looked at in this round")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

func (g *globalGuard) look(ctx context.Context) error {
	if facts := g.seen(); facts != nil {
		if err := g.guests(ctx, facts); err != nil {
			return err
		}
	}
	return g.alerts(ctx)
}

// guests looks at whether all governed VMs' guests are ready.
func (g *globalGuard) guests(ctx context.Context, facts *disturbanceFacts) error {
	var nodes corev1.NodeList
	if err := g.reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	frozen := map[string]bool{}
	for i := range nodes.Items {
		frozen[nodes.Items[i].Name] = observe.Frozen(&nodes.Items[i])
	}
	var vmis virtv1.VirtualMachineInstanceList
	if err := g.reader.List(ctx, &vmis, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list VMIs: %w", err)
	}
	for i := range vmis.Items {
		vmi := &vmis.Items[i]
		pod, node := launcherOf(vmi)
		if _, governed := facts.pods[string(pod)]; !governed {
			continue
		}
		guest, told := guestOf(vmi)
		if !told {
			continue
		}
		guest.PodUID, guest.Node = string(pod), node
		guest.Excused = guest.Excused || frozen[node]
		if g.store.Guest(guest) {
			g.replan(ctx, node)
		}
	}
	g.regroups(ctx)
	return nil
}

// guestOf reads whether a VMI's guest is ready, and since when. False: it does not say.
func guestOf(vmi *virtv1.VirtualMachineInstance) (guards.Guest, bool) {
	migrates := vmi.Status.MigrationState != nil && !vmi.Status.MigrationState.Completed
	guest := guards.Guest{
		Excused: migrates || vmi.Status.EvacuationNodeName != "" || !vmi.DeletionTimestamp.IsZero() ||
			!observe.IsRunning(vmi) || len(vmi.Status.ActivePods) > 1,
	}
	told := false
	for _, c := range vmi.Status.Conditions {
		switch {
		case c.Type == virtv1.VirtualMachineInstanceReady:
			guest.Ready, guest.Since = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
			told = true
		case c.Type == virtv1.VirtualMachineInstancePaused && c.Status == corev1.ConditionTrue:
			guest.Excused = true
		}
	}
	return guest, told
}
