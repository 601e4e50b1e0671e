// Package node writes NodePlans, cleans up NodeReports, and observes the nodes: their power, and
// what levers do to their VMs.
package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/collect"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/leverstate"
	"github.com/joulevirt/joulevirt/internal/plan"
	"github.com/joulevirt/joulevirt/internal/planner"
)

// FieldOwner is the name under which the manager writes NodePlans.
const FieldOwner = "joulevirt-manager"

// PlanReconciler writes the plan of each node that a policy governs. It
// writes the spec only: the status is the agent's.
//
// A node that no policy governs has no plan: the plan is deleted rather than
// emptied, so that what exists is what is governed, and the agent undoes what
// no plan names.
type PlanReconciler struct {
	Client   client.Client
	Observer *observe.Observer
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	Metrics  *collect.Metrics
	// Planned is reported with what a node is planned.
	Planned func(model.Node)
	Reviews *Reviews

	Potentials *PotentialStore

	changing nodesChanging
	writes   planWrites
	// awaits is of each planned node whether its plan waits for what a new leader does not know.
	awaits sync.Map
}

// +kubebuilder:rbac:groups="",resources=nodes;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstances,verbs=get;list;watch
// +kubebuilder:rbac:groups=joulevirt.io,resources=nodeplans,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=joulevirt.io,resources=nodereports;energypolicies;vmnetworkprofiles,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// conflictRetry is when a node is looked at again whose plan changed meanwhile.
const conflictRetry = time.Second

// Reconcile makes the plan of one node and writes it when it differs. A plan that is not
// as it was read is left as it is, and looked at again: another manager may lead by now.
func (r *PlanReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := r.reconcile(ctx, req)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	return result, err
}

func (r *PlanReconciler) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var node corev1.Node
	if err := r.Client.Get(ctx, req.NamespacedName, &node); apierrors.IsNotFound(err) {
		r.forget(req.Name)
		return ctrl.Result{}, r.remove(ctx, req.Name, nil)
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("get node %s: %w", req.Name, err)
	}
	seen, err := r.Observer.Node(ctx, &node)
	if errors.Is(err, observe.ErrUnreadable) {
		// Only a change of the object helps, and brings its own event.
		return ctrl.Result{}, reconcile.TerminalError(err)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observe node %s: %w", node.Name, err)
	}
	if !seen.Governed {
		r.forget(node.Name)
		r.changing.leave(node.Name)
		if seen.Plan == nil {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, r.remove(ctx, node.Name, seen.Plan)
	}
	if seen.ReportErr != nil {
		ctrl.LoggerFrom(ctx).Error(seen.ReportErr, "nothing new is planned for the node")
	}
	r.Planned(seen.Node)
	now := r.Clock.Now()
	r.Potentials.planned(seen.Node, now)
	review, wait := r.Reviews.due(node.Name, now)
	seen.Node.Review = review
	plan, err := r.planWhatFits(ctx, &seen.Node, now)
	if err != nil {
		return ctrl.Result{}, err
	}
	if wait, err := r.write(ctx, &node, &seen, plan, now); err != nil || wait > 0 {
		r.changing.drop(node.Name)
		return ctrl.Result{RequeueAfter: wait}, err
	}
	r.awaits.Store(node.Name, plan.Awaiting)
	if seen.Edited {
		r.Recorder.Eventf(seen.Plan, nil, corev1.EventTypeWarning, v1alpha1.ReasonEdited, "Plan",
			"somebody else changed the plan: it was made anew; what it may do is said in EnergyPolicies and VMNetworkProfiles")
	}
	if review {
		wait = r.Reviews.done(node.Name, now)
	}
	return ctrl.Result{RequeueAfter: min(wait, again(plan, seen, now))}, nil
}

// CountPlanned counts the nodes that this manager planned by all that there is to know of them.
func (r *PlanReconciler) CountPlanned() int {
	count := 0
	r.awaits.Range(func(_, awaits any) bool {
		if awaits == false {
			count++
		}
		return true
	})
	return count
}

// forget drops what is remembered of a node that has no plan any more.
func (r *PlanReconciler) forget(node string) {
	r.Reviews.forget(node)
	r.Potentials.forget(node)
	r.awaits.Delete(node)
	r.writes.forget(node)
}

// planWhatFits makes a plan that can be stored: without some VMs where a node has too many.
func (r *PlanReconciler) planWhatFits(ctx context.Context, node *model.Node, now time.Time) (model.Plan, error) {
	left := 0
	for most := mostPlannedVMs; ; most /= 2 {
		left += leaveOut(node, most)
		plan, err := r.plan(ctx, node, now)
		if err == nil && !fits(&plan) {
			continue
		}
		if left > 0 {
			explainLeftOut(&plan, left)
		}
		return plan, err
	}
}

// plan makes the plan of a node: without anything new when enough others are changing.
func (r *PlanReconciler) plan(ctx context.Context, node *model.Node, now time.Time) (model.Plan, error) {
	plan := planner.Plan(*node, now)
	if !planner.Changes(*node, plan) {
		r.changing.leave(node.Name)
		return plan, nil
	}
	may, err := r.mayChange(ctx, node.Name, node.Policy.Name, node.Policy.MaxNodesChanging)
	if err != nil || may {
		return plan, err
	}
	node.NodesBusy = true
	return planner.Plan(*node, now), nil
}

