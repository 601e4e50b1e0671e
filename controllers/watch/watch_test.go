package watch

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

func TestVMIChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*virtv1.VirtualMachineInstance)
		want   bool
	}{
		"nothing":             {func(*virtv1.VirtualMachineInstance) {}, false},
		"the guest's news":    {func(v *virtv1.VirtualMachineInstance) { v.Status.GuestOSInfo.Name = "linux" }, false},
		"ended":               {func(v *virtv1.VirtualMachineInstance) { v.Status.Phase = virtv1.Succeeded }, true},
		"labelled":            {func(v *virtv1.VirtualMachineInstance) { v.Labels = map[string]string{"app": "db"} }, true},
		"a migration started": {func(v *virtv1.VirtualMachineInstance) { v.Status.ActivePods[types.UID("target")] = "m" }, true},
		// Both pods are still there when the VM runs on the target.
		"a migration ended": {func(v *virtv1.VirtualMachineInstance) { v.Status.NodeName = "m" }, true},
	} {
		was, is := controllertest.VMIOn("a", "web", "n"), controllertest.VMIOn("a", "web", "n")
		tc.change(&is)
		if got := VMIChanged().Update(event.UpdateEvent{ObjectOld: &was, ObjectNew: &is}); got != tc.want {
			t.Errorf("%s: passed %t, want %t", name, got, tc.want)
		}
	}
}

func TestReportChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.NodeReportStatus)
		want   bool
	}{
		"nothing": {func(*v1alpha1.NodeReportStatus) {}, false},
		"other figures": {func(s *v1alpha1.NodeReportStatus) {
			s.Power.Watts, s.ReportedAt.Time = ptr.To[int64](7), s.ReportedAt.Add(time.Minute)
		}, false},
		"the meter went": {func(s *v1alpha1.NodeReportStatus) { s.Power.Source = v1alpha1.PowerNone }, true},
		"a core came": {func(s *v1alpha1.NodeReportStatus) {
			s.Topology.CoreGroups = []v1alpha1.CoreGroup{{Cores: []string{"0"}}}
		}, true},
		"packets can be held": {func(s *v1alpha1.NodeReportStatus) {
			s.Capabilities = []v1alpha1.Capability{{Name: "Buffering", Available: true}}
		}, true},
		"another capability": {func(s *v1alpha1.NodeReportStatus) {
			s.Capabilities = []v1alpha1.Capability{{Name: "Other", Available: true}}
		}, false},
		"nothing reported": {func(s *v1alpha1.NodeReportStatus) { s.ReportedAt = &metav1.Time{} }, true},
	} {
		was, is := controllertest.ReportOf(v1alpha1.PowerRAPL, nil, 0, 1), controllertest.ReportOf(v1alpha1.PowerRAPL, nil, 0, 1)
		tc.change(&is.Status)
		if got := ReportChanged().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != tc.want {
			t.Errorf("%s: passed %t, want %t", name, got, tc.want)
		}
	}
}
