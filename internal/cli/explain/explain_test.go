package explain

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
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
	vmi.Status.Conditions = []virtv1.VirtualMachineInstanceCondition{{Type: virtv1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue}}
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

// A VM that no profile selects has the policy's defaults only where a plan names it for them.
func TestProfileOfVM(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*input)
		want   string
	}{
		"a profile":   {func(*input) {}, "web"},
		"defaults":    {func(in *input) { in.profiles, in.Plan.Spec.VMs[0].Profile = nil, "" }, "none selects it: spec.defaults of EnergyPolicy p count"},
		"just lost":   {func(in *input) { in.profiles, in.Plan.Spec.VMs[0].Profile = nil, "web" }, "none selects it"},
		"not planned": {func(in *input) { in.profiles, in.Plan.Spec.VMs = nil, nil }, "none selects it"},
	} {
		in := vm()
		in.Plan.Spec.Policy = "p"
		tc.change(in)
		inputs := in.explain().Inputs
		at := slices.IndexFunc(inputs, func(i Input) bool { return i.Name == "profile" })
		if at < 0 || inputs[at].Value != tc.want {
			t.Errorf("%s: inputs %+v, want profile %q", name, inputs, tc.want)
		}
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

func TestMoves(t *testing.T) {
	plan := &v1alpha1.PlacementPlan{
		Spec: v1alpha1.PlacementPlanSpec{Moves: []v1alpha1.PlacementMove{
			{Namespace: "shop", Name: "web-0", From: "a", To: "b", Watts: "12", Reason: "SavesEnergy", Cost: v1alpha1.PlacementCost{Seconds: 150, BreaksConnections: true}},
			{Namespace: "shop", Name: "db", From: "b", To: "a", Watts: "1", Reason: "SavesEnergy"},
		}, Nodes: []v1alpha1.PlacementNode{
			{Name: "a", Before: v1alpha1.PlacementLoad{VMs: 4, CPUPercent: 30, Watts: "118"}, After: v1alpha1.PlacementLoad{VMs: 1, CPUPercent: 9}},
			{Name: "b", Before: v1alpha1.PlacementLoad{VMs: 9}},
		}},
		Status: v1alpha1.PlacementPlanStatus{
			Stays:      []v1alpha1.ReasonCount{{Reason: "NoBetterNode", Count: 3}},
			Hosts:      []v1alpha1.HostStatus{{Node: "a", State: v1alpha1.HostOn, Reason: "Reserve", Message: "spec.hostPower.reserveNodes of the policy is 1"}},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: v1alpha1.ReasonMovesPlanned}, {Type: v1alpha1.ConditionMovesAllowed, Reason: v1alpha1.ReasonAwaitingApproval}},
		},
	}
	placement := func(e *Explanation) (found []Decision) {
		for _, d := range e.Decisions {
			if d.Lever == v1alpha1.LeverPlacement {
				found = append(found, d)
			}
		}
		return found
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.PlacementPlan)
		want   Decision
	}{
		"goes": {func(*v1alpha1.PlacementPlan) {}, Decision{
			State: v1alpha1.LeverRecommended, Reason: "SavesEnergy", Planned: "to b: saves 12 W, at most 150s, TCP connections break", Message: "Moves now: AwaitingApproval.",
		}},
		"goes, approved": {func(p *v1alpha1.PlacementPlan) { p.Spec.Apply = true }, Decision{
			State: v1alpha1.LeverPending, Reason: "SavesEnergy", Planned: "to b: saves 12 W, at most 150s, TCP connections break", Message: "Moves now: AwaitingApproval.",
		}},
		"stays": {func(p *v1alpha1.PlacementPlan) { p.Spec.Moves = p.Spec.Moves[1:] }, Decision{
			State: v1alpha1.LeverIdle, Reason: v1alpha1.ReasonNoMoves, Message: "VMs of the policy stay for: NoBetterNode 3.",
		}},
		"has come": {func(p *v1alpha1.PlacementPlan) {
			p.Spec.Moves = nil
			p.Status.Moves = []v1alpha1.PlacementOutcome{{Namespace: "shop", Name: "web-0", From: "b", To: "a", Phase: v1alpha1.PlacementSucceeded, Reason: "NodeHot", CreatedAt: metav1.NewTime(now().Add(-time.Hour))}}
			p.Status.Conditions[0].Reason = v1alpha1.ReasonKubeVirtUpdating
		}, Decision{
			State: v1alpha1.LeverIdle, Reason: v1alpha1.ReasonKubeVirtUpdating, ReadBack: "Succeeded: b to a, 60m ago, NodeHot", Message: "VMs of the policy stay for: NoBetterNode 3.",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			in := vm()
			in.Moves = plan.DeepCopy()
			tc.change(in.Moves)
			got := placement(in.explain())
			if len(got) != 1 || got[0].Means == "" || got[0].Next == "" {
				t.Fatalf("%+v, want one decision with words", got)
			}
			got[0].Means, got[0].Next, got[0].Lever = "", "", ""
			if diff := cmp.Diff(tc.want, got[0]); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
	own := vm()
	own.Moves = &v1alpha1.PlacementPlan{Status: plan.Status}
	own.vmi.Spec.Domain.CPU = &virtv1.CPU{DedicatedCPUPlacement: true}
	if got := placement(own.explain()); len(got) != 1 || got[0].Reason != v1alpha1.ReasonDedicatedCPUs || got[0].Message != "" {
		t.Errorf("a VM that stays by itself: %+v", got)
	}
	in := vm()
	if got := placement(in.explain()); len(got) != 0 {
		t.Errorf("without a plan of moves: %+v", got)
	}
	in.Moves = plan
	e := Node(&in.Node, now())
	if got := placement(e); len(got) != 1 || got[0].VMs != 1 || got[0].Message != "Such as shop/web-0 to b. Moves now: AwaitingApproval." {
		t.Errorf("node: %+v, want the one VM that leaves", got)
	}
	if !slices.Contains(e.Inputs, Input{Name: "VMs that are to come", Value: "1 VM"}) {
		t.Errorf("inputs %+v, want the VM that comes", e.Inputs)
	}
	for name, want := range map[string]string{
		"before these moves": "4 VMs, 30 % of its CPUs at the 95th percentile, 118 W, modelled",
		"after them":         "1 VM, 9 % of its CPUs at the 95th percentile, its power is not known",
	} {
		if !slices.Contains(e.Inputs, Input{Name: name, Value: want}) {
			t.Errorf("inputs %+v, want what the node carries %s", e.Inputs, name)
		}
	}
	if !slices.Contains(e.Inputs, Input{Name: "host", Value: "On, Reserve: So many hosts without VMs stay on. spec.hostPower.reserveNodes of the policy is 1"}) {
		t.Errorf("inputs %+v, want the host", e.Inputs)
	}
}
