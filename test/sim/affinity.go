package sim

import (
	"fmt"
	"syscall"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Affinity implements host.Host.
func (h *Host) Affinity(id host.TaskID) (units.CPUSet, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, err := h.thread(id)
	if err != nil {
		return units.CPUSet{}, err
	}
	return h.classes.of(t.class).cpus, nil
}

// SetAffinity implements host.Host. Like the kernel it remembers what was asked
// for, and refuses a mask without a CPU.
func (h *Host) SetAffinity(id host.TaskID, cpus units.CPUSet) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, err := h.thread(id)
	if err != nil {
		return err
	}
	if cpus.Intersection(h.online).IsEmpty() {
		return fmt.Errorf("bind simulated thread %d of process %d to %s: %w", id.TID, id.PID, cpus, syscall.EINVAL)
	}
	t.asked = cpus
	h.restrict(t)
	return nil
}

// ClearAffinity implements host.Host.
func (h *Host) ClearAffinity(id host.TaskID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, err := h.thread(id)
	if err != nil {
		return err
	}
	t.asked = units.CPUSet{}
	h.restrict(t)
	return nil
}

// restrict computes where a thread may run: what it asked for, and all CPUs when that leaves nothing.
func (h *Host) restrict(t *thread) {
	set := h.online
	if in := t.asked.Intersection(set); !in.IsEmpty() {
		set = in
	}
	t.class = h.intern(set)
}

// intern returns the class of a set of CPUs. The caller holds the lock.
func (h *Host) intern(set units.CPUSet) int32 {
	if h.classes.full() {
		h.compact()
	}
	return h.classes.intern(set)
}

// compact forgets the sets of CPUs that no thread has any more.
func (h *Host) compact() {
	fresh := newClasses(h.topology)
	for _, v := range h.vms {
		for i := range v.threads {
			v.threads[i].class = fresh.intern(h.classes.of(v.threads[i].class).cpus)
		}
	}
	for i := range h.others {
		h.others[i].class = fresh.intern(h.classes.of(h.others[i].class).cpus)
	}
	h.classes = fresh
}

// thread finds a thread. The caller holds the lock.
func (h *Host) thread(id host.TaskID) (*thread, error) {
	if v, found := h.byPID[id.PID]; found {
		for i := range v.threads {
			if v.threads[i].id == id {
				return &v.threads[i], nil
			}
		}
	}
	return nil, fmt.Errorf("simulated thread %d of process %d: %w", id.TID, id.PID, host.ErrGone)
}
