package handler

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// effects is what a step does to nodes, and the phase that it leaves.
type effects struct {
	Delay          time.Duration
	StartOn, EndOn string
	EndAs          corev1.PodPhase
	Phase          kubevirtv1.VirtualMachineInstancePhase
}

func vmiIn(phase kubevirtv1.VirtualMachineInstancePhase, change func(*kubevirtv1.VirtualMachineInstance)) *kubevirtv1.VirtualMachineInstance {
	vmi := &kubevirtv1.VirtualMachineInstance{}
	vmi.Status.Phase, vmi.Status.NodeName = phase, "a"
	if change != nil {
		change(vmi)
	}
	return vmi
}

func TestDecide(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	deleted := func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.DeletionTimestamp = &now }
	tests := map[string]struct {
		vmi   *kubevirtv1.VirtualMachineInstance
		fault VMFault
		want  *effects // nil: nothing to do
	}{
		"not ours yet":   {vmi: vmiIn(kubevirtv1.Scheduling, nil)},
		"final":          {vmi: vmiIn(kubevirtv1.Failed, deleted)},
		"running":        {vmi: vmiIn(kubevirtv1.Running, nil)},
		"handed over":    {vmi: vmiIn(kubevirtv1.Scheduled, nil), want: &effects{StartOn: "a", Phase: kubevirtv1.Running}},
		"deleted":        {vmi: vmiIn(kubevirtv1.Running, deleted), want: &effects{EndOn: "a", EndAs: corev1.PodSucceeded, Phase: kubevirtv1.Succeeded}},
		"deleted early":  {vmi: vmiIn(kubevirtv1.Scheduled, deleted), want: &effects{EndOn: "a", EndAs: corev1.PodSucceeded, Phase: kubevirtv1.Succeeded}},
		"never ready":    {vmi: vmiIn(kubevirtv1.Scheduled, nil), fault: VMFault{NeverReady: true}},
		"stuck, deleted": {vmi: vmiIn(kubevirtv1.Scheduled, deleted), fault: VMFault{NeverReady: true}, want: &effects{EndOn: "a", EndAs: corev1.PodSucceeded, Phase: kubevirtv1.Succeeded}},
		"late": {
			vmi: vmiIn(kubevirtv1.Scheduled, nil), fault: VMFault{StartDelay: time.Second},
			want: &effects{Delay: time.Second, StartOn: "a", Phase: kubevirtv1.Running},
		},
		"fails late": {
			vmi: vmiIn(kubevirtv1.Scheduled, nil), fault: VMFault{FailStart: true, StartDelay: time.Second},
			want: &effects{Delay: time.Second, EndOn: "a", EndAs: corev1.PodFailed, Phase: kubevirtv1.Failed},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			next := decide(test.vmi, test.fault)
			var got *effects
			if next.write != nil {
				next.write(test.vmi, now)
				got = &effects{next.delay, next.startOn, next.endOn, next.endAs, test.vmi.Status.Phase}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("step (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMigrationSteps follows a migration from virt-controller's hand-over to
// its end.
func TestMigrationSteps(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	vmi := vmiIn(kubevirtv1.Running, func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Labels = map[string]string{
			kubevirtv1.NodeNameLabel:                "a",
			kubevirtv1.MigrationTargetNodeNameLabel: "b",
		}
		vmi.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{MigrationUID: "m", TargetNode: "b"}
	})
	if next := decide(vmi, VMFault{NeverReadyMigration: true}); next.write != nil {
		t.Error("the target gets ready in spite of the fault")
	}
	var got []effects
	for next := decide(vmi, VMFault{}); next.write != nil; next = decide(vmi, VMFault{}) {
		next.write(vmi, now)
		got = append(got, effects{StartOn: next.startOn, EndOn: next.endOn, EndAs: next.endAs})
	}
	want := []effects{{}, {}, {StartOn: "b"}, {EndOn: "a", EndAs: corev1.PodSucceeded}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	state := vmi.Status.MigrationState
	if vmi.Status.NodeName != "b" || vmi.Labels[kubevirtv1.NodeNameLabel] != "b" || !state.Completed || state.Failed {
		t.Errorf("after the migration: node %q, labels %v, state %+v", vmi.Status.NodeName, vmi.Labels, state)
	}
}

func TestFailingMigrationStaysOnItsNode(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	vmi := vmiIn(kubevirtv1.Running, func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{
			MigrationUID: "m", TargetNode: "b", TargetNodeAddress: loopback, StartTimestamp: &now,
		}
	})
	next := decide(vmi, VMFault{FailMigration: true, MigrationDelay: time.Minute})
	if next.delay != time.Minute || next.startOn != "" || next.endOn != "" {
		t.Errorf("step = %+v, want only a write after a minute", next)
	}
	next.write(vmi, now)
	if !vmi.Status.MigrationState.Failed || vmi.Status.NodeName != "a" {
		t.Errorf("after the failure: node %q, state %+v", vmi.Status.NodeName, vmi.Status.MigrationState)
	}
}

func TestBridgeOnPodNetworkIsNotMigratable(t *testing.T) {
	for name, test := range map[string]struct {
		nic  kubevirtv1.InterfaceBindingMethod
		want corev1.ConditionStatus
	}{
		"bridge":     {kubevirtv1.InterfaceBindingMethod{Bridge: &kubevirtv1.InterfaceBridge{}}, corev1.ConditionFalse},
		"masquerade": {kubevirtv1.InterfaceBindingMethod{Masquerade: &kubevirtv1.InterfaceMasquerade{}}, corev1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := vmiIn(kubevirtv1.Scheduled, func(vmi *kubevirtv1.VirtualMachineInstance) {
				vmi.Spec.Networks = []kubevirtv1.Network{*kubevirtv1.DefaultPodNetwork()}
				vmi.Spec.Domain.Devices.Interfaces = []kubevirtv1.Interface{{Name: "default", InterfaceBindingMethod: test.nic}}
			})
			MarkVMIRunning(vmi, "192.0.2.1", metav1.Now())
			if got := vmi.Status.Conditions[0]; got.Type != kubevirtv1.VirtualMachineInstanceIsMigratable || got.Status != test.want {
				t.Errorf("condition = %+v, want LiveMigratable %s", got, test.want)
			}
		})
	}
}

func TestRemainingCountsFromTheFirstLook(t *testing.T) {
	f := newFaults()
	start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	next := step{delay: 3 * time.Second, waitFor: "start"}
	for _, test := range []struct{ after, want time.Duration }{
		{0, 3 * time.Second}, {time.Second, 2 * time.Second}, {4 * time.Second, -time.Second},
	} {
		if got := f.remaining("uid", next, start.Add(test.after)); got != test.want {
			t.Errorf("after %s: %s left, want %s", test.after, got, test.want)
		}
	}
	if got := f.remaining("uid", step{}, start); got != 0 {
		t.Errorf("a step without delay waits %s", got)
	}
}
