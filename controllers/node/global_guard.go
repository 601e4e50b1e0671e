package node

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/controllers/profile"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/guards"
)

// GlobalGuard gives what agents and the API server tell to the store of
// what hurts VMs, and tells who plans of what is withdrawn. It is a Runnable of the
// controller runtime.
type GlobalGuard struct {
	GlobalGuardOptions
}

// GlobalGuardOptions are what a GlobalGuard works with.
type GlobalGuardOptions struct {
	Reader client.Reader
	Store  *guards.Store
	// Seen is the last look at VMs, or nil.
	Seen func() *profile.DisturbanceFacts
	Log  logr.Logger
	// Replan is called for a node whose levers are withdrawn, or are no more. It may block until
	// the context ends.
	Replan func(ctx context.Context, node string)
	// Member tells of the VM of a launcher pod as one of a group, and regroup is called for a
	// group, as replan is of a node.
	Member  func(podUID string) (group string, share guards.Share)
	Regroup func(ctx context.Context, group string)
}

// NewGlobalGuard returns a guard that has heard no node yet.
func NewGlobalGuard(o GlobalGuardOptions) *GlobalGuard {
	return &GlobalGuard{GlobalGuardOptions: o}
}

// Hear takes in a new round of a node. Nothing is taken in of a node, or a VM, that no look
// has seen there: no agent speaks for others.
func (g *GlobalGuard) Hear(ctx context.Context, rates *model.NodeRates) {
	facts := g.Seen()
	if facts == nil {
		return
	}
	nested, known := facts.Nested[rates.Node]
	if !known {
		return
	}
	plan := &v1alpha1.NodePlan{} // the cache's own, which is only read
	if err := g.Reader.Get(ctx, types.NamespacedName{Name: rates.Node}, plan, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		g.Log.Error(err, "what levers do to VMs of the node is not looked at in this round", "node", rates.Node)
		return
	}
	indexed := &objects.IndexedPlan{NodePlan: plan}
	news := g.Store.Hear(rates, guards.Circumstances{Nested: nested, VM: func(podUID string) (guards.VM, bool) {
		pod, governed := facts.Pods[podUID]
		group, share := g.Member(podUID)
		return guards.VM{
			MaxSteal: pod.MaxSteal, MaxDrops: pod.Wishes.MaxDrops, KeepThroughput: pod.Wishes.KeepThroughput,
			Acts: inForce(indexed, types.UID(podUID)), Group: group, Share: share,
		}, governed && pod.Node == rates.Node
	}})
	if news {
		g.Replan(ctx, rates.Node)
	}
	g.regroups(ctx)
}

// regroups has groups planned anew of which something else is withdrawn.
func (g *GlobalGuard) regroups(ctx context.Context) {
	for _, group := range g.Store.Regroup() {
		g.Regroup(ctx, group)
	}
}

// inForce lists the levers that act on a VM by its node's plan and agent.
func inForce(plan *objects.IndexedPlan, podUID types.UID) []v1alpha1.Lever {
	var out []v1alpha1.Lever
	for _, lever := range v1alpha1.NodeLevers() {
		if objects.LeverStateOf(lever)(plan, podUID).State == v1alpha1.LeverInForce {
			out = append(out, lever)
		}
	}
	return out
}

// Look observes whether the guests of all governed VMs are ready.
func (g *GlobalGuard) Look(ctx context.Context) error {
	g.Store.Sweep()
	if facts := g.Seen(); facts != nil {
		return g.guests(ctx, facts)
	}
	return nil
}

// guests looks at whether all governed VMs' guests are ready.
func (g *GlobalGuard) guests(ctx context.Context, facts *profile.DisturbanceFacts) error {
	var nodes corev1.NodeList
	if err := g.Reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		if err := g.guestsOf(ctx, &nodes.Items[i], facts); err != nil {
			return err
		}
	}
	g.regroups(ctx)
	return nil
}

// guestsOf looks at the guests of one node: a list of all VMIs of a large cluster takes 250 MB.
func (g *GlobalGuard) guestsOf(ctx context.Context, node *corev1.Node, facts *profile.DisturbanceFacts) error {
	var vmis virtv1.VirtualMachineInstanceList
	if err := g.Reader.List(ctx, &vmis, client.MatchingFields{observe.VMIsByNode: node.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list VMIs of node %s: %w", node.Name, err)
	}
	frozen, replan := observe.Frozen(node), false
	for i := range vmis.Items {
		vmi := &vmis.Items[i]
		pod, on := objects.LauncherOf(vmi)
		if _, governed := facts.Pods[string(pod)]; !governed || on != node.Name {
			continue
		}
		guest, reported := guestOf(vmi)
		if !reported {
			continue
		}
		guest.PodUID, guest.Node = string(pod), on
		guest.Excused = guest.Excused || frozen
		replan = g.Store.Guest(guest) || replan
	}
	if replan {
		g.Replan(ctx, node.Name)
	}
	return nil
}

// readinessGatesNotReady is the kubelet's reason for a pod that is not ready though all its
// containers are. KubeVirt's gate is closed while a VM is paused, and its condition Ready
// follows the pod's a second after its condition Paused is gone.
const readinessGatesNotReady = "ReadinessGatesNotReady"

// guestOf reads whether a VMI's guest is ready, and since when. False: it does not say.
func guestOf(vmi *virtv1.VirtualMachineInstance) (guards.Guest, bool) {
	migrates := vmi.Status.MigrationState != nil && !vmi.Status.MigrationState.Completed
	guest := guards.Guest{
		Excused: migrates || vmi.Status.EvacuationNodeName != "" || !vmi.DeletionTimestamp.IsZero() ||
			!observe.IsRunning(vmi) || len(vmi.Status.ActivePods) > 1,
	}
	reported := false
	for _, c := range vmi.Status.Conditions {
		switch {
		case c.Type == virtv1.VirtualMachineInstanceReady:
			guest.Ready, guest.Since = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
			guest.Excused = guest.Excused || c.Reason == readinessGatesNotReady
			reported = true
		case c.Type == virtv1.VirtualMachineInstancePaused && c.Status == corev1.ConditionTrue:
			guest.Excused = true
		}
	}
	return guest, reported
}
