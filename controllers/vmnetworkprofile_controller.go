package controllers

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
	"github.com/joulevirt/joulevirt/internal/observe"
)

// VMNetworkProfileReconciler writes the status of profiles. What a profile
// causes on nodes is NodePlanReconciler's, which watches profiles itself.
type VMNetworkProfileReconciler struct {
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

func (r *VMNetworkProfileReconciler) setup(mgr ctrl.Manager, delay statusDelay, disturbed <-chan event.GenericEvent) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("vmnetworkprofile").
		For(&v1alpha1.VMNetworkProfile{}, builder.WithPredicates(specOrGone())).
		Watches(&v1alpha1.VMNetworkProfile{}, delay.handler(r.ofNamespace), builder.WithPredicates(specOrGone())).
		Watches(&v1alpha1.VMNetworkProfile{}, delay.handler(itself), builder.WithPredicates(trafficChanged())).
		Watches(&virtv1.VirtualMachineInstance{}, delay.handler(r.ofNamespace), builder.WithPredicates(vmiChanged())).
		Watches(&v1alpha1.NodePlan{}, delay.handler(profilesOfPlan)).
		WatchesRawSource(source.Channel(disturbed, delay.handler(itself))).
		Complete(r)
}

// Reconcile writes the status of one profile when it changed.
func (r *VMNetworkProfileReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
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
	r.tellDisturbed(&profile, base.Status.Interference)
	r.tellFlooded(&profile, base.Status.FloodedVMs, view.vmis)
	return ctrl.Result{}, nil
}

// view reads the cache's own objects: a status is made of thousands, and
// changes none.
func (r *VMNetworkProfileReconciler) view(ctx context.Context, namespace string) (profileView, error) {
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
	if view.plans, err = listPlans(ctx, r.Client); err != nil {
		return view, err
	}
	return view, nil
}

// ofNamespace gives all profiles of an object's namespace: which of them a VM
// belongs to depends on all.
func (r *VMNetworkProfileReconciler) ofNamespace(ctx context.Context, o client.Object) []reconcile.Request {
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
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: vm.Namespace, Name: vm.Profile}})
	}
	return out
}
