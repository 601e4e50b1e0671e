package group

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// maxShares, maxGoals, maxLimits and maxTrafficMessage are the API's bounds.
	maxShares         = 50
	maxGoals          = 1024
	maxLimits         = 1024
	maxTrafficMessage = 1024

	mille = 1000
)

// status returns what became of the group.
func (r *groupRound) status() *v1alpha1.TrafficStatus {
	verdict := r.verdict()
	status := &v1alpha1.TrafficStatus{
		ObservedGeneration: r.seen.Profile.Generation,
		State:              verdict.State, Reason: verdict.Reason, Message: statuses.Cut(verdict.Message, maxTrafficMessage),
		Members:  int32(len(r.seen.Plan.Members)),
		Revision: r.plan.Revision,
	}
	if !r.plan.RecommendedAt.IsZero() {
		status.RecommendedAt = &metav1.Time{Time: r.plan.RecommendedAt.Truncate(time.Second)}
	}
	if of := r.plan.Goals.Of; len(of) > 0 && len(of) <= maxGoals {
		status.Goals = make(map[string]int32, len(of))
		for name, parts := range of {
			status.Goals[name] = int32(parts)
		}
	}
	status.Withdrawn = observe.GroupWithdrawnStatus(r.withdrawn)
	if r.saving != nil {
		saving := statuses.SavingOf(v1alpha1.LeverTrafficShare, *r.saving)
		status.Saving = &saving
	}
	for i := range r.seen.Plan.Members {
		m := &r.seen.Plan.Members[i]
		if m.Ready {
			status.ReadyMembers++
			if r.reportedActive(m.Name) {
				status.ActiveMembers++
			}
		}
	}
	status.Shares, status.LimitsBitsPerSecond = r.shares(verdict), r.limits()
	return status
}

// verdict is the state of the lever for the group, and why.
func (r *groupRound) verdict() objects.LeverState {
	plan := &r.plan
	reason, message := plan.Reason, plan.Message
	steering := plan.Action == planner.GroupSteer
	switch {
	case r.refusal != nil:
		return objects.LeverState{State: v1alpha1.LeverBlocked, Reason: r.refusal.Reason, Message: r.refusal.Message}
	case r.contested:
		return objects.LeverState{State: v1alpha1.LeverBlocked, Reason: v1alpha1.ReasonContested, Message: r.contestedMessage}
	case plan.Action == planner.GroupRelease && plan.Reason != v1alpha1.ReasonNoMembers:
		return objects.LeverState{State: v1alpha1.LeverBlocked, Reason: reason, Message: message}
	case plan.Action == planner.GroupLeave:
		return objects.LeverState{State: v1alpha1.LeverBlocked, Reason: reason, Message: message}
	case plan.Withheld && plan.Reason == v1alpha1.ReasonGuardWithdrawn:
		return objects.LeverState{State: v1alpha1.LeverBlocked, Reason: reason, Message: message}
	case plan.Withheld && plan.Reason == v1alpha1.ReasonRejectedByTrial:
		return objects.LeverState{State: v1alpha1.LeverIdle, Reason: reason, Message: message}
	case plan.Withheld:
		return objects.LeverState{State: v1alpha1.LeverPending, Reason: reason, Message: message}
	case steering && r.moving() && !plan.Washing:
		return objects.LeverState{State: v1alpha1.LeverPending, Reason: v1alpha1.ReasonSteering, Message: r.state.Message}
	case steering && !r.arrived():
		return objects.LeverState{State: v1alpha1.LeverPending, Reason: v1alpha1.ReasonSteering, Message: "traffic moves by a quarter in each round: it is on its way to the planned shares"}
	case steering:
		return objects.LeverState{State: v1alpha1.LeverInForce, Reason: reason, Message: message}
	case plan.Goals.Whole > 0 && plan.Recommend:
		return objects.LeverState{State: v1alpha1.LeverRecommended, Reason: reason, Message: message}
	case waited(plan):
		return objects.LeverState{State: v1alpha1.LeverPending, Reason: reason, Message: message}
	}
	return objects.LeverState{State: v1alpha1.LeverIdle, Reason: reason, Message: message}
}

