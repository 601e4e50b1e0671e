// Package heard keeps something for each VM that agents tell of, for as long as they do.
package heard

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// VMs keep a T for each VM, by the UID of its launcher pod. They are safe for concurrent
// use.
type VMs[T any] struct {
	clock      clock.PassiveClock
	staleAfter time.Duration

	mu  sync.Mutex
	vms map[string]*vm[T]
}

type vm[T any] struct {
	node  string
	heard time.Time
	kept  T
}

// New returns VMs of which nothing was heard. One that is unheard of for longer than
// staleAfter is forgotten; one that an agent misses in a round, as at its start, is not.
func New[T any](clk clock.PassiveClock, staleAfter time.Duration) *VMs[T] {
	return &VMs[T]{clock: clk, staleAfter: staleAfter, vms: map[string]*vm[T]{}}
}

// Hear gives take what is kept of a VM, to change: the zero value of a new one. A launcher
// pod never changes its node: what a second node says of it while the first is heard does
// not count, and take is not called.
func (v *VMs[T]) Hear(node, podUID string, take func(now time.Time, kept *T)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.clock.Now()
	one := v.vms[podUID]
	if one == nil || v.stale(one) {
		one = &vm[T]{node: node}
		v.vms[podUID] = one
	}
	if one.node != node {
		return
	}
	one.heard = now
	take(now, &one.kept)
}

// Of returns what is kept of a VM, and false when it is not heard of.
func (v *VMs[T]) Of(podUID string) (T, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	one := v.vms[podUID]
	if one == nil || v.stale(one) {
		var none T
		return none, false
	}
	return one.kept, true
}

// Each gives see what is kept of each VM of a node.
func (v *VMs[T]) Each(node string, see func(kept *T)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, one := range v.vms {
		if one.node == node && !v.stale(one) {
			see(&one.kept)
		}
	}
}

func (v *VMs[T]) stale(one *vm[T]) bool { return v.clock.Since(one.heard) > v.staleAfter }

// Sweep forgets the VMs that were not heard of for too long: those that are gone.
func (v *VMs[T]) Sweep() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for podUID, one := range v.vms {
		if v.stale(one) {
			delete(v.vms, podUID)
		}
	}
}

// Len returns how many VMs are kept.
func (v *VMs[T]) Len() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.vms)
}
