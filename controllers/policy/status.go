package policy

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/group"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/controllers/trials"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/findings"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

// maxCoverageReasons is the API's bound. Reasons are agents' words: one that is broken
// or hostile may have more, and must not cost the status.
const maxCoverageReasons = 32

// policyView is what a policy's status is made of.
type policyView struct {
	policies observe.Policies
	// nodes that run VMs, in the order of their names.
	nodes   []*corev1.Node
	reports map[string]*v1alpha1.NodeReport
	plans   map[string]*objects.IndexedPlan
	powers  *observe.Powers
	// potentials tell what levers would save. Nil: nothing does.
	potentials trials.Potentials
	// groups are the last looks at the groups, groupsAwaited is true while some were
	// not looked at yet.
	groups        group.Summary
	groupsAwaited bool
	// workloads are HybridWorkloads with gateways that serve, as units of trials.
	workloads []string
	// groupRevisions are those that groups recommend, or follow.
	groupRevisions map[string]bool
	// moves are the plans of lever Placement.
	moves []v1alpha1.PlacementPlan
	// savings may be nil: then none are reported.
	savings *SavingsSources
	vms     vmsOfNodes
	now     time.Time
}

// policyTally is what was counted over a policy's nodes.
type policyTally struct {
	nodes  v1alpha1.NodeCounts
	energy energyTally
	// levers of the policy.
	levers map[v1alpha1.Lever]*leverTally
	groups groupsTally
	bytes  bytesTally
	// potential of levers of nodes.
	potential potentialTally
	// metered are the watts of governed nodes that a meter reported, acting the policy's levers
	// that act.
	metered map[string]units.Watts
	acting  actingLevers
	// contested counts the nodes that another policy wins.
	contested       int
	winner, example string
	found           []findings.Found
}

// leverTally is what was counted of one lever.
type leverTally struct {
	reached int32
	// traffic of the VMs that are reached.
	traffic units.BitsPerSecond
	// reasons of the VMs that are not reached.
	reasons map[string]int32
}

// policyStatus returns the status of one policy. Conditions that say the same
// as before keep their times.
func policyStatus(policy *v1alpha1.EnergyPolicy, view policyView) v1alpha1.EnergyPolicyStatus {
	status := v1alpha1.EnergyPolicyStatus{
		ObservedGeneration: policy.Generation,
		Conditions:         slices.Clone(policy.Status.Conditions),
	}
	entry := view.find(policy)
	tally := view.tally(entry)
	status.Nodes = tally.nodes
	status.Coverage = coverage(policy, tally)
	status.Findings = rankFindings(tally.found)
	tally.groups.write(&status)
	if view.groupsAwaited && policy.Status.ObservedGeneration == policy.Generation {
		keepGroups(&status, &policy.Status)
	}
	tally.potential.write(&status, policy)
	times := observe.Changes(policy, view.now)
	conditions := []metav1.Condition{
		policyReady(policy, entry.Err, times.Err, tally), paused(policy), changesAllowed(policy, times), contested(tally),
	}
	if tally.energy.awaited && policy.Status.ObservedGeneration == policy.Generation {
		// Or a new leader would tell that nothing is metered, only to take it back.
		keepEnergy(&status, &policy.Status)
	} else {
		tally.energy.write(&status)
		conditions = append(conditions, meterAvailable(tally))
	}
	statuses.SetConditions(&status.Conditions, conditions, policy.Generation, view.now)
	setApprovals(&status, policy, view)
	view.savings.write(&status, policy, tally, view.now)
	return status
}

func (v policyView) find(policy *v1alpha1.EnergyPolicy) observe.PolicyEntry {
	at := slices.IndexFunc(v.policies, func(p observe.PolicyEntry) bool { return p.UID == policy.UID })
	if at < 0 {
		return observe.PolicyEntry{EnergyPolicy: policy, Err: errors.New("the policy is being deleted")}
	}
	return v.policies[at]
}

