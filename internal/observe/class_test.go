package observe

import (
	"testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify"
)

func TestClassOf(t *testing.T) {
	report := &v1alpha1.NodeReport{}
	if got := ClassOf(nil, "Mixed"); got != (verify.Class{}) {
		t.Errorf("without a report %+v", got)
	}
	report.Status.KernelVersion = "6.12.9-lts"
	if got := ClassOf(report, "Mixed"); got != (verify.Class{}) {
		t.Errorf("without a processor %+v", got)
	}
	report.Status.Topology.CPUModel = "C"
	want := verify.Class{CPUModel: "C", Kernel: "6.12", Workload: "Mixed"}
	if got := ClassOf(report, "Mixed"); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	report.Status.Topology.IdleStates = []v1alpha1.IdleState{{Name: "C1"}, {Name: "C6"}}
	want.Idle = "C6"
	if got := ClassOf(report, "Mixed"); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	report.Status.Topology.Clocks = &v1alpha1.Clocks{Governor: "powersave", FollowLoad: true}
	want.Clocks = "powersave/follows"
	if got := ClassOf(report, "Mixed"); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
