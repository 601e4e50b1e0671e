package controllers

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// buffered adds what a plan says of lever Buffering, and what the agent read back. Nil: it
// did not act.
func buffered(plan *v1alpha1.NodePlan, vm, reason string, back *v1alpha1.BufferingReadBack) *v1alpha1.NodePlan {
	for i := range plan.Spec.VMs {
		planned := &plan.Spec.VMs[i]
		if planned.Name != vm {
			continue
		}
		planned.Reasons = append(planned.Reasons, v1alpha1.PlanReason{Lever: v1alpha1.LeverBuffering, Reason: reason, Message: "words of the plan"})
		switch reason {
		case v1alpha1.ReasonBuffered:
			planned.Buffering = &v1alpha1.BufferingAction{WindowMicroseconds: ptr.To[int32](250), OnPacketsPerSecond: 10_000}
		case v1alpha1.ReasonFloodDefenceOnly:
			planned.Buffering = &v1alpha1.BufferingAction{FloodWindowMicroseconds: ptr.To[int32](500), OnPacketsPerSecond: 10_000}
		}
	}
	if back != nil {
		plan.Status.ObservedGeneration = plan.Generation
		plan.Status.VMs = append(plan.Status.VMs, v1alpha1.VMApplied{
			PodUID: types.UID("pod-" + vm), Name: vm, Namespace: "ns", Lever: v1alpha1.LeverBuffering,
			State: v1alpha1.LeverInForce, Reason: v1alpha1.ReasonApplied, Message: "words of the agent", Buffering: back,
		})
	}
	return plan
}

func TestBufferingState(t *testing.T) {
	say := func(reason string) *v1alpha1.NodePlan { return buffered(planOf("n", true, "a"), "a", reason, nil) }
	checkStates(t, v1alpha1.LeverBuffering, map[string]stateOfA{
		"no plan":                  {nil, "Blocked NoPolicy"},
		"not in the plan":          {planOf("n", true), "Pending AwaitingPlan"},
		"planned":                  {say("Buffered"), "Pending AwaitingAgent"},
		"planned for floods":       {say("FloodDefenceOnly"), "Pending AwaitingAgent"},
		"recommended":              {buffered(planOf("n", false, "a"), "a", "Buffered", nil), "Recommended AwaitingApproval"},
		"in force":                 {buffered(planOf("n", true, "a"), "a", "Buffered", &v1alpha1.BufferingReadBack{}), "InForce Applied"},
		"only affinity in force":   {applied(say("Buffered"), 2, "a", v1alpha1.LeverInForce, "Applied"), "Pending AwaitingAgent"},
		"no budget":                {say("NoLatencyBudget"), "Blocked NoLatencyBudget"},
		"not on this node":         {say("BufferingUnsupported"), "Blocked BufferingUnsupported"},
		"without a tap":            {say("NoTap"), "Blocked NoTap"},
		"not allowed":              {say("LeverNotAllowed"), "Blocked LeverNotAllowed"},
		"slow":                     {say("FewPackets"), "Idle FewPackets"},
		"hurt":                     {say("Hurts"), "Idle Hurts"},
		"its traffic is not known": {say("TrafficUnknown"), "Pending TrafficUnknown"},
		"not running":              {say("NotRunning"), "Pending NotRunning"},
	})
}

// Of what is in force the message says which halves are.
func TestBufferingHalves(t *testing.T) {
	back := func(window int32, receive, transmit v1alpha1.BufferingHalf) *v1alpha1.BufferingReadBack {
		return &v1alpha1.BufferingReadBack{WindowMicroseconds: window, Receive: receive, Transmit: transmit}
	}
	for name, tc := range map[string]struct {
		reason string
		back   *v1alpha1.BufferingReadBack
		want   string
	}{
		"both": {"Buffered", back(250, "InForce", "InForce"),
			"packets towards the VM are held for up to 250us while they come fast; those that it sends are held by its guest tools"},
		"receive": {"Buffered", back(500, "InForce", "NoGuestTools"),
			"packets towards the VM are held for up to 500us while they come fast; those that it sends are not held: its guest tools were not heard of"},
		"a guest in a hurry": {"Buffered", back(0, "GuestDeclines", "GuestDeclines"),
			"packets towards the VM are held only during floods, as its guest tools tolerate no delay; those that it sends are not held: its guest tools tolerate no delay"},
		"only floods": {"FloodDefenceOnly", back(0, "InForce", "NoGuestTools"), "words of the plan"},
	} {
		plan := &indexedPlan{NodePlan: buffered(planOf("n", true, "a"), "a", tc.reason, tc.back)}
		if got := leverStateOf(v1alpha1.LeverBuffering)(plan, "pod-a"); got.Message != tc.want || got.State != v1alpha1.LeverInForce {
			t.Errorf("%s: %+v, want %q", name, got, tc.want)
		}
	}
	plan := buffered(planOf("n", true, "a"), "a", "Buffered", back(250, "InForce", "InForce"))
	plan.Status.VMs[0].Buffering = nil
	if got := leverStateOf(v1alpha1.LeverBuffering)(&indexedPlan{NodePlan: plan}, "pod-a"); got.Message != "words of the agent" {
		t.Errorf("nothing read back: %+v", got)
	}
}

// Lever Buffering is told about where a policy has it, and where the profile has a latency
// budget.
func TestProfileStatusOfBuffering(t *testing.T) {
	web := profileOf("web", "web", time.Hour)
	plan := planOf("n", true, "a", "b", "c")
	buffered(buffered(plan, "a", "Buffered", &v1alpha1.BufferingReadBack{WindowMicroseconds: 250}), "b", "LeverNotAllowed", nil)
	view := profileView{
		disturbances: disturbances{}, floods: floods{},
		profiles: observe.NewProfiles([]v1alpha1.VMNetworkProfile{web}),
		vmis:     []virtv1.VirtualMachineInstance{vmiOn("a", "web", "n"), vmiOn("b", "web", "n"), vmiOn("c", "web", "n"), vmiOn("d", "web", "m")},
		plans:    map[string]*indexedPlan{"n": {NodePlan: plan}}, now: statusTime(),
	}
	told := func() []v1alpha1.LeverCount {
		var out []v1alpha1.LeverCount
		for _, count := range profileStatus(&web, view).Levers {
			if count.Lever == v1alpha1.LeverBuffering {
				out = append(out, count)
			}
		}
		return out
	}
	inForce := v1alpha1.LeverCount{Lever: "Buffering", State: "InForce", Reason: "Applied", Count: 1}
	if diff := cmp.Diff([]v1alpha1.LeverCount{inForce}, told()); diff != "" {
		t.Errorf("without a budget (-want +got):\n%s", diff)
	}
	web.Spec.LatencyBudget = &metav1.Duration{Duration: time.Millisecond}
	want := []v1alpha1.LeverCount{
		{Lever: "Buffering", State: "Blocked", Reason: "LeverNotAllowed", Count: 1},
		{Lever: "Buffering", State: "Blocked", Reason: "NoPolicy", Count: 1},
		{Lever: "Buffering", State: "Idle", Reason: "NothingToDo", Count: 1},
		inForce,
	}
	if diff := cmp.Diff(want, told()); diff != "" {
		t.Errorf("with one (-want +got):\n%s", diff)
	}
	for _, e := range profileStatus(&web, view).Examples {
		if e.Lever == v1alpha1.LeverBuffering && e.State == v1alpha1.LeverInForce && !strings.Contains(e.Message, "250us") {
			t.Errorf("example %+v", e)
		}
	}
}
