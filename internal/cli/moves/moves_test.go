package moves

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

func TestTables(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	plan := &v1alpha1.PlacementPlan{
		Spec: v1alpha1.PlacementPlanSpec{
			Policy: "web", Mode: v1alpha1.ModeRecommend, Revision: "r-1", WattsBefore: "300", WattsAfter: "270.5",
			Moves: []v1alpha1.PlacementMove{
				{Namespace: "shop", Name: "db", From: "a", To: "b", Watts: "-2", Reason: "VMSuffers", Cost: v1alpha1.PlacementCost{Bytes: 3 << 30, Seconds: 450, Joules: 90}},
				{Namespace: "shop", Name: "web", From: "a", To: "c", Watts: "31.5", Reason: "SavesEnergy", Cost: v1alpha1.PlacementCost{Bytes: 1 << 30, Seconds: 150, BreaksConnections: true}},
			},
			Nodes: []v1alpha1.PlacementNode{
				{Name: "a", Before: v1alpha1.PlacementLoad{VMs: 2, CPUPercent: 41, Watts: "118"}, After: v1alpha1.PlacementLoad{Watts: "0"}},
				{Name: "b", Before: v1alpha1.PlacementLoad{VMs: 11, CPUPercent: 20}, After: v1alpha1.PlacementLoad{VMs: 12, CPUPercent: 31}},
			},
		},
		Status: v1alpha1.PlacementPlanStatus{
			Moves: []v1alpha1.PlacementOutcome{
				{Namespace: "shop", Name: "old", From: "c", To: "b", Phase: v1alpha1.PlacementSucceeded, Reason: "SavesEnergy", CreatedAt: metav1.NewTime(now.Add(-3 * time.Hour))},
				{Namespace: "shop", Name: "new", From: "a", To: "b", Phase: v1alpha1.PlacementFailed, Reason: "NoTargetPod", CreatedAt: metav1.NewTime(now.Add(-time.Minute))},
			},
			Stays: []v1alpha1.ReasonCount{{Reason: "NoBetterNode", Count: 7}},
			Hosts: []v1alpha1.HostStatus{
				{Node: "c", State: v1alpha1.HostOff, Since: &metav1.Time{Time: now.Add(-2 * time.Hour)}, Reason: "Empty"},
				{Node: "a", State: v1alpha1.HostOn, Reason: "PodsOnNode", Message: "the node runs pod ns/p"},
			},
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionHostsManaged, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonHostUnknown, Message: "Secret bmc/b does not exist"},
				{Type: v1alpha1.ConditionReady, Reason: v1alpha1.ReasonMovesPlanned},
				{Type: v1alpha1.ConditionMovesAllowed, Reason: v1alpha1.ReasonAwaitingApproval},
			},
		},
	}
	var out bytes.Buffer
	if _, err := show.Tables(&out, Of(plan, now), false); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"Moves of VMs by EnergyPolicy web:",
		"MODE REVISION WATTS-BEFORE WATTS-AFTER REASON MOVES-ALLOWED",
		"Recommend r-1 300 270 MovesPlanned AwaitingApproval",
		"",
		"Nodes before these moves, and after:",
		"NODE VMS-BEFORE VMS-AFTER CPU-BEFORE CPU-AFTER WATTS-BEFORE WATTS-AFTER",
		"a 2 0 41% 0% 118 0",
		"b 11 12 20% 31% <none> <none>",
		"",
		"Planned, in this order:",
		"NAMESPACE VM FROM TO SAVES-W REASON AT-MOST TCP",
		"shop db a b -2 VMSuffers 450s stay",
		"shop web a c 31.5 SavesEnergy 150s break",
		"",
		"Moves of the last day:",
		"AGE NAMESPACE VM FROM TO PHASE REASON",
		"60s shop new a b Failed NoTargetPod",
		"3h shop old c b Succeeded SavesEnergy",
		"",
		"VMs that stay:",
		"VMS REASON WHY NEXT",
		"7 NoBetterNode No other node is better for the VM. Nothing to do.",
		"",
		"Power of hosts (HostUnknown: Secret bmc/b does not exist):",
		"NODE STATE AGE REASON MESSAGE",
		"c Off 120m Empty <none>",
		"a On <none> PodsOnNode the node runs pod ns/p",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
}

func TestNothingKnown(t *testing.T) {
	got := Of(&v1alpha1.PlacementPlan{}, time.Time{})
	if got.WattsBefore != nil || got.Moves == nil || got.Made == nil || got.Nodes == nil || got.Stays == nil {
		t.Errorf("%+v: what is not known must be absent, and lists must be lists", got)
	}
}
