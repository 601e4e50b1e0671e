// Package policy writes the statuses of EnergyPolicies.
package policy

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
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/group"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/controllers/trials"
	"github.com/joulevirt/joulevirt/controllers/watch"
	"github.com/joulevirt/joulevirt/internal/findings"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// policyRecheck notices reports that stopped coming: nothing else tells.
const policyRecheck = 5 * time.Minute

// DefaultFiguresDelay is how long a policy's figures may lag behind the reports: of
// a thousand nodes some report other watts each second, and each change of a
// status is a write that all watchers see.
const DefaultFiguresDelay = 30 * time.Second

// Reconciler writes the status of policies. What a policy causes
// on nodes is node.PlanReconciler's, which watches policies itself.
type Reconciler struct {
	Client client.Client
	Powers *observe.Powers
	Clock  clock.PassiveClock
	// Recorder tells of pauses.
	Recorder events.EventRecorder
	// Wake asks energy sources that were not asked yet, and reads what else the policy
	// names.
	Wake func()
	// Views are those of groups.
	Views *group.Views
	// Potentials tell what levers would save. Nil: nothing does.
	Potentials trials.Potentials
	// Savings may be nil: then none are reported.
	Savings *SavingsSources

	idle findings.Idle
}

// +kubebuilder:rbac:groups=joulevirt.io,resources=energypolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=joulevirt.io,resources=energypolicies/status,verbs=get;patch

// Setup adds the reconciler. changed and newFigures are causes that no object's change has.
func (r *Reconciler) Setup(mgr ctrl.Manager, delay, figures watch.StatusDelay, changed, newFigures <-chan event.GenericEvent) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("energypolicy").
		For(&v1alpha1.EnergyPolicy{}, builder.WithPredicates(watch.SpecOrGone())).
		Watches(&v1alpha1.EnergyPolicy{}, delay.Handler(r.all), builder.WithPredicates(watch.SpecOrGone())).
		Watches(&corev1.Node{}, delay.Handler(r.ofNode), builder.WithPredicates(watch.NodeChanged())).
		Watches(&v1alpha1.NodeReport{}, delay.Handler(r.ofNode), builder.WithPredicates(watch.ReportChanged())).
		Watches(&v1alpha1.NodeReport{}, figures.Handler(r.ofNode)).
		Watches(&v1alpha1.NodePlan{}, delay.Handler(ofPlan)).
		Watches(&v1alpha1.PlacementPlan{}, delay.Handler(ofMoves), builder.WithPredicates(watch.SpecOrGone())).
		WatchesRawSource(source.Channel(changed, delay.Handler(r.all))).
		WatchesRawSource(source.Channel(newFigures, figures.Handler(r.all))).
		Complete(r)
}

// Reconcile writes the status of one policy when it changed.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
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
	r.reportPause(&policy, base.Status.Conditions)
	return result, nil
}

// view reads the cache's own objects, which a status does not change.
func (r *Reconciler) view(ctx context.Context) (policyView, error) {
	view := policyView{now: r.Clock.Now(), powers: r.Powers, potentials: r.Potentials, savings: r.Savings}
	var policies v1alpha1.EnergyPolicyList
	if err := r.Client.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return view, fmt.Errorf("list EnergyPolicies: %w", err)
	}
	view.policies = observe.NewPolicies(policies.Items)
	var err error
	if view.reports, err = objects.ListReports(ctx, r.Client); err != nil {
		return view, err
	}
	if view.plans, err = objects.ListPlans(ctx, r.Client); err != nil {
		return view, err
	}
	var profiles v1alpha1.VMNetworkProfileList
	if err := r.Client.List(ctx, &profiles, client.UnsafeDisableDeepCopy); err != nil {
		return view, fmt.Errorf("list VMNetworkProfiles: %w", err)
	}
	view.groups, view.groupsAwaited = group.Summarize(profiles.Items, r.Views.All())
	view.groupRevisions = groupRevisions(profiles.Items)
	var vmis virtv1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &vmis, client.UnsafeDisableDeepCopy); err != nil {
		return view, fmt.Errorf("list VMIs: %w", err)
	}
	view.vms = vmsByNode(vmis.Items, profiles.Items, &r.idle)
	var hybrids v1alpha1.HybridWorkloadList
	if err := r.Client.List(ctx, &hybrids, client.UnsafeDisableDeepCopy); err != nil {
		return view, fmt.Errorf("list HybridWorkloads: %w", err)
	}
	for i := range hybrids.Items {
		if h := &hybrids.Items[i]; h.Status.ReadyGateways > 0 {
			view.workloads = append(view.workloads, model.UnitOfWorkload(client.ObjectKeyFromObject(h).String()))
		}
	}
	var moves v1alpha1.PlacementPlanList
	if err := r.Client.List(ctx, &moves, client.UnsafeDisableDeepCopy); err != nil {
		return view, fmt.Errorf("list PlacementPlans: %w", err)
	}
	view.moves = moves.Items
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

// ofPlan gives the policy that a plan follows.
func ofPlan(_ context.Context, o client.Object) []reconcile.Request {
	plan, ok := o.(*v1alpha1.NodePlan)
	if !ok || plan.Spec.Policy == "" {
		return nil
	}
	return watch.Requests([]string{plan.Spec.Policy})
}

// ofMoves gives the policy that a PlacementPlan is of.
func ofMoves(_ context.Context, o client.Object) []reconcile.Request {
	return watch.Requests([]string{o.GetName()})
}

// ofNode gives the policies that select a node, by the node itself or its report: they govern
// it, or count it as governed by another.
func (r *Reconciler) ofNode(ctx context.Context, o client.Object) []reconcile.Request {
	node, ok := o.(*corev1.Node)
	if !ok {
		node = &corev1.Node{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: o.GetName()}, node, client.UnsafeDisableDeepCopy); err != nil {
			return r.all(ctx, o)
		}
	}
	var policies v1alpha1.EnergyPolicyList
	if err := r.Client.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list EnergyPolicies from the cache")
		return nil
	}
	var names []string
	for _, policy := range observe.NewPolicies(policies.Items) {
		if policy.Err == nil && policy.SelectsNode(node) {
			names = append(names, policy.Name)
		}
	}
	return watch.Requests(names)
}

// all gives all policies: of a policy that changes each may win or lose a node.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var policies v1alpha1.EnergyPolicyList
	if err := r.Client.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list EnergyPolicies from the cache")
		return nil
	}
	names := make([]string, 0, len(policies.Items))
	for i := range policies.Items {
		names = append(names, policies.Items[i].Name)
	}
	return watch.Requests(names)
}
