package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe"
)

func statusTime() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func vmiOn(name, app, node string) virtv1.VirtualMachineInstance {
	vmi := virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": app}}}
	vmi.Status.Phase = virtv1.Running
	vmi.Status.NodeName = node
	vmi.Status.ActivePods = map[types.UID]string{types.UID("pod-" + name): node}
	return vmi
}

func profileOf(name, app string, age time.Duration) v1alpha1.VMNetworkProfile {
	return v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), Generation: 3,
			CreationTimestamp: metav1.NewTime(statusTime().Add(-age)),
		},
		Spec: v1alpha1.VMNetworkProfileSpec{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}
}

// planOf plans pins for the VMs named, and a reason for those after a colon.
func planOf(node string, apply bool, vms ...string) *v1alpha1.NodePlan {
	plan := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: node, Generation: 2}}
	plan.Spec.Apply = apply
	for _, text := range vms {
		name, reason, unpinned := strings.Cut(text, ":")
		vm := v1alpha1.VMPlan{VMReference: v1alpha1.VMReference{Namespace: "ns", Name: name, PodUID: types.UID("pod-" + name)}}
		if !unpinned {
			reason = v1alpha1.ReasonPinned
			vm.Affinity = &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{CPUs: "0"}}}
		}
		vm.Reasons = []v1alpha1.PlanReason{{Lever: v1alpha1.LeverAffinity, Reason: reason}}
		plan.Spec.VMs = append(plan.Spec.VMs, vm)
	}
	return plan
}

func applied(plan *v1alpha1.NodePlan, generation int64, vm string, state v1alpha1.LeverState, reason string) *v1alpha1.NodePlan {
	plan.Status.ObservedGeneration = generation
	plan.Status.VMs = append(plan.Status.VMs, v1alpha1.VMApplied{
		PodUID: types.UID("pod-" + vm), Name: vm, Namespace: "ns", Lever: v1alpha1.LeverAffinity, State: state, Reason: reason,
	})
	return plan
}

// stateOfA is a plan and the state of a lever for VM a by it.
type stateOfA struct {
	plan *v1alpha1.NodePlan
	want string
}

func checkStates(t *testing.T, lever v1alpha1.Lever, cases map[string]stateOfA) {
	t.Helper()
	for name, tc := range cases {
		var plan *indexedPlan
		if tc.plan != nil {
			plan = &indexedPlan{NodePlan: tc.plan}
		}
		got := leverStateOf(lever)(plan, "pod-a")
		if text := fmt.Sprintf("%s %s", got.State, got.Reason); text != tc.want {
			t.Errorf("%s: %s, want %s", name, text, tc.want)
		}
	}
}

func TestAffinityState(t *testing.T) {
	checkStates(t, v1alpha1.LeverAffinity, map[string]stateOfA{
		"no plan":            {nil, "Blocked NoPolicy"},
		"not in the plan":    {planOf("n", true), "Pending AwaitingPlan"},
		"planned":            {planOf("n", true, "a"), "Pending AwaitingAgent"},
		"recommended":        {planOf("n", false, "a"), "Recommended AwaitingApproval"},
		"in force":           {applied(planOf("n", true, "a"), 2, "a", v1alpha1.LeverInForce, "Applied"), "InForce Applied"},
		"failed":             {applied(planOf("n", true, "a"), 2, "a", v1alpha1.LeverFailed, "ApplyFailed"), "Failed ApplyFailed"},
		"in force for long":  {applied(planOf("n", true, "a"), 1, "a", v1alpha1.LeverInForce, "Applied"), "InForce Applied"},
		"failed before":      {applied(planOf("n", true, "a"), 1, "a", v1alpha1.LeverFailed, "ApplyFailed"), "Pending AwaitingAgent"},
		"another VM's":       {applied(planOf("n", true, "a"), 2, "b", v1alpha1.LeverInForce, "Applied"), "Pending AwaitingAgent"},
		"hot":                {planOf("n", true, "a:CoreWouldBeHot"), "Idle CoreWouldBeHot"},
		"shared":             {planOf("n", true, "a:SharedPreferred"), "Blocked SharedPreferred"},
		"not running":        {planOf("n", true, "a:NotRunning"), "Pending NotRunning"},
		"in the next":        {planOf("n", false, "a:AwaitingApproval"), "Pending AwaitingApproval"},
		"separated already":  {planOf("n", true, "a:NothingToSeparate"), "Idle NothingToSeparate"},
		"saves nothing":      {planOf("n", true, "a:NoSaving"), "Idle NoSaving"},
		"siblings of others": {planOf("n", true, "a:SiblingsTaken"), "Idle SiblingsTaken"},
	})
}

