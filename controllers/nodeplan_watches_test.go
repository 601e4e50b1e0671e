package controllers

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
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
		was, is := vmiOn("a", "web", "n"), vmiOn("a", "web", "n")
		tc.change(&is)
		if got := vmiChanged().Update(event.UpdateEvent{ObjectOld: &was, ObjectNew: &is}); got != tc.want {
			t.Errorf("%s: passed %t, want %t", name, got, tc.want)
		}
	}
}
