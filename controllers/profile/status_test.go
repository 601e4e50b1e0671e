package profile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// stateOfA is a plan and the state of a lever for VM a by it.
type stateOfA struct {
	plan *v1alpha1.NodePlan
	want string
}

func checkStates(t *testing.T, lever v1alpha1.Lever, cases map[string]stateOfA) {
	t.Helper()
	for name, tc := range cases {
		var plan *objects.IndexedPlan
		if tc.plan != nil {
			plan = &objects.IndexedPlan{NodePlan: tc.plan}
		}
		got := objects.LeverStateOf(lever)(plan, "pod-a")
		if text := fmt.Sprintf("%s %s", got.State, got.Reason); text != tc.want {
			t.Errorf("%s: %s, want %s", name, text, tc.want)
		}
	}
}

func TestAffinityState(t *testing.T) {
	checkStates(t, v1alpha1.LeverAffinity, map[string]stateOfA{
		"no plan":            {nil, "Blocked NoPolicy"},
		"not in the plan":    {controllertest.PlanOf("n", true), "Pending AwaitingPlan"},
		"planned":            {controllertest.PlanOf("n", true, "a"), "Pending AwaitingAgent"},
		"recommended":        {controllertest.PlanOf("n", false, "a"), "Recommended AwaitingApproval"},
		"in force":           {controllertest.Applied(controllertest.PlanOf("n", true, "a"), 2, "a", v1alpha1.LeverInForce, "Applied"), "InForce Applied"},
		"failed":             {controllertest.Applied(controllertest.PlanOf("n", true, "a"), 2, "a", v1alpha1.LeverFailed, "ApplyFailed"), "Failed ApplyFailed"},
		"in force for long":  {controllertest.Applied(controllertest.PlanOf("n", true, "a"), 1, "a", v1alpha1.LeverInForce, "Applied"), "InForce Applied"},
		"failed before":      {controllertest.Applied(controllertest.PlanOf("n", true, "a"), 1, "a", v1alpha1.LeverFailed, "ApplyFailed"), "Pending AwaitingAgent"},
		"another VM's":       {controllertest.Applied(controllertest.PlanOf("n", true, "a"), 2, "b", v1alpha1.LeverInForce, "Applied"), "Pending AwaitingAgent"},
		"hot":                {controllertest.PlanOf("n", true, "a:CoreWouldBeHot"), "Idle CoreWouldBeHot"},
		"shared":             {controllertest.PlanOf("n", true, "a:SharedPreferred"), "Blocked SharedPreferred"},
		"not running":        {controllertest.PlanOf("n", true, "a:NotRunning"), "Pending NotRunning"},
		"in the next":        {controllertest.PlanOf("n", false, "a:AwaitingApproval"), "Pending AwaitingApproval"},
		"separated already":  {controllertest.PlanOf("n", true, "a:NothingToSeparate"), "Idle NothingToSeparate"},
		"saves nothing":      {controllertest.PlanOf("n", true, "a:NoSaving"), "Idle NoSaving"},
		"siblings of others": {controllertest.PlanOf("n", true, "a:SiblingsTaken"), "Idle SiblingsTaken"},
	})
}

