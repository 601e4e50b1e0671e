// Package placement moves VMs between the nodes of a policy by live migration, and writes
// PlacementPlans.
package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/watch"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/observe/loads"
	"github.com/joulevirt/joulevirt/internal/planner/placement"
)

// Options say how fast moves are decided and made.
type Options struct {
	// Window that loads are the mean and the 95th percentile of.
	Window time.Duration
	// Decide is the time between two decisions, and Follow between two looks at a move that
	// is being made.
	Decide, Follow time.Duration
	// Stands is how long VMs must have been proposed to leave a node before they do so only to
	// save energy, and Suffers how long a VM lacks CPU time before it is moved: other levers had
	// that long to help.
	Stands, Suffers time.Duration
}

// DefaultOptions decide on 15 minutes of load, each minute.
func DefaultOptions() Options {
	return Options{Window: 15 * time.Minute, Decide: time.Minute, Follow: 2 * time.Second, Stands: placement.DefaultPace().Stands, Suffers: 10 * time.Minute}
}

// Reconciler plans and makes the moves of policies with lever Placement.
type Reconciler struct {
	// Client reads the manager's cache, and Scheduling the one of pods and nodes as the
	// scheduler sees them. Live reads the API server.
	Client       client.Client
	Live         client.Reader
	Scheduling   client.Reader
	Powers       *observe.Powers
	Models       *learned.Models
	Disturbances observe.Disturbances
	// DirtyRates tells how fast VMs of nodes write memory, in bytes/s, by the Prometheus server
	// that the policy names. Of VMs that are left out it is not known.
	DirtyRates func(ctx context.Context, policy *v1alpha1.EnergyPolicy, nodes []string) (map[types.NamespacedName]float64, error)
	// Book books joules that moves of a policy save by the nodes' models.
	Book     func(policy string, joules float64)
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	Options  Options
	// Loads of nodes and VMs, while some policy has the lever.
	Loads *loads.Store

	mu       sync.Mutex
	memories map[string]*memory
	// supported is true once KubeVirt was seen to take a target node.
	supported bool
}

// memory is what is remembered of a policy between rounds. All else is in its PlacementPlan and in
// the migrations.
type memory struct {
	decidedAt time.Time
	// proposed is since when VMs are proposed to leave a node to save energy.
	proposed map[string]time.Time
	// written is how fast VMs write memory, as it was known at writtenAt.
	written   map[types.NamespacedName]float64
	writtenAt time.Time
	// stays are the reasons for which VMs stay, by the last decision.
	stays []v1alpha1.ReasonCount
	// bookedAt is up to when it is booked what moves save.
	bookedAt time.Time
}

// +kubebuilder:rbac:groups="",resources=pods;nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=joulevirt.io,resources=placementplans,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=joulevirt.io,resources=placementplans/status,verbs=update
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstancemigrations,verbs=get;list;watch;create;delete

// Setup adds the reconciler.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	r.memories = map[string]*memory{}
	all := handler.EnqueueRequestsFromMapFunc(r.active)
	return ctrl.NewControllerManagedBy(mgr).
		Named("placement").
		For(&v1alpha1.EnergyPolicy{}, builder.WithPredicates(watch.SpecOrGone())).
		Watches(&v1alpha1.PlacementPlan{}, handler.EnqueueRequestsFromMapFunc(ofPlan), builder.WithPredicates(watch.SpecOrGone())).
		Watches(&virtv1.VirtualMachineInstanceMigration{}, handler.EnqueueRequestsFromMapFunc(ofMigration)).
		Watches(&corev1.Node{}, all, builder.WithPredicates(watch.NodeChanged())).
		Watches(&v1alpha1.VMNetworkProfile{}, all, builder.WithPredicates(watch.SpecOrGone())).
		Complete(r)
}

func ofPlan(_ context.Context, o client.Object) []reconcile.Request {
	return watch.Requests([]string{o.GetName()})
}

// ofMigration returns the policy for which a migration was created.
func ofMigration(_ context.Context, o client.Object) []reconcile.Request {
	if policy := o.GetAnnotations()[v1alpha1.AnnotationPolicy]; policy != "" && o.GetLabels()[v1alpha1.LabelPlacement] != "" {
		return watch.Requests([]string{policy})
	}
	return nil
}

// active returns the policies that have the lever.
func (r *Reconciler) active(context.Context, client.Object) []reconcile.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]string, 0, len(r.memories))
	for name := range r.memories {
		names = append(names, name)
	}
	return watch.Requests(names)
}

func (r *Reconciler) memoryOf(policy string) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memories[policy] == nil {
		r.memories[policy] = &memory{}
		r.Loads.SetActive(true)
	}
	return r.memories[policy]
}

func (r *Reconciler) forget(policy string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, policy)
	r.Loads.SetActive(len(r.memories) > 0)
}

