package agent

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// hasSlices reports whether this kernel has them.
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
	b.cluster.plan.Spec.VMs[0].SliceMicroseconds = &microseconds
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
		b.wantSliceApplied(v1alpha1.LeverBlocked, v1alpha1.ReasonSlicesUnsupported)
		return
	}
	stop := b.start()
	defer stop()
	b.want("the pin", b.one)
	b.wantSlice("the slice", 500*time.Microsecond)
	b.wantSliceApplied(v1alpha1.LeverInForce, v1alpha1.ReasonApplied)
	b.wantApplied(metav1.ConditionTrue, v1alpha1.ReasonApplied)
	b.rounds(2)
	if s := b.board.Latest(); s.InForce[v1alpha1.LeverSlice] != 1 || s.Changes[v1alpha1.LeverSlice] == 0 {
		t.Errorf("state %+v", s)
	}
	b.cluster.change(func() {
		b.cluster.plan = &v1alpha1.NodePlan{Spec: v1alpha1.NodePlanSpec{Apply: true, VMs: []v1alpha1.VMPlan{{
			VMReference:       v1alpha1.VMReference{PodUID: types.UID(b.pod.UID)},
			SliceMicroseconds: ptr.To(int32(20_000)),
		}}}}
	})
	b.wantSlice("that of another plan", 20*time.Millisecond)
	b.want("the pin to go", b.both())
	stop()
	b.wantSlice("the slice to go with the agent", 0)
}

func (b *bench) wantSliceApplied(state v1alpha1.LeverState, reason string) {
	b.Helper()
	hosttest.Eventually(b, "status of the slice "+reason, func() bool {
		b.cluster.mu.Lock()
		defer b.cluster.mu.Unlock()
		for i := range b.cluster.status.VMs {
			vm := &b.cluster.status.VMs[i]
			if vm.Lever == v1alpha1.LeverSlice && vm.State == state && vm.Reason == reason {
				return true
			}
		}
		return false
	})
}
