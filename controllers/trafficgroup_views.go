package controllers

import (
	"context"
	"math"

	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
)

// groupsView is what policies tell of groups.
type groupsView struct {
	// states of the members, by namespace and name.
	states map[types.NamespacedName]leverState
	// inForce are the groups, as "namespace/name", of which traffic is steered as planned.
	inForce []string
	// savings by node: those of groups with members there.
	savings map[string]power.Estimate
}

// viewGroups sums up the looks at the groups that there are. It returns true
// while some of them were not looked at yet, as after a change of leader.
func viewGroups(profiles []v1alpha1.VMNetworkProfile, sights map[types.NamespacedName]*groupSight) (view groupsView, awaited bool) {
	view = groupsView{states: map[types.NamespacedName]leverState{}, savings: map[string]power.Estimate{}}
	for i := range profiles {
		profile := &profiles[i]
		if profile.Spec.Group == nil || !profile.DeletionTimestamp.IsZero() {
			continue
		}
		sight := sights[client.ObjectKeyFromObject(profile)]
		if sight != nil && sight.state.State == v1alpha1.LeverInForce || sight == nil && wasInForce(profile) {
			view.inForce = append(view.inForce, client.ObjectKeyFromObject(profile).String())
		}
		if sight == nil {
			awaited = true
			continue
		}
		for name := range sight.vms {
			view.states[types.NamespacedName{Namespace: profile.Namespace, Name: name}] = sight.state
		}
		for node, saving := range sight.saving {
			sum := view.savings[node]
			sum.Watts += saving.Watts
			sum.StdErr += saving.StdErr
			view.savings[node] = sum
		}
	}
	return view, awaited
}

// wasInForce tells what was said of a group that was not looked at yet.
func wasInForce(profile *v1alpha1.VMNetworkProfile) bool {
	said := profile.Status.Traffic
	return said != nil && said.State == v1alpha1.LeverInForce && said.ObservedGeneration == profile.Generation
}

// groupRevisions are those of all groups' plans, by what their profiles say.
func groupRevisions(profiles []v1alpha1.VMNetworkProfile) map[string]bool {
	revisions := map[string]bool{}
	for i := range profiles {
		if traffic := profiles[i].Status.Traffic; traffic != nil && traffic.Revision != "" {
			revisions[traffic.Revision] = true
		}
	}
	return revisions
}

// groupsTally is what was counted of groups over a policy's nodes.
type groupsTally struct {
	saving power.Estimate
	known  bool
}

// addGroups adds one node. The plan names the VMs that a profile governs.
func (t *policyTally) addGroups(view groupsView, node string, plan *indexedPlan, rates *model.NodeRates) {
	if saving, known := view.savings[node]; known {
		t.groups.known = true
		t.groups.saving.Watts += saving.Watts
		t.groups.saving.StdErr += saving.StdErr
	}
	lever := t.levers[v1alpha1.LeverTrafficShare]
	if lever == nil {
		return
	}
	if plan != nil {
		for i := range plan.Spec.VMs {
			vm := &plan.Spec.VMs[i]
			state, member := view.states[types.NamespacedName{Namespace: vm.Namespace, Name: vm.Name}]
			switch {
			case !member:
				lever.count(v1alpha1.ReasonNoGroup, 1)
			case state.State == v1alpha1.LeverInForce:
				lever.reached++
			default:
				lever.count(state.Reason, 1)
			}
		}
	}
	if rates == nil {
		return
	}
	for i := range rates.VMs {
		vm := &rates.VMs[i]
		if state := view.states[types.NamespacedName{Namespace: vm.Namespace, Name: vm.Name}]; state.State == v1alpha1.LeverInForce {
			lever.traffic += vm.Traffic().BitsPerSecond
		}
	}
}

// write gives the status what is known of groups.
func (t *groupsTally) write(status *v1alpha1.EnergyPolicyStatus, policy *v1alpha1.EnergyPolicy) {
	if t.known {
		status.Potential = append(status.Potential, *savingOf(t.saving, errorsWithin(policy.Spec.Verification.ConfidencePercent)))
	}
}

// errorsWithin is how many standard errors an interval of a confidence reaches to
// each side. 0: the API's default.
func errorsWithin(percent int32) float64 {
	if percent == 0 {
		return normal95
	}
	return math.Sqrt2 * math.Erfinv(float64(percent)/100)
}

// keepGroups repeats what the status said of groups: or a new leader would take
// it back for a moment.
func keepGroups(status, was *v1alpha1.EnergyPolicyStatus) {
	status.Potential = was.Potential
	for i := range status.Coverage {
		for _, said := range was.Coverage {
			if said.Lever == v1alpha1.LeverTrafficShare && status.Coverage[i].Lever == said.Lever {
				status.Coverage[i] = said
			}
		}
	}
}

// groupExample tells about one VM of a profile with a group.
func groupExample(vmi *virtv1.VirtualMachineInstance, profile *v1alpha1.VMNetworkProfile) v1alpha1.VMExample {
	_, node := launcherOf(vmi)
	example := v1alpha1.VMExample{
		Name: vmi.Name, Node: node, Lever: v1alpha1.LeverTrafficShare,
		State: v1alpha1.LeverPending, Reason: v1alpha1.ReasonAwaitingPlan, Message: "the group was not looked at yet",
	}
	if traffic := profile.Status.Traffic; traffic != nil && traffic.ObservedGeneration == profile.Generation {
		example.State, example.Reason, example.Message = traffic.State, traffic.Reason, "see status.traffic"
	}
	return example
}

// trafficChanged passes profiles of which other words are said of the group.
func trafficChanged() predicate.Predicate {
	changed := updated(func(was, is *v1alpha1.VMNetworkProfile) bool {
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
