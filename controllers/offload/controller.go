// Package offload makes the gateways of HybridWorkloads, and puts them into their Services instead
// of the VMs that they answer for.
package offload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
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
	trialing "github.com/joulevirt/joulevirt/controllers/trials"
	"github.com/joulevirt/joulevirt/controllers/watch"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
	"github.com/joulevirt/joulevirt/internal/routing/service"
)

const (
	// review is how soon a HybridWorkload is observed again for what has no watch: windows, meters,
	// selectors of others, the template.
	review = 30 * time.Second
	// awaiting is how soon it is until it is known how the lever stands.
	awaiting = 2 * time.Second
	// settling is how soon it is while something is being changed.
	settling = time.Second
	// holderPrefix begins the mark of launcher pods that a gateway answers for. No profile's name
	// has a slash.
	holderPrefix = "hybridworkload/"
)

// Holder is what the mark of a launcher pod names that a gateway of a HybridWorkload answers for.
func Holder(name string) string { return holderPrefix + name }

// Selects returns whether one of the HybridWorkloads selects a VM.
func Selects(all []v1alpha1.HybridWorkload, vm metav1.Object) bool {
	return slices.ContainsFunc(all, func(h v1alpha1.HybridWorkload) bool {
		selector, err := metav1.LabelSelectorAsSelector(&h.Spec.Selector)
		return err == nil && h.Namespace == vm.GetNamespace() && h.DeletionTimestamp.IsZero() && selector.Matches(labels.Set(vm.GetLabels()))
	})
}

// Reconciler makes gateways.
type Reconciler struct {
	Client client.Client
	Live   client.Reader
	// Gateways is the cache of gateways' pods, see CacheOptions.
	Gateways cache.Cache
	// Shares of VMs.
	Shares *Shares
	// Namespace of the manager, with the PodTemplate.
	Namespace string
	Observer  *observe.GroupObserver
	// Guard withdraws gateways that harm.
	Guard    *Guard
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Memory has what trials showed, and Workloads what they see.
	Memory    *trialing.Memory
	Workloads *Workloads
	// Ended is called after a HybridWorkload has ended, so that labels that it leaves are removed.
	Ended func()

	services *service.Writer
	// watches begins to watch what all HybridWorkloads depend on, watchClaims those of path SharedMemory.
	watches, watchClaims func() error
	mu                   sync.Mutex
	checks               map[types.NamespacedName]check
}

// check is what was found of selectors of others, and when.
type check struct {
	at      time.Time
	problem string
}

// CacheOptions keep gateways' pods.
func CacheOptions() cache.Options {
	has, _ := labels.NewRequirement(v1alpha1.LabelGateway, selection.Exists, nil)
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: labels.NewSelector().Add(*has)}},
	}
}

// +kubebuilder:rbac:groups=joulevirt.io,resources=hybridworkloads,verbs=get;list;watch
// +kubebuilder:rbac:groups=joulevirt.io,resources=hybridworkloads/status,verbs=get;patch

// Setup adds the reconciler. Pods, Services and their endpoints are watched from the first HybridWorkload
// on: with 100,000 pods an API server may take longer to find gateways than a starting manager waits.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	r.services, r.checks = service.New(r.Client, r.Live), map[types.NamespacedName]check{}
	inNamespace := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.inNamespace(ctx, o.GetNamespace())
	})
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request { return r.inNamespace(ctx, "") })
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("offload").
		For(&v1alpha1.HybridWorkload{}, builder.WithPredicates(watch.SpecOrGone())).
		Watches(&v1alpha1.HybridWorkload{}, inNamespace, builder.WithPredicates(watch.SpecOrGone())).
		Watches(&v1alpha1.VMNetworkProfile{}, inNamespace, builder.WithPredicates(watch.SpecOrGone())).
		Watches(&virtv1.VirtualMachineInstance{}, inNamespace, builder.WithPredicates(watch.VMIChanged())).
		Watches(&v1alpha1.EnergyPolicy{}, all, builder.WithPredicates(watch.SpecOrGone())).
		Watches(&corev1.Node{}, all, builder.WithPredicates(watch.NodeChanged())).
		WatchesRawSource(source.Channel(r.Guard.withdrew, &handler.EnqueueRequestForObject{})).
		WatchesRawSource(source.Channel(r.Workloads.again, &handler.EnqueueRequestForObject{})).
		Watches(&corev1.Namespace{}, all, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 2}).
		Build(r)
	if err != nil {
		return err
	}
	r.watches = sync.OnceValue(func() error {
		failed := []error{built.Watch(source.Kind(r.Gateways, client.Object(&corev1.Pod{}), inNamespace))}
		for _, kind := range []client.Object{&corev1.Pod{}, &corev1.Service{}, &discoveryv1.EndpointSlice{}} {
			failed = append(failed, built.Watch(source.Kind(mgr.GetCache(), kind, inNamespace, predicate.Predicate(predicate.ResourceVersionChangedPredicate{}))))
		}
		return errors.Join(failed...)
	})
	r.watchClaims = sync.OnceValue(func() error {
		return built.Watch(source.Kind(r.Shares.Cache, client.Object(&corev1.PersistentVolumeClaim{}), inNamespace))
	})
	return nil
}

