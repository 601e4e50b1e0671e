package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// only is satisfied when the VM's single vCPU may run on just these CPUs.
func (m *machine) only(mask string) func(context.Context) error {
	return func(ctx context.Context) error {
		masks, err := m.vcpuMasks(ctx)
		if err != nil {
			return err
		}
		if len(masks) != 1 || masks[0] != mask {
			return fmt.Errorf("the vCPUs may run on %q, want %s", masks, mask)
		}
		return nil
	}
}

// pinnedTo waits until the VM's single vCPU is pinned, and returns its CPU and
// another one.
func (f *fixture) pinnedTo(m *machine) (cpu, other string) {
	f.Helper()
	f.eventually("the plan is in force", f.applied(1))
	f.eventually("the vCPU is bound to one CPU", m.pinned)
	masks, err := m.vcpuMasks(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	if masks[0] == "0" {
		return "0", "1"
	}
	return masks[0], "0"
}

func TestPinsThatAnotherChangesTwiceAreContested(t *testing.T) {
	f := newFixture(t)
	web := f.startVM(f.newVM("web", 1))
	profile := f.profile("web")
	f.enforce()
	cpu, other := f.pinnedTo(web)
	for range 2 {
		f.eventually("the pin is there", web.only(cpu))
		if err := web.bind(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
	f.eventually("the plan's status reports the contest", func(ctx context.Context) error {
		plan, err := f.plan(ctx)
		if err != nil {
			return err
		}
		if len(plan.Status.VMs) != 1 {
			return fmt.Errorf("it has %d VMs", len(plan.Status.VMs))
		}
		if vm := plan.Status.VMs[0]; vm.State != v1alpha1.LeverBlocked || vm.Reason != v1alpha1.ReasonContested || vm.Message == "" {
			return fmt.Errorf("it says %+v", vm)
		}
		return nil
	})
	f.rounds(3)
	if err := web.only(other)(t.Context()); err != nil {
		t.Errorf("the contested thread was pinned again: %v", err)
	}
	f.delete(profile)
	f.eventually("the plan acts on nothing", f.applied(0))
	if err := web.only(other)(t.Context()); err != nil {
		t.Errorf("the revert touched the other's mask: %v", err)
	}
}

// bind changes the mask of the VM's single vCPU, as an admin would.
func (m *machine) bind(ctx context.Context, mask string) error {
	vcpu, err := m.thread(ctx, func(name string) bool { return name == "CPU 0/TCG" || name == "CPU 0/KVM" })
	if err != nil {
		return err
	}
	return taskset(ctx, vcpu.ID, mask)
}
