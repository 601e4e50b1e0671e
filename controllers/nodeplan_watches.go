package controllers

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// nodePlanWorkers are many because a worker mostly waits for the API server.
const nodePlanWorkers = 8

// setup adds the reconciler with everything that a plan depends on. Handlers
// get the old and the new state of a changed object, so that the nodes that it
// left are planned anew too.
func (r *NodePlanReconciler) setup(mgr ctrl.Manager, ratesChanged <-chan event.GenericEvent) error {
	nodes := &nodeMapper{reader: mgr.GetClient()}
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodeplan").
		For(&corev1.Node{}, builder.WithPredicates(nodeChanged())).
		Watches(&v1alpha1.NodePlan{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(specOrGone())).
		Watches(&v1alpha1.NodePlan{}, r.changing.handler(r.Clock)).
		Watches(&v1alpha1.NodeReport{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(reportChanged())).
		Watches(&v1alpha1.VMNetworkProfile{}, handler.EnqueueRequestsFromMapFunc(nodes.ofProfile), builder.WithPredicates(specOrGone())).
		Watches(&v1alpha1.EnergyPolicy{}, handler.EnqueueRequestsFromMapFunc(nodes.all), builder.WithPredicates(specOrGone())).
		Watches(&virtv1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(nodes.ofVMI), builder.WithPredicates(vmiChanged())).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(nodes.ofNamespace), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WatchesRawSource(source.Channel(ratesChanged, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: nodePlanWorkers}).
		Complete(r)
}

// nodeMapper finds the nodes whose plan an object bears on.
type nodeMapper struct{ reader client.Reader }

func (m *nodeMapper) ofVMI(_ context.Context, o client.Object) []reconcile.Request {
	vmi, ok := o.(*virtv1.VirtualMachineInstance)
	if !ok {
		return nil
	}
	return requests(observe.NodesOf(vmi))
}

// ofProfile gives the nodes of the VMs that the profile selects, whoever
// governs them: a profile that shrinks hands VMs to others.
func (m *nodeMapper) ofProfile(ctx context.Context, o client.Object) []reconcile.Request {
	profile, ok := o.(*v1alpha1.VMNetworkProfile)
	if !ok {
		return nil
	}
	// Its own deletion must reach its nodes: the selector counts, not whether
	// the profile does.
	selecting := profile.DeepCopy()
	selecting.DeletionTimestamp = nil
	matching := observe.NewProfiles([]v1alpha1.VMNetworkProfile{*selecting})
	return m.ofVMIs(ctx, profile.Namespace, func(vmi *virtv1.VirtualMachineInstance) bool {
		_, selected := matching.Governing(vmi)
		return selected
	})
}

func (m *nodeMapper) ofNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	return m.ofVMIs(ctx, o.GetName(), func(*virtv1.VirtualMachineInstance) bool { return true })
}

func (m *nodeMapper) ofVMIs(ctx context.Context, namespace string, wanted func(*virtv1.VirtualMachineInstance) bool) []reconcile.Request {
	var vmis virtv1.VirtualMachineInstanceList
	if err := m.reader.List(ctx, &vmis, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list VMIs from the cache", "namespace", namespace)
		return nil
	}
	nodes := map[string]bool{}
	for i := range vmis.Items {
		if wanted(&vmis.Items[i]) {
			for _, node := range observe.NodesOf(&vmis.Items[i]) {
				nodes[node] = true
			}
		}
	}
	return requests(slices.Sorted(maps.Keys(nodes)))
}

// all gives all nodes: a policy's selector is cheaper evaluated by each than
// its former extent remembered.
func (m *nodeMapper) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var nodes corev1.NodeList
	if err := m.reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list nodes from the cache")
		return nil
	}
	names := make([]string, 0, len(nodes.Items))
	for i := range nodes.Items {
		names = append(names, nodes.Items[i].Name)
	}
	return requests(names)
}

func requests(names []string) []reconcile.Request {
	out := make([]reconcile.Request, 0, len(names))
	for _, name := range names {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
	return out
}

// specOrGone passes changes of the spec, and the start of a deletion.
func specOrGone() predicate.Predicate {
	going := updated(func(was, is client.Object) bool {
		return was.GetDeletionTimestamp().IsZero() != is.GetDeletionTimestamp().IsZero()
	})
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, going)
}

// nodeChanged passes what a plan reads of a node: its status does not count.
func nodeChanged() predicate.Predicate {
	return updated(func(was, is *corev1.Node) bool {
		return observe.Frozen(was) != observe.Frozen(is) || !maps.Equal(was.Labels, is.Labels) || was.UID != is.UID ||
			observe.OptOutChanged(was, is)
	})
}

// reportChanged passes what a plan reads of a report, not its figures, and a
// first report.
func reportChanged() predicate.Predicate {
	return updated(func(was, is *v1alpha1.NodeReport) bool {
		return was.Status.ReportedAt.IsZero() != is.Status.ReportedAt.IsZero() || was.Status.Power.Source != is.Status.Power.Source ||
			observe.HasSlices(was) != observe.HasSlices(is) || observe.WithoutBuffering(was) != observe.WithoutBuffering(is) ||
			!equality.Semantic.DeepEqual(was.Status.Topology, is.Status.Topology)
	})
}

// vmiChanged passes what plans and statuses read of a VMI. KubeVirt writes its
// status often, for the guest agent's news.
func vmiChanged() predicate.Predicate {
	return updated(func(was, is *virtv1.VirtualMachineInstance) bool {
		return observe.IsRunning(was) != observe.IsRunning(is) || was.IsCPUDedicated() != is.IsCPUDedicated() ||
			was.Status.NodeName != is.Status.NodeName || !maps.Equal(was.Status.ActivePods, is.Status.ActivePods) || !maps.Equal(was.Labels, is.Labels) ||
			observe.OptOutChanged(was, is)
	})
}

// updated passes every event but those updates for which changed is false.
func updated[T client.Object](changed func(was, is T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, okWas := e.ObjectOld.(T)
		is, okIs := e.ObjectNew.(T)
		return okWas && okIs && changed(was, is)
	}}
}
