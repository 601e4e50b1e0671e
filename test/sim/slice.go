package sim

import (
	"fmt"
	"math"
	"slices"
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

// orderSlices computes how often what runs on each class's CPUs takes turns and, where threads have
// different slices, how much of those CPUs is for threads with slices up to each length.
func (h *Host) orderSlices() {
	h.listLengths()
	list := h.classes.list
	for i := range list {
		list[i].turns = 1 / defaultSlice
		list[i].bySlice = slices.Grow(list[i].bySlice[:0], len(h.classes.lengths))[:len(h.classes.lengths)]
		clear(list[i].bySlice)
	}
	if len(h.classes.lengths) == 0 || len(h.classes.lengths) == 1 && h.classes.lengths[0] == defaultSlice {
		return
	}
	want := func(class int32, slice, demand float64) {
		if at, known := slices.BinarySearch(h.classes.lengths, slice); known {
			h.classes.of(class).bySlice[at] += demand
		}
	}
	for _, v := range h.vms {
		for i := range v.threads {
			want(v.threads[i].class, v.threads[i].slice, v.threads[i].demand)
		}
	}
	for i := range h.others {
		want(h.others[i].class, defaultSlice, h.others[i].demand)
	}
	upTo, weighted := h.cpus.upTo, h.cpus.slices
	clear(upTo)
	clear(weighted)
	for at, length := range h.classes.lengths {
		for i := range list {
			if k := &list[i]; k.demand > 0 {
				for j, cpu := range k.list {
					load := k.spread[j] * k.bySlice[at] / k.demand
					upTo[cpu] += load
					weighted[cpu] += load * length
				}
			}
		}
		for i := range list {
			k := &list[i]
			k.bySlice[at] = 0
			for _, cpu := range k.list {
				k.bySlice[at] += upTo[cpu]
			}
		}
	}
	for i := range list {
		k, sum := &list[i], 0.0
		for _, cpu := range k.list {
			sum += weighted[cpu]
		}
		if k.crowding > 0 && sum > 0 {
			k.turns = k.crowding / sum
		}
	}
}

// listLengths lists the slices of what wants to run.
func (h *Host) listLengths() {
	h.classes.lengths = h.classes.lengths[:0]
	add := func(slice, demand float64) {
		if at, known := slices.BinarySearch(h.classes.lengths, slice); demand > 0 && !known {
			h.classes.lengths = slices.Insert(h.classes.lengths, at, slice)
		}
	}
	for _, v := range h.vms {
		for i := range v.threads {
			add(v.threads[i].slice, v.threads[i].demand)
		}
	}
	for i := range h.others {
		add(defaultSlice, h.others[i].demand)
	}
}

// crowds are the chances that a thread with a slice finds all CPUs of its class busy with others:
// with those of shorter slices, which preempt it, and with those up to its own, for which it waits.
func (c *classes) crowds(k *class, slice, own float64) (shorter, upTo float64) {
	at, _ := slices.BinarySearch(c.lengths, slice)
	if len(c.lengths) < 2 || at == len(c.lengths) {
		return 0, k.crowd(k.crowding, own)
	}
	if at > 0 {
		shorter = k.crowd(k.bySlice[at-1], 0)
	}
	return shorter, k.crowd(k.bySlice[at], own)
}

// crowd is the chance that all CPUs of the class are busy with a load that a thread's own is part of,
// at most maxCrowd.
func (k *class) crowd(load, own float64) float64 {
	if n := float64(len(k.list)); n > 1 {
		return min(maxCrowd, math.Pow(load/n, n)) // to which one thread adds little
	}
	return min(maxCrowd, max(0, load-own))
}

const maxCrowd = 0.95
