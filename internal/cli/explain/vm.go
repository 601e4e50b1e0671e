package explain

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/difference"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/leverstate"
)

// VMInput is what was read of a VM. Nil: there is none, or it could not be read, as gaps say.
type VMInput struct {
	VMI *virtv1.VirtualMachineInstance
	// Plan, Policy, Report and Node are those of the node that runs it.
	Plan   *v1alpha1.NodePlan
	Policy *v1alpha1.EnergyPolicy
	Report *v1alpha1.NodeReport
	Node   *metav1.PartialObjectMetadata
	// Energy is what is known of the VM's energy, and that node's.
	Energy Energy
	// Profiles of the VM's namespace.
	Profiles []v1alpha1.VMNetworkProfile
	Gaps     []show.Gap
}

// VM explains what is done for a VM.
func VM(in VMInput, now time.Time) *Explanation {
	e := newExplanation("VMExplanation", "virtualmachineinstance.kubevirt.io/"+in.VMI.Name, in.VMI.Namespace, now)
	e.Gaps = in.Gaps
	e.input("phase", string(in.VMI.Status.Phase))
	e.input("node", show.Or(in.VMI.Status.NodeName))
	profile, governed := observe.NewProfiles(in.Profiles).Governing(in.VMI)
	if governed {
		e.addProfile(profile.VMNetworkProfile)
	} else {
		e.input("profile", "none selects it")
	}
	e.addOptOut("the VM", in.VMI)
	if in.Node != nil {
		e.addOptOut("the node", in.Node)
	}
	kin := kindOfNode(in.VMI.Status.NodeName, in.Report)
	if governed && profile.Spec.Group != nil {
		kin = either(kin, kindOfGroup(profile.Namespace, profile.Name))
	}
	e.addPolicy(in.Policy, kin)
	e.addReport(in.Report)
	if in.VMI.Status.NodeName != "" {
		e.addEnergy(in.Energy, in.VMI.Status.NodeName, in.Report, "virtualmachineinstance.kubevirt.io/"+in.VMI.Name)
	}
	switch planned := plannedFor(in); {
	case in.VMI.Status.Phase != virtv1.Running:
		e.every(v1alpha1.LeverBlocked, v1alpha1.ReasonNotRunning)
	case in.Plan == nil && hasGap(in.Gaps, "NodePlan"):
		// What is not read is not explained: the gap says why.
	case in.Plan == nil:
		e.every(v1alpha1.LeverBlocked, v1alpha1.ReasonNoPolicy)
	case planned == nil && !governed:
		e.every(v1alpha1.LeverBlocked, v1alpha1.ReasonNoProfile)
	case planned == nil:
		e.every(v1alpha1.LeverPending, v1alpha1.ReasonAwaitingPlan)
	default:
		e.input("pool", string(planned.Pool))
		e.addLevers(in.Plan, planned)
		e.Withdrawn = withdrawnOf(in.Plan, planned.PodUID, now)
	}
	if governed && profile.Spec.Group != nil {
		e.addShare(profile.VMNetworkProfile, in.VMI.Name)
	}
	if in.Plan != nil {
		e.addTrials(in.Plan)
	}
	return e
}

func hasGap(gaps []show.Gap, of string) bool {
	for _, gap := range gaps {
		if gap.Of == of {
			return true
		}
	}
	return false
}

// plannedFor finds the VM in its node's plan.
func plannedFor(in VMInput) *v1alpha1.VMPlan {
	if in.Plan == nil {
		return nil
	}
	for i := range in.Plan.Spec.VMs {
		vm := &in.Plan.Spec.VMs[i]
		if _, its := in.VMI.Status.ActivePods[vm.PodUID]; its && vm.Name == in.VMI.Name && vm.Namespace == in.VMI.Namespace {
			return vm
		}
	}
	return nil
}

func (e *Explanation) addProfile(p *v1alpha1.VMNetworkProfile) {
	e.input("profile", p.Name)
	e.input("traffic class", string(p.Spec.TrafficClass))
	e.input("affinity", string(p.Spec.Affinity))
	if p.Spec.LatencyBudget != nil {
		e.input("latency budget", p.Spec.LatencyBudget.Duration.String())
	}
	for _, c := range p.Status.Conditions {
		if c.Status == metav1.ConditionTrue && (c.Type == v1alpha1.ConditionDisturbed || c.Type == v1alpha1.ConditionUnderFlood) {
			e.input("profile is "+c.Type, c.Reason+": "+c.Message)
		}
	}
}

func (e *Explanation) addReport(r *v1alpha1.NodeReport) {
	if r == nil {
		return
	}
	e.input("agent reported", show.Age(r.Status.ReportedAt, e.now)+" ago")
	power := "not known"
	if p := r.Status.Power; p.Watts != nil {
		power = fmt.Sprintf("%d W by %s, %s ago", *p.Watts, p.Source, show.Age(p.MeasuredAt, e.now))
	}
	e.input("node's own power figure", power)
}

// every gives all levers of a node the same state.
func (e *Explanation) every(state v1alpha1.LeverState, reason string) {
	for _, lever := range leverstate.Levers() {
		e.decide(Decision{Lever: lever, State: state, Reason: reason})
	}
}

func (e *Explanation) addLevers(nodePlan *v1alpha1.NodePlan, planned *v1alpha1.VMPlan) {
	plan := &leverstate.Plan{NodePlan: nodePlan}
	for _, lever := range leverstate.Levers() {
		state := leverstate.Of(lever)(plan, planned.PodUID)
		d := Decision{Lever: lever, State: state.State, Reason: state.Reason, Message: more(state.Reason, state.Message), Planned: difference.Planned(planned, lever)}
		d.ReadBack = difference.InForce(plan.AppliedTo(planned.PodUID, lever))
		// What an agent says is that it was applied; why it was planned is said by the plan.
		if why := planReason(planned, lever); why.Reason != "" && why.Reason != d.Reason {
			d.Message = joined(d.Message, fmt.Sprintf("planned as %s: %s", why.Reason, why.Message))
		}
		e.decide(d)
	}
}

func planReason(vm *v1alpha1.VMPlan, lever v1alpha1.Lever) v1alpha1.PlanReason {
	for _, why := range vm.Reasons {
		if why.Lever == lever {
			return why
		}
	}
	return v1alpha1.PlanReason{}
}

func joined(first, second string) string {
	if first == "" {
		return second
	}
	return first + "; " + second
}

// addShare tells what the VM's group does.
func (e *Explanation) addShare(p *v1alpha1.VMNetworkProfile, name string) {
	if p.Status.Traffic == nil {
		e.decide(Decision{Lever: v1alpha1.LeverTrafficShare, State: v1alpha1.LeverPending, Reason: v1alpha1.ReasonAwaitingPlan})
		return
	}
	t := p.Status.Traffic
	d := Decision{Lever: v1alpha1.LeverTrafficShare, State: t.State, Reason: t.Reason, Message: more(t.Reason, t.Message)}
	for i := range t.Shares {
		if t.Shares[i].Name != name {
			continue
		}
		d.Planned = percent(t.Shares[i].PerMille) + " of new traffic (" + t.Shares[i].Reason + ")"
		if carries := t.Shares[i].MeasuredPerMille; carries != nil {
			d.ReadBack = "carries " + percent(*carries)
		}
	}
	e.decide(d)
}
