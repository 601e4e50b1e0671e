//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/internal/planner/pools"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/env/tasks"
)

func isVCPU(t tasks.Thread) bool { return strings.HasPrefix(t.Name, "CPU ") }

// vcpus are the vCPUs' threads, by index.
func (m *machine) vcpus(ctx context.Context) ([]tasks.Thread, error) {
	all, err := tasks.Threads(ctx, m.qemu)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t tasks.Thread) bool { return !isVCPU(t) })
	if len(all) == 0 {
		return nil, fmt.Errorf("VM %s has no vCPU thread", m.name)
	}
	slices.SortFunc(all, func(a, b tasks.Thread) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// within is satisfied when the VM's vCPUs may run on no other CPUs than these.
func (m *machine) within(ctx context.Context, cpus units.CPUSet) error {
	vcpus, err := m.vcpus(ctx)
	if err != nil {
		return err
	}
	for _, t := range vcpus {
		got, err := units.ParseCPUSet(t.CPUs)
		if err != nil {
			return err
		}
		if got.IsEmpty() || !got.IsSubsetOf(cpus) {
			return fmt.Errorf("VM %s has vCPU %+v, want it within %s", m.name, t, cpus)
		}
	}
	return nil
}

// unrestricted is satisfied when all threads may run anywhere.
func (m *machine) unrestricted(ctx context.Context) error {
	all, err := tasks.Threads(ctx, m.qemu)
	if err != nil {
		return err
	}
	for _, t := range all {
		if t.CPUs != m.allCPUs {
			return fmt.Errorf("VM %s has thread %+v, want it on %s", m.name, t, m.allCPUs)
		}
	}
	return nil
}

// sliced is satisfied when all threads of the VM have a slice, by the kernel.
func (m *machine) sliced(ctx context.Context, slice time.Duration) error {
	all, err := tasks.Threads(ctx, m.qemu)
	if err != nil {
		return err
	}
	for _, t := range all {
		// The set value differs from the default by less than a microsecond.
		if got := t.Slice.Truncate(time.Microsecond); got != slice.Truncate(time.Microsecond) {
			return fmt.Errorf("VM %s has thread %+v, want slice %v", m.name, t, slice)
		}
	}
	// The main loop and a vCPU at least.
	if len(all) < 2 {
		return fmt.Errorf("VM %s has %d threads: %+v", m.name, len(all), all)
	}
	return nil
}

// networkSliced is satisfied when all threads of the VM have the slice of network VMs.
func (m *machine) networkSliced(ctx context.Context) error { return m.sliced(ctx, pools.NetworkSlice) }

// unsliced is satisfied when all threads have the kernel's default.
func (m *machine) unsliced(ctx context.Context) error {
	byDefault, err := tasks.DefaultSlice()
	if err != nil {
		return err
	}
	return m.sliced(ctx, byDefault)
}
