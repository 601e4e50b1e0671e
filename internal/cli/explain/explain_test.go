package explain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

func now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// vm is a running VM that a profile selects, on a node whose plan binds it.
func vm() VMInput {
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", Labels: map[string]string{"app": "web"}}}
	vmi.Status.Phase, vmi.Status.NodeName = virtv1.Running, "a"
	vmi.Status.ActivePods = map[types.UID]string{"pod": "a"}
	plan := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	plan.Spec = v1alpha1.NodePlanSpec{Policy: "p", Mode: v1alpha1.ModeEnforce, Apply: true, VMs: []v1alpha1.VMPlan{{
		VMReference: v1alpha1.VMReference{Namespace: "shop", Name: "web-0", PodUID: "pod"}, Profile: "web",
		Affinity: &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{VCPU: 0, CPUs: "1"}}},
		Reasons: []v1alpha1.PlanReason{
			{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonPinned, Message: "on its own core"},
			{Lever: v1alpha1.LeverSlice, Reason: v1alpha1.ReasonOptedOut}, {Lever: v1alpha1.LeverBuffering, Reason: v1alpha1.ReasonGuardWithdrawn},
			{Lever: v1alpha1.LeverShaping, Reason: "FromTheFuture"},
		},
	}}}
	until := metav1.NewTime(now().Add(time.Minute))
	over := metav1.NewTime(now().Add(-time.Minute))
	plan.Spec.Withdrawn = []v1alpha1.WithdrawnLever{
		{PodUID: "pod", Lever: v1alpha1.LeverBuffering, Sign: "Drops", Until: &until, Message: "1 % of packets"},
		{PodUID: "pod", Lever: v1alpha1.LeverSlice, Sign: "Steal", Until: &over}, {PodUID: "other", Lever: v1alpha1.LeverSlice, Sign: "Steal"},
	}
	plan.Status.VMs = []v1alpha1.VMApplied{{
		PodUID: "pod", Lever: v1alpha1.LeverAffinity, State: v1alpha1.LeverInForce, Reason: v1alpha1.ReasonApplied, VCPUs: []v1alpha1.ThreadReadBack{{VCPU: 0, CPUs: "1"}},
	}}
	return VMInput{
		VMI: vmi, Plan: plan,
		Policy: &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.EnergyPolicySpec{Mode: v1alpha1.ModeEnforce}},
		Profiles: []v1alpha1.VMNetworkProfile{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec:       v1alpha1.VMNetworkProfileSpec{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		}},
	}
}

func TestVM(t *testing.T) {
	type said struct {
		Lever  v1alpha1.Lever
		State  v1alpha1.LeverState
		Reason string
	}
	all := func(state v1alpha1.LeverState, reason string) []said {
		return []said{{v1alpha1.LeverAffinity, state, reason}, {v1alpha1.LeverSlice, state, reason}, {v1alpha1.LeverBuffering, state, reason}, {v1alpha1.LeverShaping, state, reason}}
	}
	for name, tc := range map[string]struct {
		change func(*VMInput)
		want   []said
	}{
		"planned": {func(*VMInput) {}, []said{
			{v1alpha1.LeverAffinity, v1alpha1.LeverInForce, v1alpha1.ReasonApplied}, {v1alpha1.LeverSlice, v1alpha1.LeverBlocked, v1alpha1.ReasonOptedOut},
			{v1alpha1.LeverBuffering, v1alpha1.LeverBlocked, v1alpha1.ReasonGuardWithdrawn}, {v1alpha1.LeverShaping, v1alpha1.LeverBlocked, "FromTheFuture"},
		}},
		"not running": {func(in *VMInput) { in.VMI.Status.Phase = virtv1.Scheduling }, all(v1alpha1.LeverBlocked, v1alpha1.ReasonNotRunning)},
		"no policy":   {func(in *VMInput) { in.Plan = nil }, all(v1alpha1.LeverBlocked, v1alpha1.ReasonNoPolicy)},
		"no right":    {func(in *VMInput) { in.Plan, in.Gaps = nil, []show.Gap{{Of: "NodePlan"}} }, nil},
		"no profile":  {func(in *VMInput) { in.Profiles, in.Plan.Spec.VMs = nil, nil }, all(v1alpha1.LeverBlocked, v1alpha1.ReasonNoProfile)},
		"new":         {func(in *VMInput) { in.Plan.Spec.VMs = nil }, all(v1alpha1.LeverPending, v1alpha1.ReasonAwaitingPlan)},
	} {
		t.Run(name, func(t *testing.T) {
			in := vm()
			tc.change(&in)
			var got []said
			for _, d := range VM(in, now()).Decisions {
				if d.Means == "" || d.Next == "" {
					t.Errorf("decision %+v is not explained", d)
				}
				got = append(got, said{d.Lever, d.State, d.Reason})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEvidenceOfVM(t *testing.T) {
	e := VM(vm(), now())
	if len(e.Withdrawn) != 1 || e.Withdrawn[0].Lever != v1alpha1.LeverBuffering {
		t.Errorf("withdrawn %+v, want only what is withdrawn now from this VM", e.Withdrawn)
	}
	first := e.Decisions[0]
	if first.Planned != "vCPUs 0:1" || first.ReadBack != "vCPUs 0:1" || first.Message != "planned as Pinned: on its own core" {
		t.Errorf("decision %+v, want what was planned and why, and what was read back", first)
	}
}

func TestOptOut(t *testing.T) {
	in := vm()
	in.VMI.Annotations = map[string]string{v1alpha1.AnnotationOptOut: "maybe"}
	in.Node = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationOptOut: "Affinity"}}}
	values := map[string]string{}
	for _, input := range VM(in, now()).Inputs {
		values[input.Name] = input.Value
	}
	if got, want := values["opt-out of the VM"], "joulevirt.io/opt-out: maybe (not understood: it counts as true)"; got != want {
		t.Errorf("opt-out of the VM %q, want %q", got, want)
	}
	if got, want := values["opt-out of the node"], "joulevirt.io/opt-out: Affinity"; got != want {
		t.Errorf("opt-out of the node %q, want %q", got, want)
	}
}
