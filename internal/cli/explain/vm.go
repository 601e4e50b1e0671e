package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/difference"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/reasons"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/leverstate"
)

// ReadVM reads a VM, its node and the profiles of its namespace, and explains them.
func ReadVM(ctx context.Context, reader facts.Reader, vm types.NamespacedName, now time.Time) (*Explanation, error) {
	vmi := &virtv1.VirtualMachineInstance{}
	if err := reader.Get(ctx, vm.Namespace, vm.Name, vmi); err != nil {
		if access.Is(err, access.NotFound) {
			return nil, fmt.Errorf("%w: VirtualMachineInstances are running VMs; name another namespace with -n, or see kubectl get vmi -A", err)
		}
		return nil, err
	}
	of := &facts.Node{}
	if node := vmi.Status.NodeName; node != "" {
		var err error
		if of, err = facts.ReadNode(ctx, reader, node); err != nil {
			return nil, err
		}
	}
	var profiles v1alpha1.VMNetworkProfileList
	if err := reader.List(ctx, &profiles, client.InNamespace(vm.Namespace)); err != nil {
		of.Gaps = append(of.Gaps, show.Gap{Of: "VMNetworkProfile", Message: err.Error()})
	}
	var hybrids v1alpha1.HybridWorkloadList
	if err := reader.List(ctx, &hybrids, client.InNamespace(vm.Namespace)); err != nil {
		of.Gaps = append(of.Gaps, show.Gap{Of: "HybridWorkload", Message: err.Error()})
	}
	e := VM(vmi, profiles.Items, of, now)
	e.addGateways(hybrids.Items, vmi.Name, of.Policy)
	return e, nil
}

// VM explains what is done for a VM. The profiles are those of its namespace.
func VM(vmi *virtv1.VirtualMachineInstance, profiles []v1alpha1.VMNetworkProfile, node *facts.Node, now time.Time) *Explanation {
	e := newExplanation("VMExplanation", "virtualmachineinstance.kubevirt.io/"+vmi.Name, vmi.Namespace, now)
	e.Gaps = node.Gaps
	e.input("phase", string(vmi.Status.Phase))
	e.input("node", show.Or(vmi.Status.NodeName))
	profile, governed := observe.NewProfiles(profiles).Governing(vmi)
	planned := plannedFor(vmi, node.Plan)
	switch {
	case governed:
		e.addProfile(profile.VMNetworkProfile, vmi.Name)
	case planned != nil && planned.Profile == "":
		e.input("profile", "none selects it: spec.defaults of EnergyPolicy "+node.Plan.Spec.Policy+" count")
	default:
		e.input("profile", "none selects it")
	}
	isMember := governed && profile.Spec.Group != nil
	e.addOptOut("the VM", vmi)
	if node.Node != nil {
		e.addOptOut("the node", node.Node)
	}
	e.addPolicy(node.Policy, func(lever v1alpha1.Lever) bool {
		return slices.Contains(model.LeversOf(vmi.Status.NodeName), lever) || lever == v1alpha1.LeverTrafficShare && isMember
	})
	e.addReport(node.Report)
	switch {
	case vmi.Status.Phase != virtv1.Running:
		e.decideAll(v1alpha1.LeverBlocked, v1alpha1.ReasonNotRunning)
	case node.HasGap("NodePlan"):
		// The gap says why nothing is explained.
	case node.Plan == nil:
		e.decideAll(v1alpha1.LeverBlocked, v1alpha1.ReasonNoPolicy)
	case planned == nil && !governed:
		e.decideAll(v1alpha1.LeverBlocked, v1alpha1.ReasonNoProfile)
	case planned == nil:
		e.decideAll(v1alpha1.LeverPending, v1alpha1.ReasonAwaitingPlan)
	default:
		e.input("pool", string(planned.Pool))
		e.addLevers(node.Plan, planned)
	}
	if vmi.Status.Phase == virtv1.Running {
		var consent v1alpha1.PlacementConsent
		if governed {
			consent = profile.Spec.Placement
		}
		e.addMove(node.Moves, vmi, consent)
	}
	if isMember {
		e.addShare(profile.VMNetworkProfile, vmi.Name)
	}
	if node.Plan != nil {
		e.addPlan(node.Plan, podUIDOf(vmi, node.Plan))
	}
	return e
}