// again is how long until the plan may be another though nothing changes.
func again(plan model.Plan, seen observe.Observation, now time.Time) time.Duration {
	wait := DefaultReview
	soonest := func(at time.Time) { wait = min(wait, max(time.Second, at.Sub(now))) }
	if expiry := untilExpiry(plan, seen.Node.Policy, now); expiry > 0 {
		wait = min(wait, expiry)
	}
	if !seen.Times.Again.IsZero() {
		soonest(seen.Times.Again)
	}
	if back := untilReturn(&plan, now); !back.IsZero() {
		soonest(back)
	}
	if seen.Node.NodesBusy {
		wait = min(wait, objects.ChangingRetry)
	}
	return wait
}

// untilExpiry is the time until a recommendation may be replaced, or 0.
func untilExpiry(plan model.Plan, policy model.Policy, now time.Time) time.Duration {
	if plan.RecommendedAt.IsZero() {
		return 0
	}
	return max(time.Second, plan.RecommendedAt.Add(policy.RecommendationValidity).Sub(now))
}

// remove deletes the plan of a node, if it is as was is. The garbage collector does it
// too when the node went; whoever comes first.
func (r *PlanReconciler) remove(ctx context.Context, name string, was *v1alpha1.NodePlan) error {
	r.changing.leave(name)
	plan := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: name}}
	var asRead []client.DeleteOption
	if was != nil {
		asRead = append(asRead, client.Preconditions{UID: &was.UID, ResourceVersion: &was.ResourceVersion})
	}
	if err := r.Client.Delete(ctx, plan, asRead...); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete NodePlan %s, which no policy governs: %w", name, err)
	}
	return nil
}

// write applies the plan when it says something else than the one there is, or returns how long
// it has to wait for that. The error is a conflict when that one changed since it was read.
func (r *PlanReconciler) write(ctx context.Context, node *corev1.Node, seen *observe.Observation, planned model.Plan, now time.Time) (wait time.Duration, err error) {
	was := seen.Plan
	if planner.Changes(seen.Node, planned) && (was == nil || planned.ChangedAt.IsZero() || leverstate.IsApplied(was)) {
		planned.ChangedAt = now
	}
	spec := plan.Encode(&planned)
	// A plan that waits is not written for its reasons alone: a new leader would write every plan of
	// the cluster twice, to report for a second that it knows nothing.
	waits := planned.Awaiting && seen.Node.Current != nil && planned.DoesSame(seen.Node.Current)
	if was != nil && ownedBy(was, node) && (waits || equality.Semantic.DeepEqual(was.Spec, spec)) {
		r.changing.drop(node.Name)
		return 0, nil
	}
	var namespaces []string
	if was != nil && !r.writes.firstOf(node.Name, seen.PolicyVersion) {
		namespaces = causes(&was.Spec, &spec)
	}
	if wait := r.writes.take(node.Name, namespaces, now); wait > 0 && !planner.TakesBack(seen.Node, planned) {
		return wait, nil
	}
	desired := nodePlanFor(node, was, spec)
	if was == nil {
		err = r.Client.Create(ctx, desired, client.FieldOwner(FieldOwner))
	} else {
		err = r.Client.Update(ctx, desired, client.FieldOwner(FieldOwner))
	}
	if err != nil {
		return 0, fmt.Errorf("write NodePlan %s: %w", node.Name, err)
	}
	r.changing.wrote(node.Name, desired.GetGeneration())
	r.writes.wrote(node.Name, seen.PolicyVersion)
	if was == nil || was.Spec.Revision != spec.Revision || was.Spec.Apply != spec.Apply {
		note := fmt.Sprintf("revision %s of policy %s, apply %t: %s", spec.Revision, spec.Policy, spec.Apply, spec.Message)
		// Most reasons say it all, and have no message.
		r.Recorder.Eventf(desired, nil, corev1.EventTypeNormal, spec.Reason, "Plan", "%s", strings.TrimSuffix(note, ": "))
	}
	r.reportWithdrawn(ctx, was, desired, &planned)
	return 0, nil
}

func ownedBy(plan *v1alpha1.NodePlan, node *corev1.Node) bool {
	for _, owner := range plan.OwnerReferences {
		if owner.UID == node.UID {
			return true
		}
	}
	return false
}

// nodePlanFor is the plan of a node as it is written: what was there of it, with another spec. It is
// replaced as a whole, since server-side apply takes the API server four times as long.
func nodePlanFor(node *corev1.Node, was *v1alpha1.NodePlan, spec v1alpha1.NodePlanSpec) *v1alpha1.NodePlan {
	plan := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: node.Name}, Spec: spec}
	if was != nil {
		was.ObjectMeta.DeepCopyInto(&plan.ObjectMeta)
	}
	plan.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
	}
	return plan
}
