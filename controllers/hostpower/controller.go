// Package hostpower powers the hosts of empty nodes off, and on again before they are needed.
package hostpower

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/controllers/watch"
	"github.com/joulevirt/joulevirt/internal/bmc"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/loads"
	"github.com/joulevirt/joulevirt/internal/planner/power"
)

// Options say how often is looked.
type Options struct {
	// Decide is the time between two looks at a policy, Follow while a host is on its way.
	Decide, Follow time.Duration
}

// DefaultOptions look each minute.
func DefaultOptions() Options { return Options{Decide: time.Minute, Follow: 10 * time.Second} }

const (
	// checkEvery is how often is looked whether a host can be powered, of checkAtOnce in each round.
	checkEvery  = 10 * time.Minute
	checkAtOnce = 5
	mostHosts   = 1024
	// longestMessage is the API's bound.
	longestMessage = 512
)

// Reconciler powers hosts of policies with hostPower. The rights are in config/host-power: only who
// wants this gives them.
type Reconciler struct {
	// Client reads the manager's cache, and Scheduling the one of pods and nodes as the scheduler
	// sees them. Direct reads and writes past all caches.
	Client     client.Reader
	Scheduling client.Reader
	Direct     client.Client
	Discovery  discovery.ServerResourcesInterface
	Loads      *loads.Store
	Recorder   events.EventRecorder
	Clock      clock.PassiveClock
	Options    Options

	mu       sync.Mutex
	memories map[string]*memory
}

// memory is what is remembered of a policy between rounds, and found anew by another manager.
type memory struct {
	emptySince map[string]time.Time
	checks     map[string]check
	history    power.History
}

// check is whether a host can be powered.
type check struct {
	at  time.Time
	err error
}

func (m *memory) retain(nodes map[string]bool) {
	maps.DeleteFunc(m.emptySince, func(node string, _ time.Time) bool { return !nodes[node] })
	maps.DeleteFunc(m.checks, func(node string, _ check) bool { return !nodes[node] })
}

// Setup adds the reconciler.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("hostpower").
		For(&v1alpha1.EnergyPolicy{}, builder.WithPredicates(watch.SpecOrGone())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(ofNode), builder.WithPredicates(watch.NodeChanged())).
		Complete(r)
}

// ofNode returns the policy that a node's record names: it may be gone.
func ofNode(_ context.Context, o client.Object) []reconcile.Request {
	if node, is := o.(*corev1.Node); is {
		if known, err := recordOf(node); err == nil && known != nil {
			return watch.Requests([]string{known.Policy})
		}
	}
	return nil
}

func (r *Reconciler) memoryOf(policy string) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memories == nil {
		r.memories = map[string]*memory{}
	}
	if r.memories[policy] == nil {
		r.memories[policy] = &memory{emptySince: map[string]time.Time{}, checks: map[string]check{}}
	}
	return r.memories[policy]
}

// Reconcile brings the hosts of a policy one step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	policy := &v1alpha1.EnergyPolicy{}
	err := r.Client.Get(ctx, req.NamespacedName, policy)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("get EnergyPolicy %s: %w", req.Name, err)
	}
	if apierrors.IsNotFound(err) || !isActive(policy) {
		return r.end(ctx, req.Name)
	}
	memory := r.memoryOf(policy.Name)
	seen, err := r.observe(ctx, policy, memory)
	if apierrors.IsForbidden(err) {
		err = bmc.Refuse(v1alpha1.ReasonHostRights, "the manager may not read what it powers hosts by: install the rights of config/host-power: %v", err)
		_, err = r.writeStatus(ctx, &round{policy: policy, now: r.Clock.Now(), problems: map[string]error{"": err}}, nil)
		return ctrl.Result{RequeueAfter: r.Options.Decide}, err
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observe the hosts of EnergyPolicy %s: %w", policy.Name, err)
	}
	r.checkSome(ctx, seen, memory)
	decisions := power.Decide(seen.problem)
	moving := false
	for i, d := range decisions {
		known := seen.records[i]
		if policy.Spec.Mode != v1alpha1.ModeEnforce {
			// A recommendation does nothing but undo.
			d = power.Decision{On: known != nil, Hold: model.Hold{Reason: v1alpha1.ReasonObserveOnly, Message: "the policy's mode is not Enforce"}}
		}
		if known == nil && !d.Off || known != nil && known.Policy != policy.Name {
			continue // or it is another policy's to power on first
		}
		moving = true
		if err := r.step(ctx, policy, seen.hosts[i].Name, d, power.Deadline(seen.hosts[i].Boot)); err != nil {
			if apierrors.IsConflict(err) {
				continue // the next round knows more
			}
			memory.checks[seen.hosts[i].Name] = check{seen.now, err}
			seen.problems[seen.hosts[i].Name] = err
			ctrl.LoggerFrom(ctx).Error(err, "a host was not powered as decided", "node", seen.hosts[i].Name)
		}
	}
	written, err := r.writeStatus(ctx, seen, decisions)
	if err != nil {
		return ctrl.Result{}, err
	}
	if moving || !written {
		return ctrl.Result{RequeueAfter: r.Options.Follow}, nil
	}
	return ctrl.Result{RequeueAfter: r.Options.Decide}, nil
}