// sliced adds what a plan says of lever Slice.
func sliced(plan *v1alpha1.NodePlan, vm, reason string) *v1alpha1.NodePlan {
	for i := range plan.Spec.VMs {
		if planned := &plan.Spec.VMs[i]; planned.Name == vm {
			planned.Reasons = append(planned.Reasons, v1alpha1.PlanReason{Lever: v1alpha1.LeverSlice, Reason: reason})
			if reason == v1alpha1.ReasonShortSlice || reason == v1alpha1.ReasonLongSlice {
				planned.Slice = &v1alpha1.SliceAction{Microseconds: 1000}
			}
		}
	}
	return plan
}

func TestSliceState(t *testing.T) {
	inForce := sliced(planOf("n", true, "a"), "a", "ShortSlice")
	inForce.Status = v1alpha1.NodePlanStatus{ObservedGeneration: 2, VMs: []v1alpha1.VMApplied{{
		PodUID: "pod-a", Lever: v1alpha1.LeverSlice, State: v1alpha1.LeverInForce, Reason: v1alpha1.ReasonApplied,
	}}}
	checkStates(t, v1alpha1.LeverSlice, map[string]stateOfA{
		"no plan":                   {nil, "Blocked NoPolicy"},
		"planned":                   {sliced(planOf("n", true, "a"), "a", "LongSlice"), "Pending AwaitingAgent"},
		"only affinity is in force": {applied(sliced(planOf("n", true, "a"), "a", "ShortSlice"), 2, "a", v1alpha1.LeverInForce, "Applied"), "Pending AwaitingAgent"},
		"in force":                  {inForce, "InForce Applied"},
		"no other pool":             {sliced(planOf("n", true, "a"), "a", "NoOtherPool"), "Idle NoOtherPool"},
		"an old kernel":             {sliced(planOf("n", true, "a"), "a", "SlicesUnsupported"), "Blocked SlicesUnsupported"},
		"not allowed":               {sliced(planOf("n", true, "a"), "a", "LeverNotAllowed"), "Blocked LeverNotAllowed"},
		"recommended":               {sliced(planOf("n", false, "a"), "a", "ShortSlice"), "Recommended AwaitingApproval"},
	})
}