// Reconcile brings the moves of a policy one step further: it follows those that are being made,
// withdraws what may no longer be made, decides, and begins what there is room for.
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
	round, err := r.observeRound(ctx, policy, memory)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observe what moves of EnergyPolicy %s depend on: %w", policy.Name, err)
	}
	if err := errors.Join(r.follow(ctx, round), r.withdraw(ctx, round)); err != nil {
		return ctrl.Result{}, err
	}
	if round.isDue(memory, r.Options) || len(round.unmade()) > 0 {
		if err := r.fit(ctx, round.facts); err != nil {
			return ctrl.Result{}, fmt.Errorf("observe where VMs of EnergyPolicy %s fit: %w", policy.Name, err)
		}
	}
	if round.isDue(memory, r.Options) {
		r.book(round, memory)
	}
	round.decide(memory, r.Options)
	if err := r.writeSpec(ctx, round); err != nil {
		return ctrl.Result{}, err
	}
	beginErr := r.begin(ctx, round, memory)
	if err := errors.Join(beginErr, r.writeStatus(ctx, round, memory)); err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case round.isMoving():
		return ctrl.Result{RequeueAfter: r.Options.Follow}, nil
	case round.plan.Spec.Apply && len(round.unmade()) > 0:
		return ctrl.Result{RequeueAfter: r.Options.Decide / 4}, nil
	}
	return ctrl.Result{RequeueAfter: r.Options.Decide}, nil
}

// book books what the moves of the last day save, for the time since it was booked last: also that the
// hosts of nodes that they emptied are off. Of the time in which no manager looked nothing is known.
func (r *Reconciler) book(round *round, memory *memory) {
	since := round.now.Sub(memory.bookedAt)
	memory.bookedAt = round.now
	were := round.were(round.plan.Status.Moves)
	if since > 2*r.Options.Decide || len(were) == 0 {
		return
	}
	p := round.problem()
	p.Off = nil // what is off is known
	for i := range p.Nodes {
		n := &p.Nodes[i]
		n.PowersDown = slices.ContainsFunc(round.plan.Status.Hosts, func(h v1alpha1.HostStatus) bool {
			return h.Node == n.Name && h.State == v1alpha1.HostOff
		})
		if n.PowersDown && n.Power == nil { // without an agent: what it would draw is remembered
			if coefficients, learned := r.Models.Coefficients(n.Name, round.nodes[i].topology); learned {
				n.Power = &coefficients
			}
		}
	}
	if watts, known := placement.Saved(p, were); known {
		r.Book(round.policy.Name, float64(watts)*since.Seconds())
	}
}

func isActive(policy *v1alpha1.EnergyPolicy) bool {
	levers := (&model.Policy{Levers: policy.Spec.Levers}).Allows(v1alpha1.LeverPlacement)
	return policy.DeletionTimestamp.IsZero() && levers && policy.Spec.Mode != v1alpha1.ModeObserve
}

// end withdraws what a policy moves that no longer has the lever, and deletes its plan. Migrations
// whose target runs end by themselves.
func (r *Reconciler) end(ctx context.Context, policy string) (ctrl.Result, error) {
	r.forget(policy)
	migrations, err := r.migrations(ctx, policy)
	if err != nil {
		return ctrl.Result{}, err
	}
	pending := false
	for i := range migrations {
		m := &migrations[i]
		if m.IsFinal() || m.TargetIsHandedOff() {
			continue
		}
		pending = true
		if err := r.delete(ctx, m); err != nil {
			return ctrl.Result{}, err
		}
	}
	if pending {
		return ctrl.Result{RequeueAfter: r.Options.Follow}, nil
	}
	plan := &v1alpha1.PlacementPlan{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: policy}, plan); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.Client.Delete(ctx, plan); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("delete PlacementPlan %s: %w", policy, err)
	}
	return ctrl.Result{}, nil
}

// migrations returns those that were created for a policy.
func (r *Reconciler) migrations(ctx context.Context, policy string) ([]virtv1.VirtualMachineInstanceMigration, error) {
	var list virtv1.VirtualMachineInstanceMigrationList
	if err := r.Client.List(ctx, &list, client.MatchingLabels{v1alpha1.LabelPlacement: v1alpha1.PlacementMoveLabel}); err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	var out []virtv1.VirtualMachineInstanceMigration
	for i := range list.Items {
		if list.Items[i].Annotations[v1alpha1.AnnotationPolicy] == policy {
			out = append(out, list.Items[i])
		}
	}
	return out, nil
}

// delete deletes a migration, which KubeVirt then aborts.
func (r *Reconciler) delete(ctx context.Context, m *virtv1.VirtualMachineInstanceMigration) error {
	if !m.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := r.Client.Delete(ctx, m, client.Preconditions{UID: &m.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete migration %s/%s: %w", m.Namespace, m.Name, err)
	}
	return nil
}

func (r *Reconciler) writeSpec(ctx context.Context, round *round) error {
	if round.plan.ResourceVersion == "" {
		status := round.plan.Status
		round.plan.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "EnergyPolicy", Name: round.policy.Name, UID: round.policy.UID,
		}}
		if err := r.Client.Create(ctx, round.plan); err != nil {
			return fmt.Errorf("create PlacementPlan %s: %w", round.plan.Name, err)
		}
		round.plan.Status = status
		return nil
	}
	if sameSpec(&round.was.Spec, &round.plan.Spec) {
		return nil
	}
	status := round.plan.Status
	if err := r.Client.Update(ctx, round.plan); err != nil {
		return fmt.Errorf("update PlacementPlan %s: %w", round.plan.Name, err)
	}
	round.plan.Status = status
	return nil
}

func (r *Reconciler) writeStatus(ctx context.Context, round *round, memory *memory) error {
	round.summarize(memory)
	if sameStatus(&round.was.Status, &round.plan.Status) {
		return nil
	}
	if err := r.Client.Status().Update(ctx, round.plan); err != nil {
		return fmt.Errorf("write status of PlacementPlan %s: %w", round.plan.Name, err)
	}
	return nil
}
