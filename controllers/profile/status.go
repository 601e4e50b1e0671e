package profile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/controllers/watch"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// The API's bounds.
const (
	maxExamples    = 50
	maxLeverCounts = 64
)

// profileView is what a profile's status is made of.
type profileView struct {
	// profiles of the namespace.
	profiles observe.Profiles
	// vmis of the namespace.
	vmis []virtv1.VirtualMachineInstance
	// plans by node.
	plans map[string]*objects.IndexedPlan
	// disturbances of the VMs.
	disturbances observe.Disturbances
	floods       Floods
	now          time.Time
}

// profileStatus returns the status of one profile. Conditions that say the same
// as before keep their times.
func profileStatus(profile *v1alpha1.VMNetworkProfile, view profileView) v1alpha1.VMNetworkProfileStatus {
	status := v1alpha1.VMNetworkProfileStatus{
		ObservedGeneration: profile.Generation,
		Conditions:         slices.Clone(profile.Status.Conditions),
		Traffic:            profile.Status.Traffic, // group.Reconciler's
	}
	var lost overlap
	var disturbed disturbedTally
	flooded := floodTally{before: profile.Status.DisturbedVMs, awaited: view.floods.Awaited()}
	var examples []v1alpha1.VMExample
	self := view.find(profile)
	for i := range view.vmis {
		vmi := &view.vmis[i]
		if !observe.IsRunning(vmi) || !self.Selects(vmi) {
			continue
		}
		if winner, _ := view.profiles.Governing(vmi); winner.UID != profile.UID {
			lost.add(winner.Name, vmi.Name)
			continue
		}
		status.GovernedVMs++
		pod, node := objects.LauncherOf(vmi)
		disturbed.add(vmi.Name, node, view.disturbances.Of(string(pod)))
		flooded.add(vmi.Name, node, view.floods.Of(string(pod)))
		of := examplesOf(vmi, &profile.Spec, view.plans)
		if profile.Spec.Group != nil {
			of = append(of, groupExample(vmi, profile))
		}
		if slices.ContainsFunc(of, func(e v1alpha1.VMExample) bool { return e.State == v1alpha1.LeverInForce }) {
			status.VMsInForce++
		}
		examples = append(examples, of...)
	}
	status.Levers = countLevers(examples)
	status.Examples = troubleFirst(examples)
	status.DisturbedVMs = append(disturbed.status(profile.Status.DisturbedVMs), flooded.status()...)
	conditions := []metav1.Condition{
		profileReady(profile, self.Err, &status, lost), overlapping(lost), disturbed.condition(), flooded.condition(&profile.Spec.Buffering),
	}
	statuses.SetConditions(&status.Conditions, conditions, profile.Generation, view.now)
	return status
}

func (v profileView) find(profile *v1alpha1.VMNetworkProfile) observe.Profile {
	at := slices.IndexFunc(v.profiles, func(p observe.Profile) bool { return p.UID == profile.UID })
	if at >= 0 {
		return v.profiles[at]
	}
	alone := observe.NewProfiles([]v1alpha1.VMNetworkProfile{*profile})
	if len(alone) == 0 {
		return observe.Profile{}
	}
	return alone[0]
}

// overlap counts the VMs that older profiles have.
type overlap struct {
	vms             int
	winner, example string
}

func (o *overlap) add(winner, vm string) {
	o.vms++
	if o.example == "" || vm < o.example {
		o.winner, o.example = winner, vm
	}
}

// leversOf returns the levers that are reported: those that may act on any VM,
// and those that the profile asks for. What nobody asked for is no news: levers Slice and
// Buffering are reported where a policy has them, see saysOf.
func leversOf(spec *v1alpha1.VMNetworkProfileSpec) []v1alpha1.Lever {
	levers := []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverBuffering}
	if spec.TrafficClass == v1alpha1.TrafficDeferrable || spec.Bandwidth != nil && spec.Bandwidth.Ceiling != nil {
		levers = append(levers, v1alpha1.LeverShaping)
	}
	return levers
}

// examplesOf tells about one VM, a lever each.
func examplesOf(vmi *virtv1.VirtualMachineInstance, spec *v1alpha1.VMNetworkProfileSpec, plans map[string]*objects.IndexedPlan) []v1alpha1.VMExample {
	pod, node := objects.LauncherOf(vmi)
	var examples []v1alpha1.VMExample
	for _, lever := range leversOf(spec) {
		state := objects.LeverStateOf(lever)(plans[node], pod)
		asked := lever == v1alpha1.LeverBuffering && spec.LatencyBudget != nil && spec.LatencyBudget.Duration > 0
		quiet := lever == v1alpha1.LeverSlice || lever == v1alpha1.LeverBuffering && !asked
		if quiet && !saysOf(lever, plans[node], pod) {
			continue
		}
		examples = append(examples, v1alpha1.VMExample{
			Name:        vmi.Name,
			Node:        node,
			LeverReason: v1alpha1.LeverReason{Lever: lever, Reason: state.Reason, Message: state.Message},
			State:       state.State,
		})
	}
	return examples
}