func (v policyView) tally(entry observe.PolicyEntry) policyTally {
	settings := observe.EnergySettings(entry.EnergyPolicy)
	out := policyTally{levers: map[v1alpha1.Lever]*leverTally{}, energy: newEnergyTally(settings), metered: map[string]units.Watts{}, acting: actingLevers{}}
	for _, lever := range entry.Spec.Levers {
		if lever == v1alpha1.LeverPlacement || lever == v1alpha1.LeverOffload {
			continue // the PlacementPlan and HybridWorkloads count their VMs
		}
		out.levers[lever] = &leverTally{reasons: map[string]int32{}}
	}
	if entry.Err != nil {
		return out
	}
	for _, node := range v.nodes {
		if !entry.SelectsNode(node) {
			continue
		}
		out.nodes.Selected++
		if winner, _ := v.policies.Governing(node); winner.UID != entry.UID {
			out.contested++
			if out.example == "" {
				out.winner, out.example = winner.Name, node.Name
			}
			continue
		}
		out.nodes.Governed++
		report := v.reports[node.Name]
		if observe.ReportFresh(report, v.now) {
			out.nodes.Reporting++
		}
		choice := v.powers.Of(node.Name, settings, report)
		if choice.Metered {
			out.nodes.Metered++
			out.addMetered(node.Name, choice, report)
		}
		heard := energyOfNode{
			name: node.Name, choice: choice, report: report, rates: v.powers.Rates.Fresh(node.Name),
			awaited: report != nil && report.Status.RatesAddress != "" && v.powers.Rates.Awaited(node.Name),
		}
		out.energy.add(heard)
		out.addFindings(&heard, v.vms.of(&heard, v.now))
		out.addPlan(v.plans[node.Name], &heard)
		if v.potentials != nil {
			out.potential.add(v.potentials.Of(node.Name), heard.isPlannable())
		}
		out.addGroups(v.groups, node.Name, v.plans[node.Name], heard.rates)
	}
	if out.levers[v1alpha1.LeverTrafficShare] != nil {
		for _, group := range v.groups.InForce {
			out.acting.note(group, v1alpha1.LeverTrafficShare)
		}
	}
	for _, workload := range v.workloads {
		out.acting.note(workload, v1alpha1.LeverOffload)
	}
	return out
}

// addMetered notes what a node draws by its meter, as far as that is known.
func (t *policyTally) addMetered(node string, choice energy.Choice, report *v1alpha1.NodeReport) {
	switch {
	case choice.Power != nil:
		t.metered[node] = choice.Power.Watts
	case report != nil && report.Status.Power.Watts != nil: // the agent's rates are not at hand
		t.metered[node] = units.Watts(*report.Status.Power.Watts)
	}
}

func (t *policyTally) addPlan(plan *objects.IndexedPlan, node *energyOfNode) {
	var planned, others int32
	if plan != nil {
		planned = int32(len(plan.Spec.VMs))
	}
	if node.report != nil {
		// The agent sees VMs without a profile too.
		others = max(0, node.report.Status.VMs-planned)
	}
	traffic := t.bytes.add(node.rates, node.awaited, planned+others)
	for lever, tally := range t.levers {
		if lever == v1alpha1.LeverTrafficShare {
			tally.count(v1alpha1.ReasonNoProfile, others)
			continue // see addGroups
		}
		if tally.addPlan(plan, objects.LeverStateOf(lever), traffic) {
			t.acting.note(node.name, lever)
		}
		tally.count(v1alpha1.ReasonNoProfile, others)
	}
}

// addPlan counts the VMs of one node's plan, and reports whether the lever acts there.
func (t *leverTally) addPlan(
	plan *objects.IndexedPlan, stateOf func(*objects.IndexedPlan, types.UID) objects.LeverState, traffic map[types.UID]units.BitsPerSecond,
) (acts bool) {
	if plan == nil {
		return false
	}
	for i := range plan.Spec.VMs {
		uid := plan.Spec.VMs[i].PodUID
		state := stateOf(plan, uid)
		if state.State == v1alpha1.LeverInForce {
			t.reached++
			t.traffic += traffic[uid]
			acts = true
			continue
		}
		t.count(state.Reason, 1)
	}
	return acts
}

func (t *leverTally) count(reason string, vms int32) {
	if vms > 0 {
		t.reasons[reason] += vms
	}
}

func coverage(policy *v1alpha1.EnergyPolicy, tally policyTally) []v1alpha1.LeverCoverage {
	var out []v1alpha1.LeverCoverage
	for _, lever := range policy.Spec.Levers {
		if tally.levers[lever] == nil {
			continue
		}
		entry := v1alpha1.LeverCoverage{Lever: lever, ReachedVMs: tally.levers[lever].reached}
		entry.ReachedBytesPercent = tally.bytes.percentOf(lever, tally.levers[lever].traffic, &policy.Status)
		for reason, count := range tally.levers[lever].reasons {
			entry.Reasons = append(entry.Reasons, v1alpha1.ReasonCount{Reason: reason, Count: count})
		}
		slices.SortFunc(entry.Reasons, func(x, y v1alpha1.ReasonCount) int {
			return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Reason, y.Reason))
		})
		entry.Reasons = entry.Reasons[:min(len(entry.Reasons), maxCoverageReasons)]
		out = append(out, entry)
	}
	slices.SortFunc(out, func(x, y v1alpha1.LeverCoverage) int { return cmp.Compare(x.Lever, y.Lever) })
	return out
}