// plannedFor finds the VM in its node's plan.
func plannedFor(vmi *virtv1.VirtualMachineInstance, plan *v1alpha1.NodePlan) *v1alpha1.VMPlan {
	if plan == nil {
		return nil
	}
	for i := range plan.Spec.VMs {
		vm := &plan.Spec.VMs[i]
		if _, ok := vmi.Status.ActivePods[vm.PodUID]; ok && vm.Name == vmi.Name && vm.Namespace == vmi.Namespace {
			return vm
		}
	}
	return nil
}

// podUIDOf returns the VM's pod in the plan, or a UID that no pod has.
func podUIDOf(vmi *virtv1.VirtualMachineInstance, plan *v1alpha1.NodePlan) types.UID {
	if planned := plannedFor(vmi, plan); planned != nil {
		return planned.PodUID
	}
	return "none"
}

func (e *Explanation) addProfile(p *v1alpha1.VMNetworkProfile, vm string) {
	e.input("profile", p.Name)
	e.input("traffic class", string(p.Spec.TrafficClass))
	e.input("affinity", string(p.Spec.Affinity))
	if p.Spec.LatencyBudget != nil {
		e.input("latency budget", p.Spec.LatencyBudget.Duration.String())
	}
	for _, disturbed := range p.Status.DisturbedVMs {
		if disturbed.Name == vm {
			e.input("disturbed", fmt.Sprintf("%s, lacks %s CPU-seconds each second: %s", disturbed.Reason, cmp.Or(disturbed.LostCores, "0"), disturbed.Message))
		}
	}
	e.conditions(p.Status.Conditions, metav1.ConditionTrue, v1alpha1.ConditionDisturbed, v1alpha1.ConditionUnderFlood)
}

// addReport adds the power of the node and the age of its report.
func (e *Explanation) addReport(r *v1alpha1.NodeReport) {
	if r == nil {
		return
	}
	e.input("agent reported", show.Age(r.Status.ReportedAt, e.now)+" ago")
	power := "unknown"
	if p := r.Status.Power; p.Watts != nil {
		power = fmt.Sprintf("%d W by %s, %s ago", *p.Watts, p.Source, show.Age(p.MeasuredAt, e.now))
	}
	e.input("power of the node", power)
}

func (e *Explanation) addLevers(nodePlan *v1alpha1.NodePlan, planned *v1alpha1.VMPlan) {
	plan := &leverstate.Plan{NodePlan: nodePlan}
	for _, lever := range leverstate.Levers() {
		state := leverstate.Of(lever)(plan, planned.PodUID)
		d := Decision{
			Lever: lever, State: state.State, Reason: state.Reason, Message: state.Message,
			Planned: difference.Planned(planned, lever), ReadBack: difference.InForce(plan.AppliedTo(planned.PodUID, lever)),
		}
		// If the agent reports that the lever is applied, the plan has the reason.
		for _, why := range planned.Reasons {
			if why.Lever == lever && why.Reason != d.Reason {
				if d.Message != "" {
					d.Message += "; "
				}
				means := reasons.All().Of(why.Reason).Means
				d.Message += fmt.Sprintf("planned as %s: %s", why.Reason, strings.TrimSpace(means+" "+why.Message))
			}
		}
		e.decide(d)
	}
}

// addShare adds what TrafficShare does for the VM.
func (e *Explanation) addShare(p *v1alpha1.VMNetworkProfile, name string) {
	t := p.Status.Traffic
	if t == nil {
		e.decide(Decision{Lever: v1alpha1.LeverTrafficShare, State: v1alpha1.LeverPending, Reason: v1alpha1.ReasonAwaitingPlan})
		return
	}
	d := Decision{Lever: v1alpha1.LeverTrafficShare, State: t.State, Reason: t.Reason, Message: t.Message}
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
