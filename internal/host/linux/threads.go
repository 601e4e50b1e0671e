package linux

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

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
	h.mu.Lock()
	defer h.mu.Unlock()
	pid := thread.PID
	if worker := h.workers[pid]; worker != nil {
		pid = worker.owner
	}
	if p := h.byPID[pid]; p != nil {
		p.changing = true
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

// goneOr returns ErrGone for errors of a task that ended.
func goneOr(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		return host.ErrGone
	}
	return err
}

// sliceMark is added to each slice that is set. The kernel does not distinguish a slice
// that was set from its own default; with the mark they differ, for the default
// is a whole number of microseconds.
const sliceMark = time.Nanosecond

// Slice implements host.Host.
func (h *Host) Slice(thread host.TaskID) (time.Duration, error) {
	attr, err := h.schedule(thread)
	if err != nil {
		return 0, err
	}
	slice := time.Duration(attr.Runtime)
	isDefault, err := h.slices.isDefault(slice)
	if err != nil {
		return 0, err
	}
	// Asked last: a number given to a new thread before the calls above is seen.
	if err := h.check(thread); err != nil {
		return 0, err
	}
	if isDefault {
		return 0, nil
	}
	return slice.Truncate(time.Microsecond), nil
}

// SetSlice implements host.Host.
func (h *Host) SetSlice(thread host.TaskID, slice time.Duration) error {
	if err := h.check(thread); err != nil {
		return err
	}
	attr, err := h.schedule(thread)
	if err != nil {
		return err
	}
	attr.Runtime = 0
	if slice > 0 {
		attr.Runtime = uint64(slice.Truncate(time.Microsecond) + sliceMark)
	}
	// What else there is stays: limits of use are kept when their flags are not set.
	attr.Flags &= unix.SCHED_FLAG_RESET_ON_FORK
	attr.Size = unix.SizeofSchedAttr
	if err := unix.SchedSetAttr(thread.TID, attr, 0); err != nil {
		return fmt.Errorf("set slice %v of thread %d of process %d: %w", slice, thread.TID, thread.PID, goneOr(err))
	}
	return nil
}

// schedule reads how a thread is scheduled. ErrUnsupported when that is not by
// slices: a kernel that has them shows one for each thread of these policies.
func (h *Host) schedule(thread host.TaskID) (*unix.SchedAttr, error) {
	attr, err := unix.SchedGetAttr(thread.TID, 0)
	if err != nil {
		return nil, fmt.Errorf("scheduling of thread %d of process %d: %w", thread.TID, thread.PID, goneOr(err))
	}
	if attr.Policy != unix.SCHED_NORMAL && attr.Policy != unix.SCHED_BATCH {
		return nil, fmt.Errorf("thread %d of process %d has scheduling policy %d, which knows no slices: %w",
			thread.TID, thread.PID, attr.Policy, host.ErrUnsupported)
	}
	if attr.Runtime == 0 {
		return nil, fmt.Errorf("slices of threads need Linux 6.12: %w", host.ErrUnsupported)
	}
	return attr, nil
}

// sliceDefault caches the slice of threads that nobody gave one. It changes when
// CPUs come or go, and by the admin's hand.
type sliceDefault struct {
	mu    sync.Mutex
	value time.Duration
	// asked is when, in ticks since boot.
	asked uint64
}

// isDefault returns true if a slice is the kernel's default. A slice that is not
// has the default asked for again, at most once a second.
func (d *sliceDefault) isDefault(slice time.Duration) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slice == d.value {
		return true, nil
	}
	now, err := uptime()
	if err != nil {
		return false, err
	}
	if d.value == 0 || now-d.asked >= host.TicksPerSecond {
		if d.value, err = defaultSlice(); err != nil {
			return false, err
		}
		d.asked = now
	}
	return slice == d.value, nil
}

// defaultSlice resets the slice of a thread of its own and reads which it gets instead. This process's other threads may have been given one.
func defaultSlice() (time.Duration, error) {
	var slice time.Duration
	err := onThread(func() error {
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr}
		if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
			return fmt.Errorf("reset a scheduler slice: %w", err)
		}
		got, err := unix.SchedGetAttr(0, 0)
		if err != nil {
			return fmt.Errorf("read a scheduler slice: %w", err)
		}
		slice = time.Duration(got.Runtime)
		return nil
	})
	return slice, err
}

// onThread works on a thread of its own, which ends with the work.
func onThread(do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		result <- do()
	}()
	return <-result
}