// saysOf reports whether the plan of a VM's node says of a lever more than that it is not
// allowed.
func saysOf(lever v1alpha1.Lever, plan *objects.IndexedPlan, podUID types.UID) bool {
	if plan == nil {
		return false
	}
	vm := plan.PlannedFor(podUID)
	return vm != nil && slices.ContainsFunc(vm.Reasons, func(why v1alpha1.LeverReason) bool {
		return why.Lever == lever && why.Reason != v1alpha1.ReasonLeverNotAllowed
	})
}

// countLevers counts states of levers by reason. Reasons are agents' words: one that is
// broken or hostile may have more than the API takes, and must not cost the status.
func countLevers(examples []v1alpha1.VMExample) []v1alpha1.LeverCount {
	counts := map[v1alpha1.LeverCount]int32{}
	for _, e := range examples {
		counts[v1alpha1.LeverCount{Lever: e.Lever, State: e.State, Reason: e.Reason}]++
	}
	var out []v1alpha1.LeverCount
	for count, n := range counts {
		count.Count = n
		out = append(out, count)
	}
	byWords := func(x, y v1alpha1.LeverCount) int {
		return cmp.Or(cmp.Compare(x.Lever, y.Lever), cmp.Compare(x.State, y.State), cmp.Compare(x.Reason, y.Reason))
	}
	slices.SortFunc(out, func(x, y v1alpha1.LeverCount) int { return cmp.Or(cmp.Compare(y.Count, x.Count), byWords(x, y)) })
	out = out[:min(len(out), maxLeverCounts)]
	slices.SortFunc(out, byWords)
	return out
}

// troubleFirst keeps the examples that the owner should look at.
func troubleFirst(examples []v1alpha1.VMExample) []v1alpha1.VMExample {
	order := []v1alpha1.LeverState{
		v1alpha1.LeverFailed, v1alpha1.LeverBlocked, v1alpha1.LeverPending,
		v1alpha1.LeverRecommended, v1alpha1.LeverIdle, v1alpha1.LeverInForce,
	}
	slices.SortFunc(examples, func(x, y v1alpha1.VMExample) int {
		return cmp.Or(cmp.Compare(slices.Index(order, x.State), slices.Index(order, y.State)),
			cmp.Compare(x.Name, y.Name), cmp.Compare(x.Lever, y.Lever))
	})
	return examples[:min(len(examples), maxExamples)]
}

func profileReady(profile *v1alpha1.VMNetworkProfile, invalid error, status *v1alpha1.VMNetworkProfileStatus, lost overlap) metav1.Condition {
	matched := int(status.GovernedVMs) + lost.vms
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case invalid != nil:
		ready.Reason = v1alpha1.ReasonInvalidSelector
		ready.Message = fmt.Sprintf("spec.selector cannot be evaluated: %v: correct it", invalid)
	case matched == 0:
		ready.Reason = v1alpha1.ReasonNoVMsMatched
		ready.Message = fmt.Sprintf("no running VM of namespace %s has the labels of spec.selector (%s): compare them with "+
			"spec.template.metadata.labels of the VirtualMachine, where VMs get their labels from",
			profile.Namespace, metav1.FormatLabelSelector(&profile.Spec.Selector))
	case status.GovernedVMs == 0:
		ready.Reason = v1alpha1.ReasonOlderProfileWins
		ready.Message = fmt.Sprintf("all %d VMs belong to older profiles, such as VM %s to VMNetworkProfile %s: narrow spec.selector of one of the two",
			matched, lost.example, lost.winner)
	default:
		ready.Status = metav1.ConditionTrue
		ready.Reason = v1alpha1.ReasonGoverning
		ready.Message = fmt.Sprintf("governs %d of %d matched VMs", status.GovernedVMs, matched)
	}
	return ready
}

func overlapping(lost overlap) metav1.Condition {
	if lost.vms == 0 {
		return metav1.Condition{
			Type: v1alpha1.ConditionOverlapping, Status: metav1.ConditionFalse,
			Reason: v1alpha1.ReasonNotContested, Message: "no older profile has any of the VMs",
		}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionOverlapping, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOlderProfileWins,
		Message: fmt.Sprintf("%d VMs, such as %s, belong to an older profile, such as VMNetworkProfile %s: narrow spec.selector of one of the two",
			lost.vms, lost.example, lost.winner),
	}
}

// groupExample tells about one VM of a profile with a group.
func groupExample(vmi *virtv1.VirtualMachineInstance, profile *v1alpha1.VMNetworkProfile) v1alpha1.VMExample {
	_, node := objects.LauncherOf(vmi)
	example := v1alpha1.VMExample{
		Name:        vmi.Name,
		Node:        node,
		LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverTrafficShare, Reason: v1alpha1.ReasonAwaitingPlan, Message: "the group was not looked at yet"},
		State:       v1alpha1.LeverPending,
	}
	if traffic := profile.Status.Traffic; traffic != nil && traffic.ObservedGeneration == profile.Generation {
		example.State, example.Reason, example.Message = traffic.State, traffic.Reason, "see status.traffic"
	}
	return example
}

// trafficChanged passes profiles of which other words are said of the group.
func trafficChanged() predicate.Predicate {
	changed := watch.Updated(func(was, is *v1alpha1.VMNetworkProfile) bool {
		before, now := was.Status.Traffic, is.Status.Traffic
		if before == nil || now == nil {
			return before != now
		}
		return before.State != now.State || before.Reason != now.Reason || before.ObservedGeneration != now.ObservedGeneration
	})
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: changed.Update,
	}
}

func itself(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}
