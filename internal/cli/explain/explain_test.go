package explain

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

func now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// vm is a running VM that a profile selects, on a node whose plan binds it.
func vm() *input {
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", Labels: map[string]string{"app": "web"}}}
	vmi.Status.Phase, vmi.Status.NodeName = virtv1.Running, "a"
	vmi.Status.ActivePods = map[types.UID]string{"pod": "a"}
	plan := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	plan.Spec = v1alpha1.NodePlanSpec{Policy: "p", Mode: v1alpha1.ModeEnforce, Apply: true, VMs: []v1alpha1.VMPlan{{
		VMReference: v1alpha1.VMReference{Namespace: "shop", Name: "web-0", PodUID: "pod"}, Profile: "web",
		Affinity: &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{VCPU: 0, CPUs: "1"}}},
		Reasons: []v1alpha1.LeverReason{
			{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonPinned},
			{Lever: v1alpha1.LeverSlice, Reason: v1alpha1.ReasonOptedOut}, {Lever: v1alpha1.LeverBuffering, Reason: v1alpha1.ReasonGuardWithdrawn},
			{Lever: v1alpha1.LeverShaping, Reason: "FromTheFuture"},
		},
	}}}
	until := metav1.NewTime(now().Add(time.Minute))
	over := metav1.NewTime(now().Add(-time.Minute))
	plan.Spec.Withdrawn = []v1alpha1.WithdrawnLever{
		{PodUID: "pod", Lever: v1alpha1.LeverBuffering, Sign: "Drops", Until: until, Message: "1 % of packets"},
		{PodUID: "pod", Lever: v1alpha1.LeverSlice, Sign: "Steal", Until: over}, {PodUID: "other", Lever: v1alpha1.LeverSlice, Sign: "Steal"},
	}
	plan.Status.VMs = []v1alpha1.VMApplied{{
		VMReference: v1alpha1.VMReference{PodUID: "pod"},
		LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonApplied},
		State:       v1alpha1.LeverInForce,
		VCPUs:       []v1alpha1.VCPUPin{{VCPU: 0, CPUs: "1"}},
	}}
	return &input{
		vmi: vmi,
		Node: facts.Node{
			Name: "a", Plan: plan,
			Policy: &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.EnergyPolicySpec{Mode: v1alpha1.ModeEnforce}},
		},
		profiles: []v1alpha1.VMNetworkProfile{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec:       v1alpha1.VMNetworkProfileSpec{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		}},
	}
}

// input is what a VM is explained from.
type input struct {
	facts.Node
	vmi      *virtv1.VirtualMachineInstance
	profiles []v1alpha1.VMNetworkProfile
}

func (in *input) explain() *Explanation { return VM(in.vmi, in.profiles, &in.Node, now()) }