// arrived reports whether the shares that are written are the planned ones.
func (r *groupRound) arrived() bool {
	const same = 1e-6
	for name := range r.plan.Goals.Of {
		if math.Abs(r.plan.Shares[name]-r.plan.Goals.Share(name)) > same && r.ready(name) {
			return r.standsIn()
		}
	}
	return true
}

func (r *groupRound) ready(name string) bool {
	at, found := slices.BinarySearchFunc(r.seen.Plan.Members, name, func(m planner.GroupMember, name string) int { return cmp.Compare(m.Name, name) })
	return found && r.seen.Plan.Members[at].Ready
}

// standsIn reports whether members that the plan names are not ready, so that others
// have their shares.
func (r *groupRound) standsIn() bool {
	for name := range r.plan.Goals.Of {
		if !r.ready(name) {
			return true
		}
	}
	return false
}

// reportedActive reports whether a member gets new traffic, when the lever is on: the status would
// be written at each switch of a schedule otherwise.
func (r *groupRound) reportedActive(name string) bool {
	if r.plan.Schedule != nil && r.plan.Action == planner.GroupSteer {
		return r.plan.Shares[name] > 0
	}
	return r.inForce(name) > 0
}

// inForce is a member's share of new traffic.
func (r *groupRound) inForce(name string) float64 { return r.state.Shares[name] }

// planned is the share that a member is to have: by the plan, or as it is.
func (r *groupRound) planned(name string) float64 {
	switch {
	case r.plan.Goals.Whole > 0 && !r.plan.Withheld:
		return r.plan.Goals.Share(name)
	case r.plan.Action == planner.GroupBalance && r.refusal == nil:
		if r.ready(name) {
			return 1 / float64(r.readyMembers())
		}
		return 0
	}
	return r.inForce(name)
}

func (r *groupRound) readyMembers() int {
	count := 0
	for i := range r.seen.Plan.Members {
		if r.seen.Plan.Members[i].Ready {
			count++
		}
	}
	return count
}

// shares are those of the members with the largest.
func (r *groupRound) shares(verdict objects.LeverState) []v1alpha1.MemberShare {
	total := units.BitsPerSecond(0)
	for i := range r.seen.Plan.Members {
		total += r.seen.Plan.Members[i].Rate
	}
	out := make([]v1alpha1.MemberShare, 0, len(r.seen.Plan.Members))
	for i := range r.seen.Plan.Members {
		m := &r.seen.Plan.Members[i]
		share := v1alpha1.MemberShare{
			Name: m.Name, Node: r.seen.Plan.Nodes[m.Node].Name,
			PerMille: int32(math.Round(mille * r.planned(m.Name))), Reason: r.plan.Reasons[m.Name],
		}
		switch {
		case !m.Ready:
			share.Reason = v1alpha1.ReasonMemberNotReady
		case r.refusal != nil || r.contested || share.Reason == "":
			share.Reason = verdict.Reason
		}
		if r.plan.Now != nil && total > 0 {
			measured := int32(math.Round(mille * float64(m.Rate/total)))
			share.MeasuredPerMille = &measured
		}
		out = append(out, share)
	}
	slices.SortStableFunc(out, func(x, y v1alpha1.MemberShare) int { return cmp.Compare(y.PerMille, x.PerMille) })
	return out[:min(len(out), maxShares)]
}

// limits are the members' by node and VM.
func (r *groupRound) limits() map[string]map[string]int64 {
	if len(r.seen.Plan.Members) > maxLimits {
		return nil
	}
	var out map[string]map[string]int64
	for i := range r.seen.Plan.Members {
		m := &r.seen.Plan.Members[i]
		if !(m.Limit > 0) {
			continue
		}
		if out == nil {
			out = map[string]map[string]int64{}
		}
		node := r.seen.Plan.Nodes[m.Node].Name
		if out[node] == nil {
			out[node] = map[string]int64{}
		}
		out[node][m.Name] = statuses.TwoDigits(float64(m.Limit))
	}
	return out
}

