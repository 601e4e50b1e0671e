// Package group steers the traffic of the groups that VMNetworkProfiles name, and writes
// status.traffic of the profiles.
package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/collect"
	"github.com/joulevirt/joulevirt/controllers/offload"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/gateway"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
	"github.com/joulevirt/joulevirt/internal/routing/service"
)

// Options say how groups' traffic is steered.
type Options struct {
	// Replan is the time between two plans of a group: one step of its traffic each.
	// Members that are not ready are replaced at once.
	Replan time.Duration
	// Figures is the least time between two writes of a group's status for changed
	// Figures alone.
	Figures time.Duration
}

// DefaultOptions let the rates, which come each 15 s, show what a step did
// before the next.
func DefaultOptions() Options {
	return Options{Replan: 30 * time.Second, Figures: time.Minute}
}

const (
	// settling is how soon it is looked whether what was written is in force.
	settling = time.Second
	// awaiting is how soon it is looked again for what comes by itself.
	awaiting = 2 * time.Second
	// patience is how long a reversion counts.
	patience = time.Hour
	// mostIdle is the longest time until a group is looked at again in which there is nothing to
	// steer: what changes that has a watch, but for a kind of route that is installed.
	mostIdle = 5 * time.Minute
	// reversions by somebody else, after which the shares are left alone.
	mostReversions = 2
)

// Reconciler steers the traffic of profiles' groups: it observes,
// plans, writes, and tells in status.traffic of the profile, which nobody else
// writes.
type Reconciler struct {
	Client   client.Client
	Observer *observe.GroupObserver
	Writers  routing.Writers
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	Options  Options
	// Proofs may be nil: groups then act as their policies have it.
	Proofs GroupProofs
	// Guards say what is withdrawn. They may be nil: nothing is.
	Guards GroupGuards
	// Metrics count what is withdrawn.
	Metrics *collect.Metrics

	Views *Views
	// Ended is called after a group has ended, so that what it leaves is removed.
	Ended    func()
	memories groupMemories
	kinds    *groupKinds
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstances,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=httproutes;grpcroutes,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=joulevirt.io,resources=vmnetworkprofiles,verbs=get;list;watch
// +kubebuilder:rbac:groups=joulevirt.io,resources=vmnetworkprofiles/status,verbs=get;patch

// Reconcile makes a group's traffic follow its plan.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var profile v1alpha1.VMNetworkProfile
	err := r.Client.Get(ctx, req.NamespacedName, &profile)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("get VMNetworkProfile %s: %w", req, err)
	}
	if apierrors.IsNotFound(err) || !profile.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.forget(ctx, req.NamespacedName)
	}
	if profile.Spec.Group == nil {
		return ctrl.Result{}, errors.Join(r.forget(ctx, req.NamespacedName), r.clearStatus(ctx, &profile))
	}
	if err := r.kinds.watch(profile.Spec.Group.Kind); err != nil {
		return ctrl.Result{}, fmt.Errorf("watch what group of VMNetworkProfile %s depends on: %w", req, err)
	}
	memory := r.memories.of(req.NamespacedName)
	if err := r.leaveFormer(ctx, &profile, memory); err != nil {
		return ctrl.Result{}, err
	}
	seen, err := r.Observer.Group(ctx, &profile)
	if errors.Is(err, observe.ErrUnreadable) {
		return ctrl.Result{}, reconcile.TerminalError(err)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observe group of VMNetworkProfile %s: %w", req, err)
	}
	round, err := r.round(ctx, seen, memory)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("steer group of VMNetworkProfile %s: %w", req, err)
	}
	r.note(round, memory)
	r.show(ctx, round)
	if err := r.tell(ctx, round, memory); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: r.again(round, memory)}, nil
}