func TestVM(t *testing.T) {
	type decided struct {
		Lever  v1alpha1.Lever
		State  v1alpha1.LeverState
		Reason string
	}
	all := func(state v1alpha1.LeverState, reason string) []decided {
		return []decided{{v1alpha1.LeverAffinity, state, reason}, {v1alpha1.LeverSlice, state, reason}, {v1alpha1.LeverBuffering, state, reason}, {v1alpha1.LeverShaping, state, reason}}
	}
	for name, tc := range map[string]struct {
		change func(*input)
		want   []decided
	}{
		"planned": {func(*input) {}, []decided{
			{v1alpha1.LeverAffinity, v1alpha1.LeverInForce, v1alpha1.ReasonApplied}, {v1alpha1.LeverSlice, v1alpha1.LeverBlocked, v1alpha1.ReasonOptedOut},
			{v1alpha1.LeverBuffering, v1alpha1.LeverBlocked, v1alpha1.ReasonGuardWithdrawn}, {v1alpha1.LeverShaping, v1alpha1.LeverBlocked, "FromTheFuture"},
		}},
		"not running": {func(in *input) { in.vmi.Status.Phase = virtv1.Scheduling }, all(v1alpha1.LeverBlocked, v1alpha1.ReasonNotRunning)},
		"no policy":   {func(in *input) { in.Plan = nil }, all(v1alpha1.LeverBlocked, v1alpha1.ReasonNoPolicy)},
		"no right":    {func(in *input) { in.Plan, in.Gaps = nil, []show.Gap{{Of: "NodePlan"}} }, nil},
		"no profile":  {func(in *input) { in.profiles, in.Plan.Spec.VMs = nil, nil }, all(v1alpha1.LeverBlocked, v1alpha1.ReasonNoProfile)},
		"new":         {func(in *input) { in.Plan.Spec.VMs = nil }, all(v1alpha1.LeverPending, v1alpha1.ReasonAwaitingPlan)},
	} {
		t.Run(name, func(t *testing.T) {
			in := vm()
			tc.change(in)
			var got []decided
			for _, d := range in.explain().Decisions {
				if d.Means == "" || d.Next == "" {
					t.Errorf("decision %+v is not explained", d)
				}
				got = append(got, decided{d.Lever, d.State, d.Reason})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEvidenceOfVM(t *testing.T) {
	e := vm().explain()
	if len(e.Withdrawn) != 1 || e.Withdrawn[0].Lever != v1alpha1.LeverBuffering {
		t.Errorf("withdrawn %+v, want only what is withdrawn now from this VM", e.Withdrawn)
	}
	first := e.Decisions[0]
	if first.Planned != "vCPUs 0:1" || first.ReadBack != "vCPUs 0:1" || first.Message != "planned as Pinned: The VM's vCPUs are bound to cores." {
		t.Errorf("decision %+v, want what was planned and why, and what was read back", first)
	}
}

func TestOptOut(t *testing.T) {
	in := vm()
	in.vmi.Annotations = map[string]string{v1alpha1.AnnotationOptOut: "maybe"}
	in.Node.Node = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationOptOut: "Affinity"}}}
	values := map[string]string{}
	for _, input := range in.explain().Inputs {
		values[input.Name] = input.Value
	}
	if got, want := values["opt-out of the VM"], "joulevirt.io/opt-out: maybe (not understood: it counts as true)"; got != want {
		t.Errorf("opt-out of the VM %q, want %q", got, want)
	}
	if got, want := values["opt-out of the node"], "joulevirt.io/opt-out: Affinity"; got != want {
		t.Errorf("opt-out of the node %q, want %q", got, want)
	}
}

// TestObserve: mode Observe is explained once for all levers, and nothing is repeated.
func TestObserve(t *testing.T) {
	in := vm()
	in.Plan.Spec.Mode, in.Plan.Spec.Apply, in.Plan.Spec.Reason, in.Plan.Spec.Message = v1alpha1.ModeObserve, false, v1alpha1.ReasonObserveOnly, ""
	in.Plan.Spec.VMs[0].Affinity, in.Plan.Spec.VMs[0].Reasons, in.Plan.Status, in.Plan.Spec.Withdrawn = nil, nil, v1alpha1.NodePlanStatus{
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: "NotToBeApplied", Message: "the plan is not to be applied: nothing is changed"}},
	}, nil
	for _, lever := range []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverBuffering, v1alpha1.LeverShaping} {
		in.Plan.Spec.VMs[0].Reasons = append(in.Plan.Spec.VMs[0].Reasons, v1alpha1.LeverReason{Lever: lever, Reason: v1alpha1.ReasonObserveOnly})
	}
	node := Node(&facts.Node{Name: "a", Plan: in.Plan}, now())
	for name, e := range map[string]*Explanation{"VM": in.explain(), "node": node} {
		why := e.why()
		if len(why.Rows) != 1 || why.Rows[0][0] != "Affinity, Slice, Buffering, Shaping" {
			t.Errorf("%s: why %q, want the same words for all levers once", name, why.Rows)
		}
		for _, input := range e.Inputs {
			if input.Name == "plan's message" || input.Name == "Applied is False" {
				t.Errorf("%s: %s %q is repeated", name, input.Name, input.Value)
			}
		}
	}
}

// TestPower: the report has the node's power.
func TestPower(t *testing.T) {
	in := vm()
	in.Report = &v1alpha1.NodeReport{}
	in.Report.Status.Power = v1alpha1.Power{Source: v1alpha1.PowerModel, Watts: ptr.To(int64(200))}
	for subject, e := range map[string]*Explanation{"VM": in.explain(), "node": Node(&in.Node, now())} {
		if !slices.Contains(e.Inputs, Input{Name: "power of the node", Value: "200 W by Model, <none> ago"}) {
			t.Errorf("%s: inputs %+v, want the power of the report", subject, e.Inputs)
		}
	}
}

// TestTrials: nodes show trials of their levers, groups those of TrafficShare, and members both.
func TestTrials(t *testing.T) {
	policy := &v1alpha1.EnergyPolicy{}
	policy.Status.Trials = []v1alpha1.LeverTrial{{Lever: v1alpha1.LeverAffinity}, {Lever: v1alpha1.LeverTrafficShare}}
	group := &v1alpha1.VMNetworkProfile{Spec: v1alpha1.VMNetworkProfileSpec{Group: &v1alpha1.TrafficGroup{Name: "web"}}}
	ofVM, ofMember := vm(), vm()
	ofVM.Policy, ofMember.Policy = policy, policy
	ofMember.profiles[0].Spec.Group = group.Spec.Group
	for name, tc := range map[string]struct {
		of   *Explanation
		want string
	}{
		"node": {Node(&facts.Node{Name: "a", Policy: policy}, now()), "Affinity"}, "VM": {ofVM.explain(), "Affinity"},
		"member": {ofMember.explain(), "Affinity TrafficShare"}, "group": {Group(group, policy, nil, now()), "TrafficShare"},
		"without policy": {Node(&facts.Node{Name: "a"}, now()), ""},
	} {
		var got []string
		for _, s := range tc.of.Trials {
			got = append(got, string(s.Lever))
		}
		if joined := strings.Join(got, " "); joined != tc.want {
			t.Errorf("%s: trials of %q, want %q", name, joined, tc.want)
		}
	}
}
