// Package profile writes the statuses of VMNetworkProfiles, and observes which of their VMs are
// disturbed or flooded.
package profile

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/controllers/watch"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// Reconciler writes the status of profiles. What a profile
// causes on nodes is node.PlanReconciler's, which watches profiles itself.
type Reconciler struct {
	Client client.Client
	Clock  clock.PassiveClock
	// Disturbances of VMs.
	Disturbances observe.Disturbances
	Floods       Floods
	Recorder     events.EventRecorder
	pace         eventPace
}

// +kubebuilder:rbac:groups=joulevirt.io,resources=vmnetworkprofiles,verbs=get;list;watch
// +kubebuilder:rbac:groups=joulevirt.io,resources=vmnetworkprofiles/status,verbs=get;patch

// Setup registers the controller. delay gathers what happens shortly after one another into one
// write of a status, disturbed brings profiles whose VMs have other verdicts.
func (r *Reconciler) Setup(mgr ctrl.Manager, delay watch.StatusDelay, disturbed <-chan event.GenericEvent) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("vmnetworkprofile").
		For(&v1alpha1.VMNetworkProfile{}, builder.WithPredicates(watch.SpecOrGone())).
		Watches(&v1alpha1.VMNetworkProfile{}, delay.Handler(r.ofNamespace), builder.WithPredicates(watch.SpecOrGone())).
		Watches(&v1alpha1.VMNetworkProfile{}, delay.Handler(itself), builder.WithPredicates(trafficChanged())).
		Watches(&virtv1.VirtualMachineInstance{}, delay.Handler(r.ofNamespace), builder.WithPredicates(watch.VMIChanged())).
		Watches(&v1alpha1.NodePlan{}, delay.Handler(profilesOfPlan)).
		WatchesRawSource(source.Channel(disturbed, delay.Handler(itself))).
		Complete(r)
}

// Reconcile writes the status of one profile when it changed.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var profile v1alpha1.VMNetworkProfile
	if err := r.Client.Get(ctx, req.NamespacedName, &profile); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	view, err := r.view(ctx, profile.Namespace)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observe VMNetworkProfile %s: %w", req, err)
	}
	base := profile.DeepCopy()
	profile.Status = profileStatus(&profile, view)
	if equality.Semantic.DeepEqual(base.Status, profile.Status) {
		return ctrl.Result{}, nil
	}
	if err := r.Client.Status().Patch(ctx, &profile, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("write status of VMNetworkProfile %s: %w", req, err)
	}
	r.reportDisturbed(&profile, base.Status.DisturbedVMs)
	r.reportFlooded(&profile, base.Status.DisturbedVMs, view.vmis)
	return ctrl.Result{}, nil
}

// view reads the cache's own objects: a status is made of thousands, and
// changes none.
func (r *Reconciler) view(ctx context.Context, namespace string) (profileView, error) {
	view := profileView{now: r.Clock.Now(), disturbances: r.Disturbances, floods: r.Floods}
	var profiles v1alpha1.VMNetworkProfileList
	if err := r.Client.List(ctx, &profiles, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return view, fmt.Errorf("list VMNetworkProfiles: %w", err)
	}
	view.profiles = observe.NewProfiles(profiles.Items)
	var vmis virtv1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &vmis, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return view, fmt.Errorf("list VMIs: %w", err)
	}
	view.vmis = vmis.Items
	var err error
	if view.plans, err = objects.ListPlans(ctx, r.Client); err != nil {
		return view, err
	}
	return view, nil
}

// ofNamespace gives all profiles of an object's namespace: which of them a VM
// belongs to depends on all.
func (r *Reconciler) ofNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	var profiles v1alpha1.VMNetworkProfileList
	if err := r.Client.List(ctx, &profiles, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list VMNetworkProfiles from the cache", "namespace", o.GetNamespace())
		return nil
	}
	var out []reconcile.Request
	for i := range profiles.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&profiles.Items[i])})
	}
	return out
}

// profilesOfPlan gives the profiles that a plan names.
func profilesOfPlan(_ context.Context, o client.Object) []reconcile.Request {
	plan, ok := o.(*v1alpha1.NodePlan)
	if !ok {
		return nil
	}
	var out []reconcile.Request
	for _, vm := range plan.Spec.VMs {
		if vm.Profile != "" {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: vm.Namespace, Name: vm.Profile}})
		}
	}
	return out
}