// Lever Slice is told about where a policy has it, and where not it is no news.
func TestProfileStatusOfSlices(t *testing.T) {
	web := profileOf("web", "web", time.Hour)
	plan := sliced(sliced(planOf("n", true, "a", "b", "c"), "a", "ShortSlice"), "b", "LeverNotAllowed")
	got := profileStatus(&web, profileView{
		disturbances: disturbances{}, floods: floods{},
		profiles: observe.NewProfiles([]v1alpha1.VMNetworkProfile{web}),
		vmis:     []virtv1.VirtualMachineInstance{vmiOn("a", "web", "n"), vmiOn("b", "web", "n"), vmiOn("c", "web", "n"), vmiOn("d", "web", "m")},
		plans:    map[string]*indexedPlan{"n": {NodePlan: plan}}, now: statusTime(),
	})
	want := []v1alpha1.LeverCount{
		{Lever: "Affinity", State: "Blocked", Reason: "NoPolicy", Count: 1},
		{Lever: "Affinity", State: "Pending", Reason: "AwaitingAgent", Count: 3},
		{Lever: "Slice", State: "Pending", Reason: "AwaitingAgent", Count: 1},
	}
	if diff := cmp.Diff(want, got.Levers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func shaped(plan *v1alpha1.NodePlan, vm string, reason string) *v1alpha1.NodePlan {
	for i := range plan.Spec.VMs {
		if planned := &plan.Spec.VMs[i]; planned.Name == vm {
			planned.Reasons = append(planned.Reasons, v1alpha1.PlanReason{Lever: v1alpha1.LeverShaping, Reason: reason})
			if reason == v1alpha1.ReasonTakesTurns || reason == v1alpha1.ReasonCeiling {
				planned.Shaping = &v1alpha1.ShapingAction{}
			}
		}
	}
	return plan
}

func TestShapingState(t *testing.T) {
	inForce := applied(shaped(planOf("n", true, "a"), "a", "TakesTurns"), 2, "a", v1alpha1.LeverInForce, "Applied")
	bothInForce := applied(shaped(planOf("n", true, "a"), "a", "TakesTurns"), 2, "a", v1alpha1.LeverInForce, "Applied")
	bothInForce.Status.VMs = append(bothInForce.Status.VMs, v1alpha1.VMApplied{
		PodUID: "pod-a", Lever: v1alpha1.LeverShaping, State: v1alpha1.LeverFailed, Reason: v1alpha1.ReasonApplyFailed,
	})
	checkStates(t, v1alpha1.LeverShaping, map[string]stateOfA{
		"no plan":                      {nil, "Blocked NoPolicy"},
		"not in the plan":              {planOf("n", true), "Pending AwaitingPlan"},
		"a plan without a word":        {planOf("n", true, "a"), "Idle NothingToDo"},
		"planned":                      {shaped(planOf("n", true, "a"), "a", "Ceiling"), "Pending AwaitingAgent"},
		"recommended":                  {shaped(planOf("n", false, "a"), "a", "TakesTurns"), "Recommended AwaitingApproval"},
		"only affinity is in force":    {inForce, "Pending AwaitingAgent"},
		"failed, affinity is in force": {bothInForce, "Failed ApplyFailed"},
		"not allowed":                  {shaped(planOf("n", true, "a"), "a", "LeverNotAllowed"), "Blocked LeverNotAllowed"},
		"a ceiling that is too low":    {shaped(planOf("n", true, "a"), "a", "CeilingTooLow"), "Blocked CeilingTooLow"},
		"nothing to shape":             {shaped(planOf("n", true, "a"), "a", "NothingToShape"), "Idle NothingToShape"},
		"no room":                      {shaped(planOf("n", true, "a"), "a", "NoRoom"), "Idle NoRoom"},
		"not known yet":                {shaped(planOf("n", true, "a"), "a", "TrafficUnknown"), "Pending TrafficUnknown"},
	})
}

// A profile that asks for lever Shaping is told about it, and a VM on which two
// levers act counts once.
func TestProfileStatusOfTwoLevers(t *testing.T) {
	backup := profileOf("backup", "web", time.Hour)
	backup.Spec.TrafficClass = v1alpha1.TrafficDeferrable
	plan := applied(shaped(shaped(planOf("n", true, "a", "b"), "a", "TakesTurns"), "b", "NoRoom"), 2, "a", v1alpha1.LeverInForce, "Applied")
	plan.Status.VMs = append(plan.Status.VMs, v1alpha1.VMApplied{PodUID: "pod-a", Lever: v1alpha1.LeverShaping, State: v1alpha1.LeverInForce, Reason: "Applied"})
	got := profileStatus(&backup, profileView{
		disturbances: disturbances{}, floods: floods{},
		profiles: observe.NewProfiles([]v1alpha1.VMNetworkProfile{backup}),
		vmis:     []virtv1.VirtualMachineInstance{vmiOn("a", "web", "n"), vmiOn("b", "web", "n")},
		plans:    map[string]*indexedPlan{"n": {NodePlan: plan}}, now: statusTime(),
	})
	got.Conditions = nil
	want := v1alpha1.VMNetworkProfileStatus{
		ObservedGeneration: 3, MatchedVMs: 2, GovernedVMs: 2, VMsInForce: 1,
		Levers: []v1alpha1.LeverCount{
			{Lever: "Affinity", State: "InForce", Reason: "Applied", Count: 1},
			{Lever: "Affinity", State: "Pending", Reason: "AwaitingAgent", Count: 1},
			{Lever: "Shaping", State: "Idle", Reason: "NoRoom", Count: 1},
			{Lever: "Shaping", State: "InForce", Reason: "Applied", Count: 1},
		},
		Examples: []v1alpha1.VMExample{
			{Name: "b", Node: "n", Lever: "Affinity", State: "Pending", Reason: "AwaitingAgent", Message: "the agent of the VM's node has not acted on the plan yet"},
			{Name: "b", Node: "n", Lever: "Shaping", State: "Idle", Reason: "NoRoom"},
			{Name: "a", Node: "n", Lever: "Affinity", State: "InForce", Reason: "Applied"},
			{Name: "a", Node: "n", Lever: "Shaping", State: "InForce", Reason: "Applied"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProfileStatus(t *testing.T) {
	web := profileOf("web", "web", time.Hour)
	stopped := vmiOn("stopped", "web", "n")
	stopped.Status.Phase = virtv1.Succeeded
	plan := applied(planOf("n", true, "a", "b:SharedPreferred"), 2, "a", v1alpha1.LeverInForce, "Applied")
	view := profileView{
		disturbances: disturbances{}, floods: floods{},
		profiles: observe.NewProfiles([]v1alpha1.VMNetworkProfile{web}),
		vmis:     []virtv1.VirtualMachineInstance{vmiOn("a", "web", "n"), vmiOn("b", "web", "n"), vmiOn("c", "db", "n"), stopped},
		plans:    map[string]*indexedPlan{"n": {NodePlan: plan}},
		now:      statusTime(),
	}
	got := profileStatus(&web, view)
	got.Conditions = nil
	want := v1alpha1.VMNetworkProfileStatus{
		ObservedGeneration: 3, MatchedVMs: 2, GovernedVMs: 2, VMsInForce: 1,
		Levers: []v1alpha1.LeverCount{
			{Lever: "Affinity", State: "Blocked", Reason: "SharedPreferred", Count: 1},
			{Lever: "Affinity", State: "InForce", Reason: "Applied", Count: 1},
		},
		Examples: []v1alpha1.VMExample{
			{Name: "b", Node: "n", Lever: "Affinity", State: "Blocked", Reason: "SharedPreferred"},
			{Name: "a", Node: "n", Lever: "Affinity", State: "InForce", Reason: "Applied"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProfileConditions(t *testing.T) {
	invalid := profileOf("invalid", "web", time.Minute)
	invalid.Spec.Selector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}
	old, young := profileOf("old", "web", time.Hour), profileOf("young", "web", time.Minute)
	wider := profileOf("wider", "web", time.Minute)
	wider.Spec.Selector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}
	wishful := profileOf("wishful", "web", time.Hour)
	wishful.Spec.Bandwidth = &v1alpha1.BandwidthLimits{Floor: resource.NewQuantity(1, resource.DecimalSI)}
	wishful.Spec.LatencyBudget = &metav1.Duration{Duration: time.Millisecond}
	wishful.Spec.ServiceLevels = v1alpha1.ServiceLevels{MaxDropsPerMillion: ptr.To[int32](5), MinThroughputPercent: ptr.To[int32](95)}
	for name, tc := range map[string]struct {
		profile            v1alpha1.VMNetworkProfile
		others             []v1alpha1.VMNetworkProfile
		ready, overlapping string
		words              []string
	}{
		"governs":         {old, []v1alpha1.VMNetworkProfile{young}, "True Governing", "False NoOverlap", nil},
		"selects nothing": {profileOf("none", "misspelt", 0), nil, "False NoVMsMatched", "False NoOverlap", []string{"app=misspelt", "spec.template.metadata.labels", "namespace ns"}},
		"loses all":       {young, []v1alpha1.VMNetworkProfile{old}, "False OlderProfileWins", "True OlderProfileWins", []string{"VMNetworkProfile old", "VM a", "spec.selector"}},
		"wishes in vain": {wishful, nil, "True Governing", "False NoOverlap",
			[]string{
				"governs 1 of 1 matched VMs. This version does not act on: spec.bandwidth.floor without spec.group, " +
					"spec.serviceLevels.maxDropsPerMillion but by lever Buffering, spec.serviceLevels.minThroughputPercent but by lever Buffering",
			}},
		"loses some": {wider, []v1alpha1.VMNetworkProfile{old}, "True Governing", "True OlderProfileWins", []string{"VMNetworkProfile old", "such as a"}},
		"invalid":    {invalid, nil, "False InvalidSelector", "False NoOverlap", []string{"spec.selector", "Near"}},
	} {
		view := profileView{
			disturbances: disturbances{}, floods: floods{},
			profiles: observe.NewProfiles(append([]v1alpha1.VMNetworkProfile{tc.profile}, tc.others...)),
			vmis:     []virtv1.VirtualMachineInstance{vmiOn("a", "web", "n"), vmiOn("b", "db", "n")},
			now:      statusTime(),
		}
		status := profileStatus(&tc.profile, view)
		checkConditions(t, name, status.Conditions, map[string]string{"Ready": tc.ready, "Overlapping": tc.overlapping}, tc.words)
	}
}

// checkConditions also wants every word in some message, and the generation of
// the spec.
func checkConditions(t *testing.T, name string, conditions []metav1.Condition, want map[string]string, words []string) {
	t.Helper()
	var messages string
	for kind, text := range want {
		got := meta.FindStatusCondition(conditions, kind)
		if got == nil || fmt.Sprintf("%s %s", got.Status, got.Reason) != text || got.ObservedGeneration != 3 || !got.LastTransitionTime.Time.Equal(statusTime()) {
			t.Errorf("%s: condition %s is %+v, want %s", name, kind, got, text)
			continue
		}
		messages += got.Message + "\n"
	}
	for _, word := range words {
		if !strings.Contains(messages, word) {
			t.Errorf("%s: no message has %q:\n%s", name, word, messages)
		}
	}
}

func TestStatusIsStable(t *testing.T) {
	profile := profileOf("web", "web", time.Hour)
	view := profileView{
		disturbances: disturbances{}, floods: floods{},
		profiles: observe.NewProfiles([]v1alpha1.VMNetworkProfile{profile}),
		vmis:     []virtv1.VirtualMachineInstance{vmiOn("a", "web", "n")}, now: statusTime(),
	}
	profile.Status = profileStatus(&profile, view)
	view.now = statusTime().Add(time.Hour)
	if diff := cmp.Diff(profile.Status, profileStatus(&profile, view)); diff != "" {
		t.Errorf("time alone changes the status:\n%s", diff)
	}
}

func TestExamplesAreBounded(t *testing.T) {
	profile := profileOf("web", "web", time.Hour)
	view := profileView{disturbances: disturbances{}, floods: floods{}, profiles: observe.NewProfiles([]v1alpha1.VMNetworkProfile{profile}), now: statusTime()}
	for i := range 60 {
		view.vmis = append(view.vmis, vmiOn(fmt.Sprintf("vm-%02d", i), "web", "n"))
	}
	plan := planOf("n", true)
	for i := range 59 {
		name := fmt.Sprintf("vm-%02d", i)
		plan.Spec.VMs = append(plan.Spec.VMs, planOf("n", true, name).Spec.VMs...)
		applied(plan, 2, name, v1alpha1.LeverInForce, "Applied")
	}
	view.plans = map[string]*indexedPlan{"n": {NodePlan: plan}}
	status := profileStatus(&profile, view)
	if len(status.Examples) != maxExamples || status.Examples[0].Name != "vm-59" || status.VMsInForce != 59 {
		t.Errorf("%d examples, the first %+v, %d in force", len(status.Examples), status.Examples[0], status.VMsInForce)
	}
}