// again is when the group is to be looked at anew, whatever happens.
func (r *Reconciler) again(round *groupRound, memory *groupMemory) time.Duration {
	switch {
	case round.moving():
		return settling
	case round.seen.Awaited:
		return min(awaiting, r.Options.Replan)
	}
	now := r.Clock.Now()
	if !memory.idleSince.IsZero() {
		return min(max(now.Sub(memory.idleSince), r.Options.Replan), mostIdle)
	}
	soon := max(memory.plannedAt.Add(r.Options.Replan).Sub(now), r.Options.Replan/2)
	if w := round.withdrawal(); w != nil && w.Until.After(now) {
		soon = min(soon, w.Until.Sub(now))
	}
	if s := round.plan.Schedule; s != nil && s.IsValid() {
		// By when the plan was made: a slot may have begun since.
		soon = min(soon, max(s.Next(round.at).Sub(now), time.Millisecond))
	}
	return soon
}

// forget gives back the traffic of a group that is no more.
func (r *Reconciler) forget(ctx context.Context, profile types.NamespacedName) error {
	if memory := r.memories.known(profile); memory != nil && memory.group != nil {
		if err := r.detach(ctx, memory); err != nil {
			return err
		}
		r.Ended()
	}
	r.memories.forget(profile)
	if r.Proofs != nil {
		r.Proofs.ForgetGroup(profile.String())
	}
	r.Views.forget(ctx, profile)
	return nil
}

// leaveFormer gives back the traffic of the target that the profile had before.
func (r *Reconciler) leaveFormer(ctx context.Context, profile *v1alpha1.VMNetworkProfile, memory *groupMemory) error {
	former := memory.group
	target := profile.Spec.Group
	if former == nil || former.UID == profile.UID && former.Target.Name == target.Name && former.Target.Kind == target.Kind {
		return nil
	}
	if err := r.detach(ctx, memory); err != nil {
		return err
	}
	r.Ended()
	*memory = groupMemory{}
	return nil
}

// detach releases the traffic of a group that may not be steered any more, if there is something
// to release.
func (r *Reconciler) detach(ctx context.Context, memory *groupMemory) error {
	writer := r.Writers.For(memory.group.Target.Kind)
	if writer == nil || !memory.mayHold && !memory.attached {
		return nil
	}
	if err := writer.Detach(ctx, *memory.group); err != nil && !isRefusal(err) {
		return fmt.Errorf("give back %s %s/%s: %w", memory.group.Target.Kind, memory.group.Profile.Namespace, memory.group.Target.Name, err)
	}
	memory.attached = false
	return nil
}

func (r *Reconciler) release(ctx context.Context, group routing.Group) error {
	writer := r.Writers.For(group.Target.Kind)
	if writer == nil {
		return nil
	}
	if err := writer.Release(ctx, group); err != nil && !isRefusal(err) {
		return fmt.Errorf("give back the traffic of %s %s/%s: %w", group.Target.Kind, group.Profile.Namespace, group.Target.Name, err)
	}
	return nil
}

// show tells metrics and the statuses of policies what became of the group.
func (r *Reconciler) show(ctx context.Context, round *groupRound) {
	view := round.view()
	view.policy, view.unit = round.tried(r.Views.All()[round.seen.Routing.Profile])
	r.Views.put(ctx, view)
}

// tell writes the status when it says something else, or, less often, when its
// figures differ.
func (r *Reconciler) tell(ctx context.Context, round *groupRound, memory *groupMemory) error {
	profile := round.seen.Profile
	was := profile.Status.Traffic
	if memory.written != nil {
		was = memory.written
	}
	now := r.Clock.Now()
	if round.seen.Awaited && was != nil && memory.reportedAt.IsZero() && was.ObservedGeneration == profile.Generation {
		return nil // or a new leader would say for a moment that it knows nothing
	}
	status := round.status()
	words := sameWords(was, status)
	if words && (sameFigures(was, status) || now.Before(memory.reportedAt.Add(r.Options.Figures))) {
		return nil
	}
	if err := r.writeStatus(ctx, profile, status); err != nil {
		return err
	}
	memory.written, memory.reportedAt = status, now
	if r.reportWithdrawn(round, was, now) {
		return nil
	}
	if was == nil || was.State != status.State || was.Reason != status.Reason || was.Revision != status.Revision {
		note := fmt.Sprintf("%s %s: %s %s: %s",
			profile.Spec.Group.Kind, profile.Spec.Group.Name, status.State, status.Revision, statuses.Cut(status.Message, maxEventMessage))
		r.Recorder.Eventf(profile, nil, corev1.EventTypeNormal, status.Reason, "Steer", "%s", strings.TrimSuffix(note, ": "))
	}
	return nil
}

