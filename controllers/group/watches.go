package group

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/watch"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// trafficGroupWorkers are several because a worker mostly waits for the API
// server.
const trafficGroupWorkers = 4

// gatewayGroup is the API group of routes.
const gatewayGroup = "gateway.networking.k8s.io"

// Setup adds the reconciler with what all groups depend on. Launcher pods,
// Services and routes are watched from the first group on that needs them.
func (r *Reconciler) Setup(mgr ctrl.Manager, clk clock.WithTicker) error {
	groups := &groupMapper{reader: mgr.GetClient()}
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("trafficgroup").
		For(&v1alpha1.VMNetworkProfile{}, builder.WithPredicates(watch.SpecOrGone())).
		Watches(&v1alpha1.VMNetworkProfile{}, handler.EnqueueRequestsFromMapFunc(groups.ofNamespace), builder.WithPredicates(watch.SpecOrGone())).
		Watches(&virtv1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(groups.ofVMI), builder.WithPredicates(watch.VMIChanged())).
		Watches(&v1alpha1.EnergyPolicy{}, handler.EnqueueRequestsFromMapFunc(groups.all), builder.WithPredicates(watch.SpecOrGone())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(groups.all), builder.WithPredicates(watch.NodeChanged())).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(groups.inNamespace), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WatchesRawSource(source.Channel(r.Views.again, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: trafficGroupWorkers, NewQueue: queueBy(clk)}).
		Build(r)
	if err != nil {
		return err
	}
	r.kinds = &groupKinds{controller: built, cache: mgr.GetCache(), mapper: mgr.GetRESTMapper(), groups: groups, on: map[schema.GroupKind]bool{}}
	return nil
}

// queueBy makes work queues whose delays go by a clock: schedules switch by it.
func queueBy(clk clock.WithTicker) func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, Clock: clk})
	}
}

// groupKinds watches what groups depend on from when there are such: a cluster
// without groups does not pay for the memory of its launcher pods, and a kind of
// route may be installed long after the manager started.
type groupKinds struct {
	controller controller.Controller
	cache      cache.Cache
	mapper     meta.RESTMapper
	groups     *groupMapper

	mu sync.Mutex
	on map[schema.GroupKind]bool
}

// watch makes sure that what a kind of group depends on is watched. A kind of
// route that the cluster does not have is looked for again the next time.
func (k *groupKinds) watch(target v1alpha1.GroupTargetKind) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	pods := source.Kind(k.cache, client.Object(&corev1.Pod{}), handler.EnqueueRequestsFromMapFunc(k.groups.ofPod), launcherChanged())
	services := source.Kind(k.cache, client.Object(&corev1.Service{}), handler.EnqueueRequestsFromMapFunc(k.groups.ofTarget), predicate.ResourceVersionChangedPredicate{})
	slices := source.Kind(k.cache, client.Object(&discoveryv1.EndpointSlice{}), handler.EnqueueRequestsFromMapFunc(k.groups.ofSlice), endpointsChanged())
	for kind, from := range map[schema.GroupKind]source.Source{
		{Kind: "Pod"}: pods, {Kind: "Service"}: services, {Group: discoveryv1.GroupName, Kind: "EndpointSlice"}: slices,
	} {
		if err := k.start(kind, from); err != nil {
			return err
		}
	}
	if target == v1alpha1.GroupService || target == "" {
		return nil
	}
	route := schema.GroupKind{Group: gatewayGroup, Kind: string(target)}
	if k.on[route] {
		return nil
	}
	mapping, err := k.mapper.RESTMapping(route)
	if meta.IsNoMatchError(err) {
		return nil // the writer says so in the status
	}
	if err != nil {
		return fmt.Errorf("look for kind %s: %w", route, err)
	}
	// That something changed is enough to know: the writer reads it.
	routes := &metav1.PartialObjectMetadata{}
	routes.SetGroupVersionKind(mapping.GroupVersionKind)
	return k.start(route, source.Kind(k.cache, client.Object(routes), handler.EnqueueRequestsFromMapFunc(k.groups.ofTarget), predicate.ResourceVersionChangedPredicate{}))
}

func (k *groupKinds) start(kind schema.GroupKind, from source.Source) error {
	if k.on[kind] {
		return nil
	}
	if err := k.controller.Watch(from); err != nil {
		return fmt.Errorf("watch kind %s: %w", kind, err)
	}
	k.on[kind] = true
	return nil
}

// launcherChanged passes what groups read of launcher pods.
func launcherChanged() predicate.Predicate {
	return watch.Updated(func(was, is *corev1.Pod) bool {
		return routing.IsReady(was) != routing.IsReady(is) || was.Status.Phase != is.Status.Phase || !maps.Equal(was.Labels, is.Labels) ||
			was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero()
	})
}

// endpointsChanged leaves out what the endpoint controller writes of itself.
func endpointsChanged() predicate.Predicate {
	return watch.Updated(func(was, is *discoveryv1.EndpointSlice) bool {
		return !equality.Semantic.DeepEqual(was.Endpoints, is.Endpoints)
	})
}

// groupMapper finds the profiles with a group that an object bears on.
type groupMapper struct{ reader client.Reader }

// some gives the profiles with a group of a namespace, or of all when it is empty,
// for which wanted is true.
func (m *groupMapper) some(ctx context.Context, namespace string, wanted func(observe.Profile) bool) []reconcile.Request {
	var list v1alpha1.VMNetworkProfileList
	if err := m.reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list VMNetworkProfiles from the cache", "namespace", namespace)
		return nil
	}
	var out []reconcile.Request
	for _, profile := range observe.NewProfiles(list.Items) {
		if profile.Spec.Group != nil && wanted(profile) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(profile.VMNetworkProfile)})
		}
	}
	return out
}

func anyProfile(observe.Profile) bool { return true }

func (m *groupMapper) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return m.some(ctx, "", anyProfile)
}

// ofNamespace is of an object in a namespace, inNamespace of the namespace.
func (m *groupMapper) ofNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	return m.some(ctx, o.GetNamespace(), anyProfile)
}

func (m *groupMapper) inNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	return m.some(ctx, o.GetName(), anyProfile)
}

func (m *groupMapper) ofVMI(ctx context.Context, o client.Object) []reconcile.Request {
	vmi, ok := o.(*virtv1.VirtualMachineInstance)
	if !ok {
		return nil
	}
	return m.some(ctx, vmi.Namespace, func(p observe.Profile) bool { return p.Selects(vmi) })
}

func (m *groupMapper) ofPod(ctx context.Context, o client.Object) []reconcile.Request {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	return m.some(ctx, pod.Namespace, func(p observe.Profile) bool { return p.SelectsPod(pod) })
}

// ofTarget is of a Service or a route.
func (m *groupMapper) ofTarget(ctx context.Context, o client.Object) []reconcile.Request {
	return m.some(ctx, o.GetNamespace(), func(p observe.Profile) bool { return p.Spec.Group.Name == o.GetName() })
}

func (m *groupMapper) ofSlice(ctx context.Context, o client.Object) []reconcile.Request {
	service := o.GetLabels()[discoveryv1.LabelServiceName]
	return m.some(ctx, o.GetNamespace(), func(p observe.Profile) bool { return p.Spec.Group.Name == service })
}
