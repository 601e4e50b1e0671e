package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
)

const (
	// defaultSlice is that of a thread whose slice nobody set, in seconds.
	defaultSlice = 3e-3
	// shortestSlice and longestSlice are the kernel's bounds.
	shortestSlice, longestSlice = 100 * time.Microsecond, 100 * time.Millisecond
)

// Slice implements host.Host.
func (h *Host) Slice(id host.TaskID) (time.Duration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, err := h.sliced(id)
	if err != nil {
		return 0, err
	}
	return duration(t.asks), nil
}

// SetSlice implements host.Host.
func (h *Host) SetSlice(id host.TaskID, slice time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, err := h.sliced(id)
	if err != nil {
		return err
	}
	if slice > 0 {
		t.asks = min(max(slice, shortestSlice), longestSlice).Seconds()
		t.slice = t.asks
	} else {
		t.asks, t.slice = 0, defaultSlice
	}
	return nil
}

// sliced finds a thread that may have a slice. The caller holds the lock.
func (h *Host) sliced(id host.TaskID) (*thread, error) {
	t, err := h.thread(id)
	if err != nil {
		return nil, err
	}
	if h.cfg.NoSlices {
		return nil, fmt.Errorf("slice of simulated thread %d of process %d: the kernel has none: %w", id.TID, id.PID, host.ErrUnsupported)
	}
	return t, nil
}

// meanSlices computes the mean slice of what runs on each class's CPUs.
func (h *Host) meanSlices() {
	plain := true
	for i := range h.classes.list {
		k := &h.classes.list[i]
		k.slice, k.turns = defaultSlice, 1/defaultSlice
		if math.Abs(k.sliced-k.demand*defaultSlice) > 1e-9*k.demand {
			plain = false
		}
	}
	if plain {
		return
	}
	sums := h.cpus.slices
	clear(sums)
	for i := range h.classes.list {
		if k := &h.classes.list[i]; k.demand > 0 {
			for j, cpu := range k.list {
				sums[cpu] += k.spread[j] * k.sliced / k.demand
			}
		}
	}
	for i := range h.classes.list {
		k := &h.classes.list[i]
		sum := 0.0
		for _, cpu := range k.list {
			sum += sums[cpu]
		}
		if k.demand > 0 && sum > 0 {
			k.slice, k.turns = sum/k.crowding, k.crowding/sum
		}
	}
}

// promptness is by how much longer than a thread of the mean slice one of another
// waits for its CPUs: less than in proportion when its own is shorter, because it
// then also preempts what runs.
func (k *class) promptness(slice float64) float64 {
	relative := slice / k.slice
	return relative * min(1, relative)
}
