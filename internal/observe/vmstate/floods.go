package vmstate

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/model"
)

// Flood is what is known of small packets that flood a VM. The zero value: nothing.
type Flood struct {
	// Watched is true when the VM's agent looks for floods.
	Watched bool
	// Flood is the newest evidence. Nil: the VM is under none.
	Flood *model.Flood
	// Since when, by the manager's clock.
	Since time.Time
}

// Floods hold the flood of each VM. They are safe for concurrent use.
type Floods struct {
	*VMs[floodedVM]
	clock              clock.PassiveClock
	staleAfter, settle time.Duration
	// leads is since when the manager leads. Nil: it does not.
	leads atomic.Pointer[time.Time]
}

type floodedVM struct {
	Flood
	// last is when there was evidence last.
	last time.Time
}

// NewFloods returns Floods without VMs. A flood lasts until there was no evidence for settle:
// what comes again before is the same one. A VM without rates for longer than staleAfter is
// forgotten.
func NewFloods(clk clock.PassiveClock, staleAfter, settle time.Duration) *Floods {
	return &Floods{VMs: New[floodedVM](clk, staleAfter), clock: clk, staleAfter: staleAfter, settle: settle}
}

// Lead records that the manager leads from now on.
func (f *Floods) Lead() {
	now := f.clock.Now()
	f.leads.Store(&now)
}

// Awaited is true while the manager has not led for long enough to have rates of every VM.
func (f *Floods) Awaited() bool {
	since := f.leads.Load()
	return since == nil || f.clock.Since(*since) <= f.staleAfter
}

// Record adds a new round of a node. What an agent reports of a launcher pod that is not known
// on its node is ignored.
func (f *Floods) Record(rates *model.NodeRates, known func(podUID string) bool) {
	for i := range rates.VMs {
		if buffering := rates.VMs[i].Buffering; known(rates.VMs[i].PodUID) {
			f.Update(rates.Node, rates.VMs[i].PodUID, func(now time.Time, v *floodedVM) { v.record(now, buffering, f.settle) })
		}
	}
}

func (v *floodedVM) record(now time.Time, buffering *model.BufferingRates, settle time.Duration) {
	v.Watched = buffering != nil
	switch {
	case v.Watched && buffering.Flood != nil:
		if v.Flood.Flood == nil {
			v.Since = now
		}
		v.Flood.Flood, v.last = buffering.Flood, now
	case v.Flood.Flood != nil && now.Sub(v.last) >= settle:
		v.Flood.Flood, v.Since = nil, time.Time{}
	}
}

// Of returns the flood of the VM of a launcher pod.
func (f *Floods) Of(podUID string) Flood {
	v, _ := f.Get(podUID)
	return v.Flood
}
