package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// policyRecheck notices reports that stopped coming: nothing else tells.
const policyRecheck = 5 * time.Minute

// DefaultFiguresDelay is how long a policy's figures may lag behind the reports: of
// a thousand nodes some report other watts each second, and each change of a
// status is a write that all watchers see.
const DefaultFiguresDelay = 30 * time.Second

// EnergyPolicyReconciler writes the status of policies. What a policy causes
// on nodes is NodePlanReconciler's, which watches policies itself.
type EnergyPolicyReconciler struct {
	Client client.Client
	Powers *observe.Powers
	Clock  clock.PassiveClock
	// Recorder tells of pauses.
	Recorder events.EventRecorder
	// Wake asks energy sources that were not asked yet, and reads what else the policy
	// names.
	Wake func()
	// sights are those of groups.
	sights *trafficSights
	// potentials tell what levers would save. Nil: nothing does.
	potentials Potentials
	// savings may be nil: then none are told.
	savings *savingsSources
	// alerts returns the last answer to an alert of a policy. Nil: none is asked for.
	alerts func(policy string, alert *v1alpha1.Alert) (alertAnswer, bool)
}

// +kubebuilder:rbac:groups=joulevirt.io,resources=energypolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=joulevirt.io,resources=energypolicies/status,verbs=get;patch

func (r *EnergyPolicyReconciler) setup(mgr ctrl.Manager, delay, figures statusDelay, news news) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("energypolicy").
		For(&v1alpha1.EnergyPolicy{}, builder.WithPredicates(specOrGone())).
		Watches(&v1alpha1.EnergyPolicy{}, delay.handler(r.all), builder.WithPredicates(specOrGone())).
		Watches(&corev1.Node{}, delay.handler(r.all), builder.WithPredicates(nodeChanged())).
		Watches(&v1alpha1.NodeReport{}, delay.handler(r.all), builder.WithPredicates(reportChanged())).
		Watches(&v1alpha1.NodeReport{}, figures.handler(r.all)).
		Watches(&v1alpha1.NodePlan{}, delay.handler(r.all)).
		WatchesRawSource(source.Channel(news.policies, delay.handler(r.all))).
		WatchesRawSource(source.Channel(news.figures, figures.handler(r.all))).
		Complete(r)
}

// Reconcile writes the status of one policy when it changed.
func (r *EnergyPolicyReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var policy v1alpha1.EnergyPolicy
	if err := r.Client.Get(ctx, req.NamespacedName, &policy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	view, err := r.view(ctx)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observe EnergyPolicy %s: %w", policy.Name, err)
	}
	if policy.Status.ObservedGeneration != policy.Generation {
		r.Wake()
	}
	base := policy.DeepCopy()
	policy.Status = policyStatus(&policy, view)
	result := ctrl.Result{RequeueAfter: recheck(observe.Changes(&policy, view.now), view.now)}
	if equality.Semantic.DeepEqual(base.Status, policy.Status) {
		return result, nil
	}
	if err := r.Client.Status().Patch(ctx, &policy, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("write status of EnergyPolicy %s: %w", policy.Name, err)
	}
	r.tellPause(&policy, base.Status.Conditions)
	return result, nil
}

// view reads the cache's own objects, which a status does not change.
func (r *EnergyPolicyReconciler) view(ctx context.Context) (policyView, error) {
	view := policyView{now: r.Clock.Now(), powers: r.Powers, potentials: r.potentials, savings: r.savings, alerts: r.alerts}
	var policies v1alpha1.EnergyPolicyList
	if err := r.Client.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return view, fmt.Errorf("list EnergyPolicies: %w", err)
	}
	view.policies = observe.NewPolicies(policies.Items)
	var err error
	if view.reports, err = listReports(ctx, r.Client); err != nil {
		return view, err
	}
	if view.plans, err = listPlans(ctx, r.Client); err != nil {
		return view, err
	}
	var profiles v1alpha1.VMNetworkProfileList
	if err := r.Client.List(ctx, &profiles, client.UnsafeDisableDeepCopy); err != nil {
		return view, fmt.Errorf("list VMNetworkProfiles: %w", err)
	}
	view.groups, view.groupsAwaited = viewGroups(profiles.Items, r.sights.all())
	view.groupRevisions = groupRevisions(profiles.Items)
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return view, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		if observe.RunsVMs(&nodes.Items[i], view.reports[nodes.Items[i].Name] != nil) {
			view.nodes = append(view.nodes, &nodes.Items[i])
		}
	}
	// Of nodes that have the same trouble, messages name the first.
	slices.SortFunc(view.nodes, func(x, y *corev1.Node) int { return strings.Compare(x.Name, y.Name) })
	return view, nil
}

// all gives all policies: there are few, and each may win or lose a node.
func (r *EnergyPolicyReconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var policies v1alpha1.EnergyPolicyList
	if err := r.Client.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list EnergyPolicies from the cache")
		return nil
	}
	names := make([]string, 0, len(policies.Items))
	for i := range policies.Items {
		names = append(names, policies.Items[i].Name)
	}
	return requests(names)
}
