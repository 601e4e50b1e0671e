//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

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

// pinned is satisfied when each vCPU has one CPU. Idle ones may share it.
func (m *machine) pinned(ctx context.Context) error {
	vcpus, err := m.vcpus(ctx)
	if err != nil {
		return err
	}
	for _, t := range vcpus {
		if _, err := strconv.Atoi(t.CPUs); err != nil {
			return fmt.Errorf("a vCPU of VM %s is not bound to one CPU, of all %+v", m.name, vcpus)
		}
	}
	return nil
}

// only is satisfied when the VM's single vCPU may run on just these CPUs.
func (m *machine) only(mask string) func(context.Context) error {
	return func(ctx context.Context) error {
		vcpus, err := m.vcpus(ctx)
		if err == nil && (len(vcpus) != 1 || vcpus[0].CPUs != mask) {
			err = fmt.Errorf("the vCPUs of VM %s are %+v, want one on %s", m.name, vcpus, mask)
		}
		return err
	}
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
	return m.unrestrictedIf(ctx, func(tasks.Thread) bool { return true })
}

// mainUnrestricted is satisfied when QEMU's main thread may run anywhere: it is never bound to
// less than a last-level cache, and the machine has one.
func (m *machine) mainUnrestricted(ctx context.Context) error {
	return m.unrestrictedIf(ctx, func(t tasks.Thread) bool { return strings.HasPrefix(t.Name, "qemu-") })
}

func (m *machine) unrestrictedIf(ctx context.Context, wanted func(tasks.Thread) bool) error {
	all, err := tasks.Threads(ctx, m.qemu)
	if err != nil {
		return err
	}
	found := 0
	for _, t := range all {
		if !wanted(t) {
			continue
		}
		if found++; t.CPUs != m.allCPUs {
			return fmt.Errorf("VM %s has thread %+v, want it on %s", m.name, t, m.allCPUs)
		}
	}
	if found == 0 {
		return fmt.Errorf("VM %s has no such thread among %+v", m.name, all)
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

// unsliced is satisfied when all threads have the kernel's default.
func (m *machine) unsliced(ctx context.Context) error {
	byDefault, err := tasks.DefaultSlice()
	if err != nil {
		return err
	}
	return m.sliced(ctx, byDefault)
}

// bind changes the mask of the VM's first vCPU, as an administrator would.
func (m *machine) bind(ctx context.Context, mask string) error {
	vcpus, err := m.vcpus(ctx)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "taskset", "--cpu-list", "--pid", mask, strconv.Itoa(vcpus[0].ID)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("bind thread %d to %s: %w: %s", vcpus[0].ID, mask, err, out)
	}
	return nil
}
