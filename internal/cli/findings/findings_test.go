package findings

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
)

func TestFindings(t *testing.T) {
	policy := func(name string, findings ...v1alpha1.Finding) v1alpha1.EnergyPolicy {
		return v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.EnergyPolicyStatus{Findings: findings}}
	}
	f := &facts.Facts{Policies: []v1alpha1.EnergyPolicy{
		policy("web",
			v1alpha1.Finding{Reason: "SleepHeld", Count: 4, Objects: []string{"Node/a", "Node/b", "Node/c", "Node/d"}, Message: "seen", Watts: ptr.To[int64](50), Basis: v1alpha1.BasisModelled, Remedy: "end it", ChangedBy: v1alpha1.FindingOwnerClusterAdmin},
			v1alpha1.Finding{Reason: "CPULimit", Count: 1, Objects: []string{"VirtualMachineInstance/shop/a"}, LostCores: "1.5", Remedy: "raise it", ChangedBy: v1alpha1.FindingOwnerVMOwner},
		),
		policy("none"),
		policy("lab", v1alpha1.Finding{Reason: "FixedClock", Count: 1, Objects: []string{"Node/x"}, Remedy: "set it", ChangedBy: v1alpha1.FindingOwnerClusterAdmin}),
	}}
	want := [][]string{
		{"SleepHeld", "4", "50 W Modelled", "ClusterAdmin", "end it", "Node/a, Node/b, Node/c and 1 more", "seen", "web"},
		{"CPULimit", "1", "1.5 CPUs", "VMOwner", "raise it", "VirtualMachineInstance/shop/a", "", "web"},
		{"FixedClock", "1", "not known", "ClusterAdmin", "set it", "Node/x", "", "lab"},
	}
	if diff := cmp.Diff(want, Of(f).Tables()[0].Rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[2:], Of(f, "lab", "none").Tables()[0].Rows); diff != "" {
		t.Errorf("of one policy (-want +got):\n%s", diff)
	}
	if items := Of(f, "none").Items; items == nil || len(items) != 0 {
		t.Errorf("%+v of a policy without findings", items)
	}
}
