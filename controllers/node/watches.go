package node

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
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
	"github.com/joulevirt/joulevirt/controllers/watch"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// nodePlanWorkers are many because a worker mostly waits for the API server.
const nodePlanWorkers = 8

// Setup adds the reconciler with everything that a plan depends on. Handlers
// get the old and the new state of a changed object, so that the nodes that it
// left are planned anew too.
func (r *PlanReconciler) Setup(mgr ctrl.Manager, ratesChanged <-chan event.GenericEvent) error {
	nodes := &nodeMapper{reader: mgr.GetClient()}
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodeplan").
		For(&corev1.Node{}, builder.WithPredicates(watch.NodeChanged())).
		Watches(&v1alpha1.NodePlan{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(watch.SpecOrGone())).
		Watches(&v1alpha1.NodePlan{}, r.changing.handler(r.Clock)).
		Watches(&v1alpha1.NodeReport{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(watch.ReportChanged())).
		Watches(&v1alpha1.VMNetworkProfile{}, handler.EnqueueRequestsFromMapFunc(nodes.ofProfile), builder.WithPredicates(watch.SpecOrGone())).
		Watches(&v1alpha1.EnergyPolicy{}, handler.EnqueueRequestsFromMapFunc(nodes.all), builder.WithPredicates(watch.SpecOrGone())).
		Watches(&virtv1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(nodes.ofVMI), builder.WithPredicates(watch.VMIChanged())).
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
	return watch.Requests(observe.NodesOf(vmi))
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
	return watch.Requests(slices.Sorted(maps.Keys(nodes)))
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
	return watch.Requests(names)
}
