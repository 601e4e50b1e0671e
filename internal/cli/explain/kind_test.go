package explain

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/figures"
)

// policy has experiments on two kinds of nodes, on groups, and on single ones of both.
func policy() *v1alpha1.EnergyPolicy {
	p := &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	for _, class := range []string{
		"cpu=Xeon;kernel=6.12;idle=C6;workload=Mixed", "cpu=Xeon;kernel=6.12;idle=C6;clocks=powersave/follows;workload=Throughput",
		"cpu=Xeon;kernel=6.1;idle=C6;workload=Mixed", "cpu=EPYC;kernel=6.12;idle=C2;workload=Mixed", "only a", "only b",
	} {
		p.Status.Trials = append(p.Status.Trials, v1alpha1.LeverTrial{Lever: v1alpha1.LeverAffinity, Class: class})
	}
	for _, class := range []string{"cpu=Xeon;kernel=6.12;idle=C6;workload=Group", "only shop/web", "only shop/api"} {
		p.Status.Trials = append(p.Status.Trials, v1alpha1.LeverTrial{Lever: v1alpha1.LeverTrafficShare, Class: class})
	}
	return p
}

func nodeReport(clocks *v1alpha1.Clocks) *v1alpha1.NodeReport {
	r := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	r.Status.KernelVersion = "6.12.9"
	r.Status.Topology = v1alpha1.Topology{CPUModel: "Xeon", IdleStates: []v1alpha1.IdleState{{Name: "C6"}}, Clocks: clocks}
	return r
}

// TestStandingsAreOfKind: what was tried on other hardware, or on another group, is no
// alternative here.
func TestStandingsAreOfKind(t *testing.T) {
	group := &v1alpha1.VMNetworkProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1alpha1.VMNetworkProfileSpec{Group: &v1alpha1.TrafficGroup{Name: "web"}}}
	ofVM := vm()
	ofVM.Policy, ofVM.Report = policy(), nodeReport(nil)
	ofMember := vm()
	ofMember.Policy, ofMember.Report = policy(), nodeReport(nil)
	ofMember.Profiles[0].Spec.Group = group.Spec.Group
	own := []string{"Affinity cpu=Xeon;kernel=6.12;idle=C6;workload=Mixed", "Affinity cpu=Xeon;kernel=6.12;idle=C6;clocks=powersave/follows;workload=Throughput", "Affinity only a"}
	groups := []string{"TrafficShare cpu=Xeon;kernel=6.12;idle=C6;workload=Group", "TrafficShare only shop/web"}
	for name, tc := range map[string]struct {
		of   *Explanation
		want []string
	}{
		"node":             {Node(NodeInput{Name: "a", Report: nodeReport(nil), Policy: policy()}, now()), own},
		"node with clocks": {Node(NodeInput{Name: "a", Report: nodeReport(&v1alpha1.Clocks{Governor: "powersave", FollowLoad: true}), Policy: policy()}, now()), own[1:]},
		"silent node": {Node(NodeInput{Name: "a", Policy: policy()}, now()), []string{
			own[0], own[1], "Affinity cpu=Xeon;kernel=6.1;idle=C6;workload=Mixed", "Affinity cpu=EPYC;kernel=6.12;idle=C2;workload=Mixed", own[2],
		}},
		"VM":             {VM(ofVM, now()), own},
		"VM of a group":  {VM(ofMember, now()), append(append([]string{}, own...), groups...)},
		"group":          {Group(group, policy(), nil, now()), groups},
		"without policy": {Node(NodeInput{Name: "a"}, now()), nil},
	} {
		var got []string
		for _, s := range tc.of.Standings {
			got = append(got, string(s.Lever)+" "+s.Class)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestObserve: that the mode is Observe is said once for all levers, and nothing is said twice.
func TestObserve(t *testing.T) {
	const message = "the policy's mode is Observe: nothing is changed"
	in := vm()
	in.Plan.Spec.Mode, in.Plan.Spec.Apply, in.Plan.Spec.Reason, in.Plan.Spec.Message = v1alpha1.ModeObserve, false, v1alpha1.ReasonObserveOnly, message
	in.Plan.Spec.VMs[0].Affinity, in.Plan.Spec.VMs[0].Reasons, in.Plan.Status, in.Plan.Spec.Withdrawn = nil, nil, v1alpha1.NodePlanStatus{
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: "NotToBeApplied", Message: "the plan is not to be applied: nothing is changed"}},
	}, nil
	for _, lever := range []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverBuffering, v1alpha1.LeverShaping} {
		in.Plan.Spec.VMs[0].Reasons = append(in.Plan.Spec.VMs[0].Reasons, v1alpha1.PlanReason{Lever: lever, Reason: v1alpha1.ReasonObserveOnly, Message: message})
	}
	node := Node(NodeInput{Name: "a", Plan: in.Plan, Energy: Energy{Now: &figures.Detail{Potential: []figures.LeverWatts{{Lever: v1alpha1.LeverAffinity, Watts: 12.5}}}}}, now())
	for name, e := range map[string]*Explanation{"VM": VM(in, now()), "node": node} {
		why := e.why()
		if len(why.Rows) != 1 || why.Rows[0][0] != "Affinity, Slice, Buffering, Shaping" {
			t.Errorf("%s: why %q, want the same words for all levers once", name, why.Rows)
		}
		for _, row := range why.Rows {
			if strings.Contains(row[1], message) {
				t.Errorf("%s: %q says that of the mode twice", name, row[1])
			}
		}
		for _, input := range e.Inputs {
			if strings.Contains(input.Value, message) || input.Name == "agent says" {
				t.Errorf("%s: %s %q says again what was said", name, input.Name, input.Value)
			}
		}
	}
	tables := node.Tables()
	if diff := cmp.Diff([][]string{{"Affinity", "12.5", "<none>", "it would save"}}, tables[len(tables)-2].Rows); diff != "" {
		t.Errorf("potential of the node (-want +got):\n%s", diff)
	}
}