func (r *Reconciler) inNamespace(ctx context.Context, namespace string) []reconcile.Request {
	var list v1alpha1.HybridWorkloadList
	if err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list HybridWorkloads from the cache", "namespace", namespace)
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// Reconcile brings the gateways of a HybridWorkload one step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	owner := &v1alpha1.HybridWorkload{}
	err := r.Client.Get(ctx, req.NamespacedName, owner)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("get HybridWorkload %s: %w", req, err)
	}
	if apierrors.IsNotFound(err) || !owner.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.end(ctx, req.NamespacedName)
	}
	if err := r.watches(); err != nil {
		return ctrl.Result{}, fmt.Errorf("watch what HybridWorkloads depend on: %w", err)
	}
	seen, err := r.observe(ctx, owner)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observe HybridWorkload %s: %w", req, err)
	}
	r.prove(seen)
	if err := r.makeClaims(ctx, seen); err != nil {
		return ctrl.Result{}, fmt.Errorf("make shares of HybridWorkload %s: %w", req, err)
	}
	if err := r.attach(ctx, seen); err != nil {
		return ctrl.Result{}, fmt.Errorf("prepare Service of HybridWorkload %s: %w", req, err)
	}
	changed := false
	decisions := make([]decision, len(seen.vms))
	var failed []error
	for i := range seen.vms {
		decisions[i] = decide(&seen.vms[i], Holder(owner.Name), seen.refusal, r.Clock.Now())
		did, err := r.act(ctx, seen, &seen.vms[i], &decisions[i])
		changed, failed = changed || did, append(failed, err)
	}
	r.record(seen, decisions)
	failed = append(failed, r.removeStrays(ctx, seen), r.writeStatus(ctx, seen, decisions))
	if err := watch.IgnoreGoneOrChanged(errors.Join(failed...)); err != nil {
		return ctrl.Result{}, fmt.Errorf("make gateways of HybridWorkload %s: %w", req, err)
	}
	switch {
	case changed:
		return ctrl.Result{RequeueAfter: settling}, nil
	case seen.proof == nil && planner.ProvingPolicy(seen.nodes) != "":
		return ctrl.Result{RequeueAfter: awaiting}, nil
	}
	if seen.isScheduled() {
		next := seen.proof.Schedule.Next(seen.at).Sub(r.Clock.Now())
		return ctrl.Result{RequeueAfter: min(review, max(next, time.Millisecond))}, nil
	}
	return ctrl.Result{RequeueAfter: review}, nil
}

// attach prepares the Service and the VMs while some VM may have a gateway, and restores them
// while none does.
func (r *Reconciler) attach(ctx context.Context, seen *seen) error {
	switch {
	case seen.refusal != nil && seen.refusal.Reason == v1alpha1.ReasonServiceTaken, seen.service == nil:
		return nil
	case seen.isWanted() && seen.isAttached():
	case seen.isWanted():
		var refusal *routing.Refusal
		err := r.services.Attach(ctx, seen.group(), true)
		if errors.As(err, &refusal) {
			seen.refusal, err = refusal, nil
		}
		return err
	case !seen.holds() && seen.service.Labels[v1alpha1.LabelAdopted] != "":
		return r.services.Detach(ctx, seen.group())
	}
	return nil
}