// The status of a profile that asks for lever Shaping has it, and a VM on which two
// levers act counts once. Those of another profile, and those that stopped, count not.
func TestProfileStatus(t *testing.T) {
	backup := controllertest.ProfileOf("backup", "web", time.Hour)
	backup.Spec.TrafficClass = v1alpha1.TrafficDeferrable
	stopped := controllertest.VMIOn("stopped", "web", "n")
	stopped.Status.Phase = virtv1.Succeeded
	plan := controllertest.Applied(controllertest.Shaped(controllertest.Shaped(controllertest.PlanOf("n", true, "a", "b"), "a", "TakesTurns"), "b", "NoRoom"), 2, "a", v1alpha1.LeverInForce, "Applied")
	plan.Status.VMs = append(plan.Status.VMs, v1alpha1.VMApplied{VMReference: v1alpha1.VMReference{PodUID: "pod-a"}, LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverShaping, Reason: "Applied"}, State: v1alpha1.LeverInForce})
	got := profileStatus(&backup, profileView{
		disturbances: controllertest.Disturbances{}, floods: controllertest.Floods{},
		profiles: observe.NewProfiles([]v1alpha1.VMNetworkProfile{backup}),
		vmis:     []virtv1.VirtualMachineInstance{controllertest.VMIOn("a", "web", "n"), controllertest.VMIOn("b", "web", "n"), controllertest.VMIOn("c", "db", "n"), stopped},
		plans:    map[string]*objects.IndexedPlan{"n": {NodePlan: plan}}, now: controllertest.StatusTime(),
	})
	got.Conditions = nil
	want := v1alpha1.VMNetworkProfileStatus{
		ObservedGeneration: 3, GovernedVMs: 2, VMsInForce: 1,
		Levers: []v1alpha1.LeverCount{
			{Lever: "Affinity", State: "InForce", Reason: "Applied", Count: 1},
			{Lever: "Affinity", State: "Pending", Reason: "AwaitingAgent", Count: 1},
			{Lever: "Shaping", State: "Idle", Reason: "NoRoom", Count: 1},
			{Lever: "Shaping", State: "InForce", Reason: "Applied", Count: 1},
		},
		Examples: []v1alpha1.VMExample{
			{Name: "b", Node: "n", LeverReason: v1alpha1.LeverReason{Lever: "Affinity", Reason: "AwaitingAgent", Message: "the agent of the VM's node has not acted on the plan yet"}, State: "Pending"},
			{Name: "b", Node: "n", LeverReason: v1alpha1.LeverReason{Lever: "Shaping", Reason: "NoRoom"}, State: "Idle"},
			{Name: "a", Node: "n", LeverReason: v1alpha1.LeverReason{Lever: "Affinity", Reason: "Applied"}, State: "InForce"},
			{Name: "a", Node: "n", LeverReason: v1alpha1.LeverReason{Lever: "Shaping", Reason: "Applied"}, State: "InForce"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProfileConditions(t *testing.T) {
	invalid := controllertest.ProfileOf("invalid", "web", time.Minute)
	invalid.Spec.Selector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}
	old, young := controllertest.ProfileOf("old", "web", time.Hour), controllertest.ProfileOf("young", "web", time.Minute)
	wider := controllertest.ProfileOf("wider", "web", time.Minute)
	wider.Spec.Selector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}
	for name, tc := range map[string]struct {
		profile            v1alpha1.VMNetworkProfile
		others             []v1alpha1.VMNetworkProfile
		ready, overlapping string
		words              []string
	}{
		"governs":         {old, []v1alpha1.VMNetworkProfile{young}, "True Governing", "False NotContested", nil},
		"selects nothing": {controllertest.ProfileOf("none", "misspelt", 0), nil, "False NoVMsMatched", "False NotContested", []string{"app=misspelt", "spec.template.metadata.labels", "namespace ns"}},
		"loses all":       {young, []v1alpha1.VMNetworkProfile{old}, "False OlderProfileWins", "True OlderProfileWins", []string{"VMNetworkProfile old", "VM a", "spec.selector"}},
		"loses some":      {wider, []v1alpha1.VMNetworkProfile{old}, "True Governing", "True OlderProfileWins", []string{"VMNetworkProfile old", "such as a"}},
		"invalid":         {invalid, nil, "False InvalidSelector", "False NotContested", []string{"spec.selector", "Near"}},
	} {
		view := profileView{
			disturbances: controllertest.Disturbances{}, floods: controllertest.Floods{},
			profiles: observe.NewProfiles(append([]v1alpha1.VMNetworkProfile{tc.profile}, tc.others...)),
			vmis:     []virtv1.VirtualMachineInstance{controllertest.VMIOn("a", "web", "n"), controllertest.VMIOn("b", "db", "n")},
			now:      controllertest.StatusTime(),
		}
		status := profileStatus(&tc.profile, view)
		controllertest.CheckConditions(t, name, status.Conditions, map[string]string{"Ready": tc.ready, "Overlapping": tc.overlapping}, tc.words)
	}
}

func TestExamplesAreBounded(t *testing.T) {
	profile := controllertest.ProfileOf("web", "web", time.Hour)
	view := profileView{disturbances: controllertest.Disturbances{}, floods: controllertest.Floods{}, profiles: observe.NewProfiles([]v1alpha1.VMNetworkProfile{profile}), now: controllertest.StatusTime()}
	for i := range 60 {
		view.vmis = append(view.vmis, controllertest.VMIOn(fmt.Sprintf("vm-%02d", i), "web", "n"))
	}
	plan := controllertest.PlanOf("n", true)
	for i := range 59 {
		name := fmt.Sprintf("vm-%02d", i)
		plan.Spec.VMs = append(plan.Spec.VMs, controllertest.PlanOf("n", true, name).Spec.VMs...)
		controllertest.Applied(plan, 2, name, v1alpha1.LeverInForce, "Applied")
	}
	view.plans = map[string]*objects.IndexedPlan{"n": {NodePlan: plan}}
	status := profileStatus(&profile, view)
	if len(status.Examples) != maxExamples || status.Examples[0].Name != "vm-59" || status.VMsInForce != 59 {
		t.Errorf("%d examples, the first %+v, %d in force", len(status.Examples), status.Examples[0], status.VMsInForce)
	}
}

// A profile's own reconciler keeps what is said of the group, and counts its VMs.
func TestProfileStatusKeepsTraffic(t *testing.T) {
	web := controllertest.GroupProfileOf("web")
	web.Status.Traffic = &v1alpha1.TrafficStatus{ObservedGeneration: web.Generation, State: v1alpha1.LeverInForce, Reason: "Skewed"}
	view := profileView{disturbances: controllertest.Disturbances{}, floods: controllertest.Floods{}, profiles: observe.NewProfiles([]v1alpha1.VMNetworkProfile{web}), now: controllertest.StatusTime()}
	view.vmis = append(view.vmis, controllertest.VMIOn("a", "web", "n"), controllertest.VMIOn("b", "web", "n"))
	got := profileStatus(&web, view)
	if got.Traffic != web.Status.Traffic || got.VMsInForce != 2 {
		t.Errorf("%+v", got)
	}
	web.Generation++
	got = profileStatus(&web, view)
	for _, count := range got.Levers {
		if count.Lever == v1alpha1.LeverTrafficShare && (count.State != v1alpha1.LeverPending || count.Count != 2) {
			t.Errorf("of an older generation: %+v", count)
		}
	}
}

// What is the same of all levers is in TestAffinityState.
func TestBufferingState(t *testing.T) {
	say := func(reason string) *v1alpha1.NodePlan {
		return controllertest.Buffered(controllertest.PlanOf("n", true, "a"), "a", reason, nil)
	}
	checkStates(t, v1alpha1.LeverBuffering, map[string]stateOfA{
		"planned for floods":       {say("FloodDefenceOnly"), "Pending AwaitingAgent"},
		"in force":                 {controllertest.Buffered(controllertest.PlanOf("n", true, "a"), "a", "Buffered", &v1alpha1.BufferingReadBack{}), "InForce Applied"},
		"only affinity in force":   {controllertest.Applied(say("Buffered"), 2, "a", v1alpha1.LeverInForce, "Applied"), "Pending AwaitingAgent"},
		"no budget":                {say("NoLatencyBudget"), "Blocked NoLatencyBudget"},
		"not on this node":         {say("BufferingUnsupported"), "Blocked BufferingUnsupported"},
		"without a tap":            {say("NoTap"), "Blocked NoTap"},
		"slow":                     {say("FewPackets"), "Idle FewPackets"},
		"hurt":                     {say("Hurts"), "Idle Hurts"},
		"its traffic is not known": {say("Learning"), "Pending Learning"},
	})
}

// Of what is in force the message says which halves are.
func TestBufferingHalves(t *testing.T) {
	back := func(window int32, transmit v1alpha1.BufferingHalf) *v1alpha1.BufferingReadBack {
		return &v1alpha1.BufferingReadBack{WindowMicroseconds: window, Transmit: transmit}
	}
	for name, tc := range map[string]struct {
		reason string
		back   *v1alpha1.BufferingReadBack
		want   string
	}{
		"both": {"Buffered", back(250, "InForce"),
			"packets towards the VM are held for up to 250us while they come fast; those that it sends are held by its guest tools"},
		"receive": {"Buffered", back(500, "NoGuestTools"),
			"packets towards the VM are held for up to 500us while they come fast; those that it sends are not held: its guest tools were not heard of"},
		"a guest in a hurry": {"Buffered", back(0, "GuestDeclines"),
			"packets towards the VM are held only during floods, as its guest tools tolerate no delay; those that it sends are not held: its guest tools tolerate no delay"},
		"only floods": {"FloodDefenceOnly", back(0, "NoGuestTools"), "words of the plan"},
	} {
		plan := &objects.IndexedPlan{NodePlan: controllertest.Buffered(controllertest.PlanOf("n", true, "a"), "a", tc.reason, tc.back)}
		if got := objects.LeverStateOf(v1alpha1.LeverBuffering)(plan, "pod-a"); got.Message != tc.want || got.State != v1alpha1.LeverInForce {
			t.Errorf("%s: %+v, want %q", name, got, tc.want)
		}
	}
	plan := controllertest.Buffered(controllertest.PlanOf("n", true, "a"), "a", "Buffered", back(250, "InForce"))
	plan.Status.VMs[0].Buffering = nil
	if got := objects.LeverStateOf(v1alpha1.LeverBuffering)(&objects.IndexedPlan{NodePlan: plan}, "pod-a"); got.Message != "words of the agent" {
		t.Errorf("nothing read back: %+v", got)
	}
}

// Lever Buffering is reported where a policy has it, and where the profile has a latency
// budget.
func TestProfileStatusOfBuffering(t *testing.T) {
	web := controllertest.ProfileOf("web", "web", time.Hour)
	plan := controllertest.PlanOf("n", true, "a", "b", "c")
	controllertest.Buffered(controllertest.Buffered(plan, "a", "Buffered", &v1alpha1.BufferingReadBack{WindowMicroseconds: 250}), "b", "LeverNotAllowed", nil)
	view := profileView{
		disturbances: controllertest.Disturbances{}, floods: controllertest.Floods{},
		profiles: observe.NewProfiles([]v1alpha1.VMNetworkProfile{web}),
		vmis:     []virtv1.VirtualMachineInstance{controllertest.VMIOn("a", "web", "n"), controllertest.VMIOn("b", "web", "n"), controllertest.VMIOn("c", "web", "n"), controllertest.VMIOn("d", "web", "m")},
		plans:    map[string]*objects.IndexedPlan{"n": {NodePlan: plan}}, now: controllertest.StatusTime(),
	}
	reported := func() []v1alpha1.LeverCount {
		var out []v1alpha1.LeverCount
		for _, count := range profileStatus(&web, view).Levers {
			if count.Lever == v1alpha1.LeverBuffering {
				out = append(out, count)
			}
		}
		return out
	}
	inForce := v1alpha1.LeverCount{Lever: "Buffering", State: "InForce", Reason: "Applied", Count: 1}
	if diff := cmp.Diff([]v1alpha1.LeverCount{inForce}, reported()); diff != "" {
		t.Errorf("without a budget (-want +got):\n%s", diff)
	}
	web.Spec.LatencyBudget = &metav1.Duration{Duration: time.Millisecond}
	want := []v1alpha1.LeverCount{
		{Lever: "Buffering", State: "Blocked", Reason: "LeverNotAllowed", Count: 1},
		{Lever: "Buffering", State: "Blocked", Reason: "NoPolicy", Count: 1},
		{Lever: "Buffering", State: "Idle", Reason: "NothingToDo", Count: 1},
		inForce,
	}
	if diff := cmp.Diff(want, reported()); diff != "" {
		t.Errorf("with one (-want +got):\n%s", diff)
	}
	for _, e := range profileStatus(&web, view).Examples {
		if e.Lever == v1alpha1.LeverBuffering && e.State == v1alpha1.LeverInForce && !strings.Contains(e.Message, "250us") {
			t.Errorf("example %+v", e)
		}
	}
}
