package agent

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/host/linux"
)

// hasSlices tells whether this kernel has them.
func hasSlices(t *testing.T) bool {
	t.Helper()
	h, err := linux.New(linux.Options{ProcRoot: "/proc", SysRoot: "/sys"})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	_, err = h.Slice(hosttest.StartVM(t, "shop", "probe").ID())
	if err != nil && !errors.Is(err, host.ErrUnsupported) {
		t.Fatal(err)
	}
	return err == nil
}

func newSliceBench(t *testing.T, microseconds int32) *bench {
	b := newBench(t)
	b.cluster.plan.Spec.VMs[0].Slice = &v1alpha1.SliceAction{Microseconds: microseconds}
	return b
}

func (b *bench) wantSlice(what string, slice time.Duration) {
	b.Helper()
	hosttest.Eventually(b, what, func() bool {
		got, err := b.host.Slice(b.vcpu)
		if err != nil {
			b.Fatal(err)
		}
		return got == slice
	})
}

func TestSlicesAreFollowedAndUndoneAtTheEnd(t *testing.T) {
	b := newSliceBench(t, 500)
	if !hasSlices(t) {
		stop := b.start()
		defer stop()
		b.want("the pin", b.one)
		b.wantSliceApplied(v1alpha1.LeverBlocked, v1alpha1.ReasonSlicesUnsupported, 0)
		return
	}
	stop := b.start()
	defer stop()
	b.want("the pin", b.one)
	b.wantSlice("the slice", 500*time.Microsecond)
	b.wantSliceApplied(v1alpha1.LeverInForce, v1alpha1.ReasonApplied, 500)
	b.wantApplied(metav1.ConditionTrue, v1alpha1.ReasonApplied)
	b.rounds(2)
	if s := b.board.Latest(); s.Sliced != 1 || s.SlicedThreads == 0 || s.SliceWrites == 0 {
		t.Errorf("state %+v", s)
	}
	b.cluster.change(func() {
		b.cluster.plan = &v1alpha1.NodePlan{Spec: v1alpha1.NodePlanSpec{Apply: true, VMs: []v1alpha1.VMPlan{{
			VMReference: v1alpha1.VMReference{PodUID: types.UID(b.pod.UID)},
			Slice:       &v1alpha1.SliceAction{Microseconds: 20_000},
		}}}}
	})
	b.wantSlice("that of another plan", 20*time.Millisecond)
	b.want("the pin to go", b.both())
	stop()
	b.wantSlice("the slice to go with the agent", 0)
}

func (b *bench) wantSliceApplied(state v1alpha1.LeverState, reason string, microseconds int32) {
	b.Helper()
	hosttest.Eventually(b, "status of the slice "+reason, func() bool {
		b.cluster.mu.Lock()
		defer b.cluster.mu.Unlock()
		for i := range b.cluster.status.VMs {
			vm := &b.cluster.status.VMs[i]
			if vm.Lever == v1alpha1.LeverSlice && vm.State == state && vm.Reason == reason {
				return microseconds == 0 || vm.SliceMicroseconds != nil && *vm.SliceMicroseconds == microseconds
			}
		}
		return false
	})
}

// An agent that was killed is succeeded by another, or by the restore command.
func TestSlicesOfAKilledAgent(t *testing.T) {
	if !hasSlices(t) {
		return // the test above looks at what is then
	}
	b := newSliceBench(t, 3000)
	crashed := b.start()
	b.wantSlice("the slice", 3*time.Millisecond)
	b.want("the pin", b.one)
	b.crash(crashed)
	if err := b.host.SetSlice(b.vcpu, 3*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	facts, err := b.host.Facts()
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(b.dir, facts.BootID)
	if err != nil {
		t.Fatal(err)
	}
	restored, err := Restore(b.host, j)
	if err != nil || restored.Slices == 0 || restored.Threads == 0 {
		t.Errorf("restored %+v, %v", restored, err)
	}
	b.wantSlice("the slice to be gone", 0)
	b.want("the pin to be gone", b.both())
	if again, err := Restore(b.host, j); err != nil || again != (Restored{}) {
		t.Errorf("restored again %+v, %v", again, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}
