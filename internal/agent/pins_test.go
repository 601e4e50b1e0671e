package agent

import (
	"testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// wantVM waits until the status of the plan says this of the VM's pins, and nothing of other VMs.
func (b *bench) wantVM(state v1alpha1.LeverState, reason string) {
	b.Helper()
	hosttest.Eventually(b, "status of the pins "+reason, func() bool {
		b.cluster.mu.Lock()
		defer b.cluster.mu.Unlock()
		vms := b.cluster.status.VMs
		return len(vms) == 1 && vms[0].Lever == v1alpha1.LeverAffinity && vms[0].State == state && vms[0].Reason == reason
	})
}

// Pins that another changes twice are left to the other, also when the plan goes.
func TestContestedPinsAreLeftAlone(t *testing.T) {
	b := newBench(t)
	stop := b.start()
	defer stop()
	for range 2 {
		b.want("the pin", b.one)
		b.wantVM(v1alpha1.LeverInForce, v1alpha1.ReasonApplied)
		b.rounds(2) // the round that pinned is over
		b.bind(b.other)
	}
	b.wantVM(v1alpha1.LeverBlocked, v1alpha1.ReasonContested)
	b.rounds(3)
	b.want("the other's mask to stay", b.other)
	b.cluster.change(func() { b.cluster.plan = nil })
	b.rounds(3)
	b.want("the other's mask to stay without a plan", b.other)
	stop()
	b.want("the other's mask to stay without an agent", b.other)
}

// A vCPU that is plugged into a running VM is pinned as planned, and reverted like those before it.
func TestVCPUThatIsPluggedIn(t *testing.T) {
	b := newBench(t)
	pins := &b.cluster.plan.Spec.VMs[0].Affinity.VCPUs
	*pins = append(*pins, v1alpha1.VCPUPin{VCPU: 1, CPUs: b.other.String()})
	stop := b.start()
	defer stop()
	b.want("the pin", b.one)
	b.wantVM(v1alpha1.LeverPending, "NotRunning")
	first := b.vcpu
	plugged := b.vm.Thread("CPU 1/TCG")
	b.vcpu = plugged
	b.want("the vCPU that was plugged in to be pinned", b.other)
	b.wantVM(v1alpha1.LeverInForce, v1alpha1.ReasonApplied)
	b.cluster.change(func() { b.cluster.plan = nil })
	b.want("its pin to go with the plan", b.both())
	b.vcpu = first
	b.want("the first vCPU's pin to go with the plan", b.both())
}