// lingering is the part of the bytes that VMs carry beyond their shares, 1 for all. Nil: it is
// not known, or nothing is steered.
func (r *groupRound) lingering() *float64 {
	if r.plan.Now == nil || r.plan.Action != planner.GroupSteer || r.plan.Off || r.refusal != nil || r.contested {
		return nil
	}
	var total, beyond float64
	for i := range r.seen.Plan.Members {
		total += float64(r.seen.Plan.Members[i].Rate)
	}
	if !(total > 0) {
		return nil
	}
	for i := range r.seen.Plan.Members {
		m := &r.seen.Plan.Members[i]
		beyond += max(0, float64(m.Rate)/total-r.plan.Shares[m.Name])
	}
	return &beyond
}

// sameWords reports whether two statuses differ in figures alone.
func sameWords(was, is *v1alpha1.TrafficStatus) bool {
	if was == nil {
		return false
	}
	return equality.Semantic.DeepEqual(wordsOfTraffic(was), wordsOfTraffic(is))
}

// What a status says in figures is written anew when a member's part of the traffic changes by
// fewPerMille, and anything else by fewPercent: those of a steady group vary by less.
const (
	fewPerMille = 50
	fewPercent  = 0.1
)

// sameFigures reports whether the figures of two statuses of the same words differ by so little
// that they say the same.
func sameFigures(was, is *v1alpha1.TrafficStatus) bool {
	near := func(x, y float64) bool { return math.Abs(x-y) <= fewPercent*max(math.Abs(x), math.Abs(y)) }
	if (was.Saving == nil) != (is.Saving == nil) {
		return false
	}
	if was.Saving != nil {
		old, now := statuses.RangeOf(was.Saving.Watts), statuses.RangeOf(is.Saving.Watts)
		within := now.Value >= old.Low && now.Value <= old.High
		if !(within || near(old.Value, now.Value)) || !near(old.High-old.Low, now.High-now.Low) {
			return false
		}
	}
	nearLimits := func(x, y map[string]int64) bool {
		return maps.EqualFunc(x, y, func(x, y int64) bool { return near(float64(x), float64(y)) })
	}
	return maps.EqualFunc(was.LimitsBitsPerSecond, is.LimitsBitsPerSecond, nearLimits) &&
		slices.EqualFunc(was.Shares, is.Shares, func(x, y v1alpha1.MemberShare) bool {
			return (x.MeasuredPerMille == nil) == (y.MeasuredPerMille == nil) &&
				math.Abs(float64(ptr.Deref(x.MeasuredPerMille, 0)-ptr.Deref(y.MeasuredPerMille, 0))) < fewPerMille
		})
}

// wordsOfTraffic is a status without figures.
func wordsOfTraffic(status *v1alpha1.TrafficStatus) *v1alpha1.TrafficStatus {
	words := status.DeepCopy()
	words.Saving, words.LimitsBitsPerSecond = nil, nil
	for i := range words.Shares {
		words.Shares[i].MeasuredPerMille = nil
	}
	return words
}

// writeStatus applies status.traffic, which the manager owns under a name of its
// own: the rest of the status is profile.Reconciler's.
func (r *Reconciler) writeStatus(ctx context.Context, profile *v1alpha1.VMNetworkProfile, status *v1alpha1.TrafficStatus) error {
	fields := map[string]any{}
	if status != nil {
		traffic, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
		if err != nil {
			return fmt.Errorf("encode status.traffic of VMNetworkProfile %s/%s: %w", profile.Namespace, profile.Name, err)
		}
		fields["traffic"] = traffic
	}
	desired := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	desired.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("VMNetworkProfile"))
	desired.SetNamespace(profile.Namespace)
	desired.SetName(profile.Name)
	desired.SetUID(profile.UID) // or a profile that is gone would be asked for anew
	err := r.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), client.FieldOwner(routing.FieldOwner), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status.traffic of VMNetworkProfile %s/%s: %w", profile.Namespace, profile.Name, err)
	}
	return nil
}

// clearStatus removes what is said of a group that is no more.
func (r *Reconciler) clearStatus(ctx context.Context, profile *v1alpha1.VMNetworkProfile) error {
	if profile.Status.Traffic == nil {
		return nil
	}
	return r.writeStatus(ctx, profile, nil)
}