func isActive(policy *v1alpha1.EnergyPolicy) bool {
	return policy.DeletionTimestamp.IsZero() && policy.Spec.HostPower != nil && policy.Spec.Mode != v1alpha1.ModeObserve
}

// end powers on what a policy has powered off that no longer wants it.
func (r *Reconciler) end(ctx context.Context, policy string) (ctrl.Result, error) {
	r.mu.Lock()
	delete(r.memories, policy)
	r.mu.Unlock()
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("list nodes: %w", err)
	}
	var errs []error
	left := false
	for i := range nodes.Items {
		node := &nodes.Items[i]
		known, err := recordOf(node)
		if err != nil || known == nil || known.Policy != policy {
			continue // of one that is unreadable nobody knows whose it is
		}
		left = true
		d := power.Decision{On: true, Hold: model.Hold{Reason: v1alpha1.ReasonNoPolicy, Message: "the policy no longer has it powered off"}}
		errs = append(errs, r.step(ctx, nil, node.Name, d, power.Deadline(bootOf(node).took())))
	}
	if err := errors.Join(errs...); err != nil || !left {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: r.Options.Follow}, nil
}

// checkSome looks whether hosts can be powered, those first that were looked at longest ago.
func (r *Reconciler) checkSome(ctx context.Context, round *round, memory *memory) {
	var names []string
	for i := range round.hosts {
		name := round.hosts[i].Name
		if at := memory.checks[name].at; round.records[i] == nil && (at.IsZero() || round.now.Sub(at) >= checkEvery) {
			names = append(names, name)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return memory.checks[a].at.Compare(memory.checks[b].at) })
	for _, name := range names[:min(len(names), checkAtOnce)] {
		node := &corev1.Node{}
		err := r.Direct.Get(ctx, client.ObjectKey{Name: name}, node)
		if err == nil {
			err = r.check(ctx, round.policy, node)
		}
		memory.checks[name] = check{round.now, err}
		if err != nil {
			round.problems[name] = err
		}
	}
}

// writeStatus writes what becomes of hosts into the PlacementPlan. It returns false while there is
// no plan.
func (r *Reconciler) writeStatus(ctx context.Context, round *round, decisions []power.Decision) (bool, error) {
	plan := &v1alpha1.PlacementPlan{}
	if err := r.Direct.Get(ctx, client.ObjectKey{Name: round.policy.Name}, plan); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	was := plan.Status.DeepCopy()
	plan.Status.Hosts = round.statuses(decisions)
	statuses.SetConditions(&plan.Status.Conditions, []metav1.Condition{round.condition()}, plan.Generation, round.now)
	if equality.Semantic.DeepEqual(was, &plan.Status) {
		return true, nil
	}
	if err := r.Direct.Status().Update(ctx, plan); err != nil {
		if apierrors.IsConflict(err) {
			return false, nil // the placement controller writes it too
		}
		return false, fmt.Errorf("write status of PlacementPlan %s: %w", plan.Name, err)
	}
	return true, nil
}

// statuses are those of all hosts, by what was recorded before this round.
func (r *round) statuses(decisions []power.Decision) []v1alpha1.HostStatus {
	var out []v1alpha1.HostStatus
	for i := range r.hosts {
		s := v1alpha1.HostStatus{Node: r.hosts[i].Name, State: r.hosts[i].State, Reason: decisions[i].Reason, Message: decisions[i].Message}
		if decisions[i].Off && s.State == v1alpha1.HostOn {
			s.Message = "it is being powered off"
			if r.policy.Spec.Mode != v1alpha1.ModeEnforce {
				s.Message = "it would be powered off in mode Enforce"
			}
		}
		if known := r.records[i]; known != nil {
			s.Since = known.Since.DeepCopy()
		}
		if problem := r.problems[s.Node]; problem != nil {
			why := holdOf(problem)
			s.Reason, s.Message = why.Reason, why.Message
		}
		s.Message = statuses.Cut(s.Message, longestMessage)
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(x, y v1alpha1.HostStatus) int {
		on := func(s *v1alpha1.HostStatus) int {
			if s.State == v1alpha1.HostOn {
				return 1
			}
			return 0
		}
		return on(&x) - on(&y)
	})
	return out[:min(len(out), mostHosts)]
}

// condition says whether the hosts can be powered.
func (r *round) condition() metav1.Condition {
	out := metav1.Condition{Type: v1alpha1.ConditionHostsManaged, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonHostsManaged, Message: "all hosts that were checked can be powered"}
	var failed []string
	for i := range r.hosts {
		if r.hosts[i].State == v1alpha1.HostFailed {
			failed = append(failed, r.hosts[i].Name)
		}
	}
	switch nodes := slices.Sorted(maps.Keys(r.problems)); {
	case len(failed) > 0:
		out.Status, out.Reason = metav1.ConditionFalse, v1alpha1.ReasonHostFailed
		out.Message = fmt.Sprintf("the hosts of nodes %s did not come back: repair each, then run kubectl annotate node NODE %s-", strings.Join(failed, ", "), v1alpha1.AnnotationHostFailed)
	case len(nodes) > 0:
		why := holdOf(r.problems[nodes[0]])
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, why.Reason, why.Message
		if others := len(nodes) - 1; others > 0 {
			out.Message += fmt.Sprintf(" (and %d more nodes)", others)
		}
	}
	return out
}
