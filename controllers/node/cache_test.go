package node

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/controllers/objects"
)

// TestGuestsOfTheCache: what the guard reads of a guest is the same of the object that the
// cache keeps.
func TestGuestsOfTheCache(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC))
	ready := virtv1.VirtualMachineInstanceCondition{
		Type: virtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue, LastTransitionTime: since, Message: "left out",
	}
	for name, change := range map[string]func(*virtv1.VirtualMachineInstance){
		"ready":     func(*virtv1.VirtualMachineInstance) {},
		"not ready": func(vmi *virtv1.VirtualMachineInstance) { vmi.Status.Conditions[0].Status = corev1.ConditionFalse },
		"says not":  func(vmi *virtv1.VirtualMachineInstance) { vmi.Status.Conditions = nil },
		"paused": func(vmi *virtv1.VirtualMachineInstance) {
			paused := virtv1.VirtualMachineInstanceCondition{Type: virtv1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue}
			vmi.Status.Conditions = append(vmi.Status.Conditions, paused)
		},
		"migrates": func(vmi *virtv1.VirtualMachineInstance) {
			vmi.Status.MigrationState = &virtv1.VirtualMachineInstanceMigrationState{TargetNode: "b"}
		},
		"migrated": func(vmi *virtv1.VirtualMachineInstance) {
			vmi.Status.MigrationState = &virtv1.VirtualMachineInstanceMigrationState{TargetNode: "b", Completed: true}
		},
		"is evacuated": func(vmi *virtv1.VirtualMachineInstance) { vmi.Status.EvacuationNodeName = "a" },
		"ends":         func(vmi *virtv1.VirtualMachineInstance) { vmi.DeletionTimestamp = ptr.To(since) },
		"has ended":    func(vmi *virtv1.VirtualMachineInstance) { vmi.Status.Phase = virtv1.Succeeded },
	} {
		vmi := &virtv1.VirtualMachineInstance{}
		vmi.Status.Phase = virtv1.Running
		vmi.Status.Conditions = []virtv1.VirtualMachineInstanceCondition{ready}
		change(vmi)
		kept, err := objects.Strip(vmi)
		if err != nil {
			t.Fatal(err)
		}
		want, wantReported := guestOf(vmi)
		got, reported := guestOf(kept.(*virtv1.VirtualMachineInstance))
		if diff := cmp.Diff(want, got); diff != "" || reported != wantReported {
			t.Errorf("%s: reported %t, want %t, -object +cache:\n%s", name, reported, wantReported, diff)
		}
	}
}
