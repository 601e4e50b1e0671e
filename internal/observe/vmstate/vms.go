// Package vmstate holds what the manager knows of each VM from its agent's rates, for as long as
// the agent reports it. It is lost with the manager: a new leader knows nothing of a VM until
// enough rates have come.
package vmstate

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// VMs hold a T for each VM, by the UID of its launcher pod. They are safe for concurrent
// use.
type VMs[T any] struct {
	clock      clock.PassiveClock
	staleAfter time.Duration

	mu  sync.Mutex
	vms map[string]*vm[T]
}

type vm[T any] struct {
	node    string
	updated time.Time
	state   T
}

// New returns VMs without any. One that is not updated for longer than staleAfter is
// forgotten; one that an agent misses in a round, as at its start, is not.
func New[T any](clk clock.PassiveClock, staleAfter time.Duration) *VMs[T] {
	return &VMs[T]{clock: clk, staleAfter: staleAfter, vms: map[string]*vm[T]{}}
}

// Update calls change with the state of a VM: the zero value of a new one. A launcher pod never
// changes its node: what a second node reports of it while the first one does is ignored, and
// change is not called.
func (v *VMs[T]) Update(node, podUID string, change func(now time.Time, state *T)) {
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
	one.updated = now
	change(now, &one.state)
}

// Get returns the state of a VM, and false if there is none.
func (v *VMs[T]) Get(podUID string) (T, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	one := v.vms[podUID]
	if one == nil || v.stale(one) {
		var zero T
		return zero, false
	}
	return one.state, true
}

func (v *VMs[T]) stale(one *vm[T]) bool { return v.clock.Since(one.updated) > v.staleAfter }

// Sweep forgets the VMs that were not updated for too long: those that are gone.
func (v *VMs[T]) Sweep() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for podUID, one := range v.vms {
		if v.stale(one) {
			delete(v.vms, podUID)
		}
	}
}

// Len returns how many VMs there are.
func (v *VMs[T]) Len() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.vms)
}
