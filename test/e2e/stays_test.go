package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// vmPlan returns the plan of a VM.
func (f *fixture) vmPlan(ctx context.Context, m *machine) (*v1alpha1.VMPlan, error) {
	plan, err := f.plan(ctx)
	if err != nil {
		return nil, err
	}
	for i, vm := range plan.Spec.VMs {
		if vm.Namespace == m.vmi.Namespace && vm.Name == m.vmi.Name {
			return &plan.Spec.VMs[i], nil
		}
	}
	return nil, fmt.Errorf("the plan does not name VM %s: %s: %s", m.vmi.Name, plan.Spec.Reason, plan.Spec.Message)
}

func TestPinsStayWithinACpusetThatChanges(t *testing.T) {
	f := newFixture(t)
	every := asTaskset(allCPUs(t))
	web := f.startVM(f.newVM("web", 1))
	profile := f.profile("web")
	f.enforce()
	_, other := f.pinnedTo(web)

	// As the kubelet does when it gives the CPU to a Guaranteed pod.
	if err := web.sandbox.SetCPUSet(other); err != nil {
		t.Fatal(err)
	}
	f.eventually("the vCPU is where the cpuset lets it", web.only(other))
	f.eventually("the plan moved the pin into the cpuset", func(ctx context.Context) error {
		planned, err := f.vmPlan(ctx, web)
		if err != nil {
			return err
		}
		if planned.Affinity == nil || len(planned.Affinity.VCPUs) != 1 || planned.Affinity.VCPUs[0].CPUs != other {
			return fmt.Errorf("it says %+v", planned)
		}
		return nil
	})
	f.eventually("the plan is in force", f.applied(1))

	if err := web.sandbox.SetCPUSet(allCPUs(t)); err != nil {
		t.Fatal(err)
	}
	f.pinnedTo(web)
	f.eventually("QEMU's main thread has its whole cache again", func(ctx context.Context) error {
		return web.mainUnrestricted(ctx, every)
	})

	// Pins are undone while the cpuset is small: a mask that was written back as it was read
	// would not follow when it grows.
	if err := web.sandbox.SetCPUSet(other); err != nil {
		t.Fatal(err)
	}
	f.eventually("the vCPU is where the cpuset lets it", web.only(other))
	f.delete(profile)
	f.eventually("the plan acts on nothing", f.applied(0))
	if err := web.sandbox.SetCPUSet(allCPUs(t)); err != nil {
		t.Fatal(err)
	}
	f.eventually("all threads follow the grown cpuset", web.unrestricted(every))
}
