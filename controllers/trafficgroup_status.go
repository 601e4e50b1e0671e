package controllers

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// maxShares, maxTrafficMessage and maxConditionMessage are the API's bounds.
	maxShares           = 50
	maxTrafficMessage   = 1024
	maxConditionMessage = 1024

	mille      = 1000
	milliwatts = 1000
	// normal95 is how many standard errors a 95 % interval reaches to each side.
	normal95 = 1.96
)

// status tells what became of the group. Conditions that say the same as before
// keep their times.
func (r *groupRound) status(was *v1alpha1.TrafficStatus, now time.Time) *v1alpha1.TrafficStatus {
	verdict := r.verdict()
	status := &v1alpha1.TrafficStatus{
		ObservedGeneration: r.seen.Profile.Generation,
		State:              verdict.State, Reason: verdict.Reason, Message: cut(verdict.Message, maxTrafficMessage),
		Members:  int32(len(r.seen.Plan.Members)),
		Revision: r.plan.Revision,
		Now:      apiSpread(r.plan.Now), Planned: apiSpread(r.plan.Planned),
		LingeringBytesPercent: r.lingering(),
	}
	if !r.plan.RecommendedAt.IsZero() {
		status.RecommendedAt = &metav1.Time{Time: r.plan.RecommendedAt.Truncate(time.Second)}
	}
	status.Withdrawn = observe.GroupWithdrawnStatus(r.withdrawn)
	if r.saving != nil {
		status.Saving = savingOf(*r.saving, normal95)
	}
	for i := range r.seen.Plan.Members {
		m := &r.seen.Plan.Members[i]
		if m.Ready {
			status.ReadyMembers++
			if r.toldActive(m.Name) {
				status.ActiveMembers++
			}
		}
	}
	status.Shares = r.shares(verdict)
	if was != nil {
		status.Conditions = slices.Clone(was.Conditions)
	}
	setConditions(&status.Conditions, []metav1.Condition{r.steered(verdict), r.weightsContested(was)}, r.seen.Profile.Generation, now)
	return status
}

// verdict is the state of the lever for the group, and why.
func (r *groupRound) verdict() leverState {
	plan := &r.plan
	reason, message := string(plan.Reason), plan.Message
	steering := plan.Action == planner.GroupSteer
	switch {
	case r.refusal != nil:
		return leverState{v1alpha1.LeverBlocked, r.refusal.Reason, r.refusal.Message}
	case r.contested:
		return leverState{v1alpha1.LeverBlocked, v1alpha1.ReasonContested, contestedMessage(r.contestedBy)}
	case plan.Action == planner.GroupRelease && plan.Reason != model.ReasonNoMembers:
		return leverState{v1alpha1.LeverBlocked, reason, message}
	case plan.Action == planner.GroupLeave:
		return leverState{v1alpha1.LeverBlocked, reason, message}
	case plan.Withheld && plan.Reason == model.ReasonGuardWithdrawn:
		return leverState{v1alpha1.LeverBlocked, reason, message}
	case plan.Withheld && plan.Reason == model.ReasonRejectedByTrial:
		return leverState{v1alpha1.LeverIdle, reason, message}
	case plan.Withheld:
		return leverState{v1alpha1.LeverPending, reason, message}
	case steering && r.moving() && !plan.Washing:
		return leverState{v1alpha1.LeverPending, v1alpha1.ReasonSteering, r.state.Message}
	case steering && !r.arrived():
		return leverState{v1alpha1.LeverPending, v1alpha1.ReasonSteering, "traffic moves by a quarter in each round: it is on its way to the planned shares"}
	case steering:
		return leverState{v1alpha1.LeverInForce, reason, message}
	case plan.Goals.Whole > 0 && plan.Mode == model.ModeRecommend:
		return leverState{v1alpha1.LeverRecommended, reason, message}
	case waited(plan):
		return leverState{v1alpha1.LeverPending, reason, message}
	}
	return leverState{v1alpha1.LeverIdle, reason, message}
}

func contestedMessage(by string) string {
	return fmt.Sprintf("%s changed the shares back %d times: they are left alone until the profile's spec changes; let one of the two steer", cmp.Or(by, "somebody else"), mostReversions)
}

// arrived tells whether the shares that are written are the planned ones.
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

// standsIn tells whether members that the plan names are not ready, so that others
// have their shares.
func (r *groupRound) standsIn() bool {
	for name := range r.plan.Goals.Of {
		if !r.ready(name) {
			return true
		}
	}
	return false
}