func policyReady(policy *v1alpha1.EnergyPolicy, invalid, times error, tally policyTally) metav1.Condition {
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case invalid != nil:
		ready.Reason = v1alpha1.ReasonInvalidSelector
		ready.Message = fmt.Sprintf("the policy governs no node: %v: correct the field", invalid)
	case tally.nodes.Selected == 0:
		ready.Reason = v1alpha1.ReasonNoNodesSelected
		ready.Message = fmt.Sprintf("no node that runs VMs has the labels of spec.nodeSelector (%s): correct it, or label a node: "+
			"only nodes with the label kubevirt.io/schedulable or a NodeReport count", nodeSelectorText(policy))
	case tally.nodes.Governed == 0:
		ready.Reason = v1alpha1.ReasonOtherPolicyWins
		ready.Message = fmt.Sprintf("other policies win all %d selected nodes, such as EnergyPolicy %s node %s: raise spec.priority of this one, or narrow spec.nodeSelector of the other",
			tally.nodes.Selected, tally.winner, tally.example)
	case times != nil:
		ready.Reason = v1alpha1.ReasonInvalidSchedule
		ready.Message = fmt.Sprintf("%v: correct the field. Until then nothing new is done, and what is in force stays", times)
	default:
		ready.Status = metav1.ConditionTrue
		ready.Reason = v1alpha1.ReasonGoverningNodes
		ready.Message = fmt.Sprintf("governs %d of %d selected nodes", tally.nodes.Governed, tally.nodes.Selected)
	}
	return ready
}

func nodeSelectorText(policy *v1alpha1.EnergyPolicy) string {
	if policy.Spec.NodeSelector == nil {
		return "absent: all nodes"
	}
	return metav1.FormatLabelSelector(policy.Spec.NodeSelector)
}

func contested(tally policyTally) metav1.Condition {
	if tally.contested == 0 {
		return metav1.Condition{
			Type: v1alpha1.ConditionNodesContested, Status: metav1.ConditionFalse,
			Reason: v1alpha1.ReasonNotContested, Message: "no other policy wins any selected node",
		}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionNodesContested, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOtherPolicyWins,
		Message: fmt.Sprintf("%d nodes, such as %s, belong to a policy of higher priority or greater age, such as EnergyPolicy %s: "+
			"change spec.priority, or narrow spec.nodeSelector, of one of the two", tally.contested, tally.example, tally.winner),
	}
}

// bytesTally is the traffic of all VMs of a policy's nodes.
type bytesTally struct {
	traffic units.BitsPerSecond
	// unheard is true when a node with VMs tells no rates, and awaited when it is too early
	// to say so.
	unheard, awaited bool
}

// add adds a node with so many VMs, and returns their traffic. Nil rates: none are reported, or
// they are awaited.
func (t *bytesTally) add(rates *model.NodeRates, awaited bool, vms int32) map[types.UID]units.BitsPerSecond {
	if rates == nil {
		t.unheard = t.unheard || vms > 0 && !awaited
		t.awaited = t.awaited || vms > 0 && awaited
		return nil
	}
	of := make(map[types.UID]units.BitsPerSecond, len(rates.VMs))
	for i := range rates.VMs {
		traffic := rates.VMs[i].Traffic().BitsPerSecond
		t.traffic += traffic
		of[types.UID(rates.VMs[i].PodUID)] = traffic
	}
	return of
}

// percentOf is the share of all traffic that VMs carry which a lever reaches: what was said
// before while it is awaited, or a new leader would take it back for a moment. Nil: not known.
func (t *bytesTally) percentOf(lever v1alpha1.Lever, reached units.BitsPerSecond, was *v1alpha1.EnergyPolicyStatus) *int32 {
	switch {
	case t.unheard:
		return nil
	case t.awaited:
		for i := range was.Coverage {
			if was.Coverage[i].Lever == lever {
				return was.Coverage[i].ReachedBytesPercent
			}
		}
		return nil
	case !(t.traffic > 0):
		return nil
	}
	percent := int32(math.Round(100 * float64(reached/t.traffic)))
	return &percent
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
func (t *policyTally) addGroups(view group.Summary, node string, plan *objects.IndexedPlan, rates *model.NodeRates) {
	if saving, known := view.Savings[node]; known {
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
			state, member := view.States[types.NamespacedName{Namespace: vm.Namespace, Name: vm.Name}]
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
		if state := view.States[types.NamespacedName{Namespace: vm.Namespace, Name: vm.Name}]; state.State == v1alpha1.LeverInForce {
			lever.traffic += vm.Traffic().BitsPerSecond
		}
	}
}

// write gives the status what is known of groups.
func (t *groupsTally) write(status *v1alpha1.EnergyPolicyStatus) {
	if t.known {
		status.Potential = append(status.Potential, statuses.SavingOf(v1alpha1.LeverTrafficShare, t.saving))
	}
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
