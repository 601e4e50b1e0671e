package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

// sliced is satisfied when all threads of the VM have a slice, by the kernel.
func (m *machine) sliced(slice time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		all, err := stack.Threads(ctx, m.sandbox.QEMUPID())
		if err != nil {
			return err
		}
		for _, t := range all {
			// The set value differs from the default by less than a microsecond.
			if got := t.Slice.Truncate(time.Microsecond); got != slice.Truncate(time.Microsecond) {
				return fmt.Errorf("thread %d %q of VM %s has slice %v, want %v", t.ID, t.Name, m.vmi.Name, t.Slice, slice)
			}
		}
		// The main loop and a vCPU at least.
		if len(all) < 2 {
			return fmt.Errorf("QEMU of VM %s has %d threads: %+v", m.vmi.Name, len(all), all)
		}
		return nil
	}
}

// unsliced is satisfied when all threads have the kernel's default.
func (m *machine) unsliced(ctx context.Context) error {
	byDefault, err := stack.DefaultSlice()
	if err != nil {
		return err
	}
	return m.sliced(byDefault)(ctx)
}

// lever is what the plan's status says of a VM's lever.
func (f *fixture) lever(ctx context.Context, m *machine, lever v1alpha1.Lever) (*v1alpha1.VMApplied, error) {
	plan, err := f.plan(ctx)
	if err != nil {
		return nil, err
	}
	for i, vm := range plan.Status.VMs {
		if vm.Namespace == m.vmi.Namespace && vm.Name == m.vmi.Name && vm.Lever == lever {
			return &plan.Status.VMs[i], nil
		}
	}
	return nil, fmt.Errorf("the status says nothing of lever %s of VM %s: %+v", lever, m.vmi.Name, plan.Status.VMs)
}

// sliceReported is satisfied when the plan's status says that a VM's slice was read back.
func (f *fixture) sliceReported(m *machine) func(context.Context) error {
	return func(ctx context.Context) error {
		vm, err := f.lever(ctx, m, v1alpha1.LeverSlice)
		if err != nil {
			return err
		}
		if vm.State != v1alpha1.LeverInForce {
			return fmt.Errorf("the status says %+v", vm)
		}
		return nil
	}
}