// maxEventMessage leaves room in the API's 1024 bytes for what else an event says.
const maxEventMessage = 512

func isRefusal(err error) bool {
	var refusal *routing.Refusal
	return errors.As(err, &refusal)
}

// lastPlan is what was planned before: by this manager, or, by what the status and
// the cluster tell, by the one before.
func lastPlan(seen *observe.Group, state *routing.State, memory *groupMemory) *planner.GroupPlan {
	if memory.plan != nil {
		return memory.plan
	}
	return recovered(seen, state)
}

// NewWriters returns what steers traffic: by Services and by routes of the Gateway API.
func NewWriters(mgr ctrl.Manager) routing.Writers {
	return routing.Writers{
		Service: service.New(mgr.GetClient(), mgr.GetAPIReader()),
		Route:   gateway.New(mgr.GetClient(), mgr.GetAPIReader()),
	}
}

// Orphans removes what groups leave that ended: of those that went while no manager ran too.
type Orphans struct {
	Client client.Client
	Live   client.Reader
}

// Release removes what it finds now. What fails is found again by the next call: the pod
// of somebody must not keep the manager from its other work.
func (o *Orphans) Release(ctx context.Context) error {
	var list v1alpha1.VMNetworkProfileList
	if err := o.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list VMNetworkProfiles: %w", err)
	}
	steering, steered := map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}
	var groups []observe.Profile
	for _, profile := range observe.NewProfiles(list.Items) {
		if group := profile.Spec.Group; group != nil && group.Kind == v1alpha1.GroupService {
			steering[client.ObjectKeyFromObject(profile.VMNetworkProfile)] = true
			steered[types.NamespacedName{Namespace: profile.Namespace, Name: group.Name}] = true
			groups = append(groups, profile)
		}
	}
	var hybrids v1alpha1.HybridWorkloadList
	if err := o.Client.List(ctx, &hybrids, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list HybridWorkloads: %w", err)
	}
	for i := range hybrids.Items {
		h := &hybrids.Items[i]
		if h.DeletionTimestamp.IsZero() {
			steering[types.NamespacedName{Namespace: h.Namespace, Name: offload.Holder(h.Name)}] = true
			steered[types.NamespacedName{Namespace: h.Namespace, Name: h.Spec.ServiceName}] = true
		}
	}
	inGroup := func(vm *metav1.PartialObjectMetadata) bool {
		return offload.Selects(hybrids.Items, vm) || slices.ContainsFunc(groups, func(p observe.Profile) bool {
			return p.Namespace == vm.Namespace && p.Selects(&virtv1.VirtualMachineInstance{ObjectMeta: vm.ObjectMeta})
		})
	}
	// The selector first: a Service that selects by a label that its VMs lost serves nobody.
	err := service.New(o.Client, o.Live).RestoreOrphans(ctx, func(service types.NamespacedName) bool { return steered[service] })
	if err != nil {
		return fmt.Errorf("restore Services of groups that are no more: %w", err)
	}
	marked, err := o.marked(ctx)
	if err != nil {
		return err
	}
	if marked {
		if err := pods.ReleaseOrphans(ctx, o.Client, func(profile types.NamespacedName) bool { return steering[profile] }); err != nil {
			return fmt.Errorf("give back pods of groups that are no more: %w", err)
		}
	}
	if err := pods.RemoveLabels(ctx, o.Client, o.Live, inGroup); err != nil {
		return fmt.Errorf("remove labels of VMs of groups that are no more: %w", err)
	}
	return nil
}

// marked reports whether there is a pod that a manager marked: without one, the
// launcher pods of the cluster need not be read.
func (o *Orphans) marked(ctx context.Context) (bool, error) {
	var found metav1.PartialObjectMetadataList
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	selector := client.MatchingLabels{v1alpha1.LabelServing: v1alpha1.ServingStandby}
	if err := o.Live.List(ctx, &found, selector, client.Limit(1)); err != nil {
		return false, fmt.Errorf("look for pods that groups marked: %w", err)
	}
	return len(found.Items) > 0, nil
}
