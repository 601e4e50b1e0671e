package linux

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Affinity implements host.Host.
func (h *Host) Affinity(thread host.TaskID) (units.CPUSet, error) {
	mask := unix.NewCPUSet(units.MaxCPUs)
	if err := unix.SchedGetaffinityDynamic(thread.TID, mask); err != nil {
		return units.CPUSet{}, fmt.Errorf("affinity of thread %d: %w", thread.TID, goneOr(err))
	}
	// Asked last: a number given to a new thread before the call above is seen.
	if err := h.check(thread); err != nil {
		return units.CPUSet{}, err
	}
	return fromMask(mask), nil
}

// SetAffinity implements host.Host.
func (h *Host) SetAffinity(thread host.TaskID, cpus units.CPUSet) error {
	mask := unix.NewCPUSet(units.MaxCPUs)
	for _, cpu := range cpus.CPUs() {
		mask.Set(cpu)
	}
	return h.writeAffinity(thread, mask, cpus.String())
}

// ClearAffinity implements host.Host. The mask has every CPU that there could
// be: the kernel keeps it as what was asked for, and a CPU that the cpuset
// gains later is in it.
func (h *Host) ClearAffinity(thread host.TaskID) error {
	mask := unix.NewCPUSet(units.MaxCPUs)
	mask.Fill()
	return h.writeAffinity(thread, mask, "all CPUs")
}

// writeAffinity checks the identity just before the write. Linux has no call
// that does both at once; between them the thread would have to end and its
// number to go once around, which takes as many new threads as pid_max.
func (h *Host) writeAffinity(thread host.TaskID, mask unix.CPUSetDynamic, what string) error {
	if err := h.check(thread); err != nil {
		return err
	}
	if err := unix.SchedSetaffinityDynamic(thread.TID, mask); err != nil {
		return fmt.Errorf("bind thread %d of process %d to %s: %w", thread.TID, thread.PID, what, goneOr(err))
	}
	return nil
}

// fromMask takes at most units.MaxCPUs bits: mask was made with that many.
func fromMask(mask unix.CPUSetDynamic) units.CPUSet {
	cpus := make([]int, 0, 64)
	left := mask.Count()
	for cpu := 0; left > 0; cpu++ {
		if mask.IsSet(cpu) {
			cpus = append(cpus, cpu)
			left--
		}
	}
	return units.NewCPUSet(cpus...)
}

// goneOr tells a task that ended from other failures.
func goneOr(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		return host.ErrGone
	}
	return err
}