// act does what was decided for a VM. It returns true when there is more to do soon.
func (r *Reconciler) act(ctx context.Context, seen *seen, vm *vmFacts, d *decision) (bool, error) {
	if d.mark != nil {
		if d.mark.Serving == v1alpha1.ServingStandby {
			if serves, err := r.confirm(ctx, seen, d.gateway.Pod); err != nil || !serves {
				return true, err
			}
		}
		err := pods.Set(ctx, r.Client, vm.pod.DeepCopy(), *d.mark)
		if err != nil && !errors.Is(err, pods.ErrChanged) {
			return false, err
		}
	}
	if d.place != nil {
		if d.place.Serving == v1alpha1.ServingStandby {
			if serves, err := r.confirm(ctx, seen, vm.pod); err != nil || !serves {
				return true, err
			}
		}
		err := pods.Set(ctx, r.Client, d.gateway.DeepCopy(), *d.place)
		if err != nil && !errors.Is(err, pods.ErrChanged) {
			return false, err
		}
	}
	if len(d.remove) > 0 && d.confirm {
		if serves, err := r.confirm(ctx, seen, vm.pod); err != nil || !serves {
			return true, err
		}
	}
	for i := range d.remove {
		if err := r.remove(ctx, d.remove[i].Pod, vm.pod != nil); err != nil {
			return false, err
		}
	}
	if d.create {
		if err := r.create(ctx, seen, vm, d); err != nil {
			return false, err
		}
	}
	return d.mark != nil || d.place != nil || len(d.remove) > 0, nil
}

// confirm asks the API server itself whether a pod serves, before another leaves the Service: the
// cache may be old.
func (r *Reconciler) confirm(ctx context.Context, seen *seen, of *corev1.Pod) (bool, error) {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(of), pod); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	selector := labels.SelectorFromSet(seen.service.Spec.Selector)
	if pod.UID != of.UID || pod.DeletionTimestamp != nil || !selector.Matches(labels.Set(pod.Labels)) {
		return false, nil
	}
	serving, err := endpoints(ctx, r.Live, client.ObjectKeyFromObject(seen.service))
	return serving[of.UID], err
}

// remove deletes a gateway, which serves the connections that it has to their end as long as its
// VM answers.
func (r *Reconciler) remove(ctx context.Context, pod *corev1.Pod, answers bool) error {
	options := []client.DeleteOption{client.Preconditions{UID: &pod.UID}}
	if !answers {
		options = append(options, client.GracePeriodSeconds(1))
	}
	if err := r.Client.Delete(ctx, pod, options...); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete gateway %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// removeStrays removes the gateways of launcher pods that are gone.
func (r *Reconciler) removeStrays(ctx context.Context, seen *seen) error {
	var failed []error
	for i := range seen.strays {
		failed = append(failed, r.remove(ctx, seen.strays[i].Pod, false))
	}
	return errors.Join(failed...)
}

// create makes a gateway. What the API server refuses is reported, and tried again later.
func (r *Reconciler) create(ctx context.Context, seen *seen, vm *vmFacts, d *decision) error {
	launcher := &corev1.Pod{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(vm.pod), launcher); err != nil {
		return client.IgnoreNotFound(err)
	}
	if problem := refuseVirtiofs(launcher, vm.share.size); problem != "" && isShared(seen.owner) {
		d.reason, d.message = v1alpha1.ReasonShareMemory, problem
		return nil
	}
	pod := gatewayPod(seen.template, seen.owner, seen.service, vm)
	pod.Spec.Tolerations = launcher.Spec.Tolerations
	if vm.off {
		pod.Labels[v1alpha1.LabelServing] = v1alpha1.ServingStandby
	}
	err := r.Client.Create(ctx, pod)
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		d.reason, d.message = v1alpha1.ReasonGatewayRefused, err.Error()
	case err != nil && !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("create gateway %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// end puts the VMs of a HybridWorkload that is gone back into their Service, and removes its
// gateways, which the garbage collector may do first.
func (r *Reconciler) end(ctx context.Context, name types.NamespacedName) error {
	r.mu.Lock()
	delete(r.checks, name)
	r.mu.Unlock()
	r.Memory.ForgetGroup(r.Workloads.forget(name))
	if err := pods.Release(ctx, r.Client, types.NamespacedName{Namespace: name.Namespace, Name: Holder(name.Name)}, nil); err != nil {
		return err
	}
	gateways, err := r.gateways(ctx, name.Namespace, func(owner *metav1.OwnerReference) bool { return owner.Name == name.Name })
	if err != nil {
		return err
	}
	var failed []error
	for i := range gateways {
		failed = append(failed, r.remove(ctx, gateways[i].Pod, true))
	}
	r.Ended()
	return errors.Join(failed...)
}