// toldActive tells whether a member gets new traffic, when the lever is on: the status would
// be written at each switch of a schedule otherwise.
func (r *groupRound) toldActive(name string) bool {
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
func (r *groupRound) shares(verdict leverState) []v1alpha1.MemberShare {
	total := units.BitsPerSecond(0)
	for i := range r.seen.Plan.Members {
		total += r.seen.Plan.Members[i].Rate
	}
	out := make([]v1alpha1.MemberShare, 0, len(r.seen.Plan.Members))
	for i := range r.seen.Plan.Members {
		m := &r.seen.Plan.Members[i]
		share := v1alpha1.MemberShare{
			Name: m.Name, Node: r.seen.Plan.Nodes[m.Node].Name, Ready: m.Ready,
			PerMille: int32(math.Round(mille * r.planned(m.Name))), Reason: string(r.plan.Reasons[m.Name]),
		}
		if r.refusal != nil || r.contested || share.Reason == "" {
			share.Reason = verdict.Reason
		}
		if r.plan.Now != nil && total > 0 {
			measured := int32(math.Round(mille * float64(m.Rate/total)))
			share.MeasuredPerMille = &measured
		}
		if m.Limit > 0 {
			limit := twoDigits(float64(m.Limit))
			share.LimitBitsPerSecond = &limit
		}
		out = append(out, share)
	}
	slices.SortStableFunc(out, func(x, y v1alpha1.MemberShare) int { return cmp.Compare(y.PerMille, x.PerMille) })
	return out[:min(len(out), maxShares)]
}

// lingering is the part of the bytes that VMs carry beyond their shares, in
// percent. Nil: it is not known, or nothing is steered.
func (r *groupRound) lingering() *int32 {
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
	percent := int32(math.Round(100 * beyond))
	return &percent
}

func (r *groupRound) steered(verdict leverState) metav1.Condition {
	steered := metav1.Condition{
		Type: v1alpha1.ConditionSteered, Status: metav1.ConditionFalse, Reason: verdict.Reason,
		Message: cut(verdict.Message, maxConditionMessage),
	}
	if verdict.State == v1alpha1.LeverInForce {
		steered.Status, steered.Reason = metav1.ConditionTrue, v1alpha1.ReasonSteered
		steered.Message = "new traffic follows the planned shares"
		if r.plan.Schedule != nil {
			steered.Message += " while the schedule of its trial or its hold-back has the lever on"
		}
	}
	return steered
}

// weightsContested stays True until the profile changes, whatever else becomes of
// the group. By whom is known in the round that found it.
func (r *groupRound) weightsContested(was *v1alpha1.TrafficStatus) metav1.Condition {
	if was != nil {
		said := meta.FindStatusCondition(was.Conditions, v1alpha1.ConditionWeightsContested)
		if said != nil && said.Status == metav1.ConditionTrue && said.ObservedGeneration == r.seen.Profile.Generation {
			return *said
		}
	}
	if !r.contested {
		return metav1.Condition{
			Type: v1alpha1.ConditionWeightsContested, Status: metav1.ConditionFalse,
			Reason: v1alpha1.ReasonUncontested, Message: "nobody else changes the shares",
		}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionWeightsContested, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonContested, Message: contestedMessage(r.contestedBy),
	}
}

func apiSpread(spread *traffic.Spread) *v1alpha1.TrafficSpread {
	if spread == nil {
		return nil
	}
	const hundredths = 100
	talkers := math.Round(spread.Talkers*hundredths) / hundredths
	return &v1alpha1.TrafficSpread{
		SigmaBitsPerSecond: twoDigits(float64(spread.Sigma)),
		EffectiveTalkers:   *resource.NewMilliQuantity(int64(math.Round(talkers*mille)), resource.DecimalSI),
	}
}

func savingOf(estimate power.Estimate, errors float64) *v1alpha1.Saving {
	watts := func(w units.Watts) int64 {
		rounded := twoDigits(math.Abs(float64(w)) * milliwatts)
		if w < 0 {
			return -rounded
		}
		return rounded
	}
	reach := units.Watts(errors) * estimate.StdErr
	return &v1alpha1.Saving{
		Lever: v1alpha1.LeverTrafficShare, Modelled: true,
		Milliwatts: watts(estimate.Watts), LowMilliwatts: watts(estimate.Watts - reach), HighMilliwatts: watts(estimate.Watts + reach),
	}
}

// twoDigits rounds a figure that is not negative: digits that say nothing would
// change the status each time.
func twoDigits(x float64) int64 {
	if !(x >= 1) || x > math.MaxInt64/2 {
		return 0
	}
	unit := math.Pow(10, math.Max(0, math.Floor(math.Log10(x))-1))
	return int64(math.Round(x/unit) * unit)
}

// sameWords tells whether two statuses differ in figures alone.
func sameWords(was, is *v1alpha1.TrafficStatus) bool {
	if was == nil {
		return false
	}
	return equality.Semantic.DeepEqual(wordsOfTraffic(was), wordsOfTraffic(is))
}

func sameStatus(was, is *v1alpha1.TrafficStatus) bool {
	return equality.Semantic.DeepEqual(was, is)
}

// wordsOfTraffic is a status without figures.
func wordsOfTraffic(status *v1alpha1.TrafficStatus) *v1alpha1.TrafficStatus {
	words := status.DeepCopy()
	words.Now, words.Planned, words.Saving, words.LingeringBytesPercent = nil, nil, nil, nil
	for i := range words.Shares {
		words.Shares[i].MeasuredPerMille, words.Shares[i].LimitBitsPerSecond = nil, nil
	}
	for i := range words.Conditions {
		words.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	return words
}

// writeStatus applies status.traffic, which the manager owns under a name of its
// own: the rest of the status is VMNetworkProfileReconciler's.
func (r *TrafficGroupReconciler) writeStatus(ctx context.Context, profile *v1alpha1.VMNetworkProfile, status *v1alpha1.TrafficStatus) error {
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
func (r *TrafficGroupReconciler) clearStatus(ctx context.Context, profile *v1alpha1.VMNetworkProfile) error {
	if profile.Status.Traffic == nil {
		return nil
	}
	return r.writeStatus(ctx, profile, nil)
}
