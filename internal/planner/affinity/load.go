package affinity

import (
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// unmanaged returns the use of each core by all but the VMs that are being placed:
//
//	unmanaged_p = max(0, busy_p - sum over the VMs' threads of share_p)
//
// It holds the system's own work and VMs that no profile governs. The counters of CPUs
// and threads are not read at the same instant, so the difference can fall below zero:
// it is cut there.
func (n *node) unmanaged(vms []VM) []float64 {
	left := make([]float64, len(n.cores))
	for i := range n.cores {
		left[i] = n.cores[i].busy
	}
	t := tally{node: n, left: left}
	t.all(vms, true)
	// What is left is where threads ran that may run on several cores.
	for i := range left {
		left[i] = max(left[i], 0)
	}
	t.busy = append([]float64(nil), left...)
	t.all(vms, false)
	for i := range left {
		left[i] = max(left[i], 0)
	}
	return left
}

// tally takes the run time of threads off what cores were busy.
type tally struct {
	node *node
	left []float64
	// busy is what cores were busy by threads that may run on several.
	busy []float64
	// What was found of the last set: most threads in a row have the same.
	set     units.CPUSet
	reached []int
	total   float64
}

// all takes the threads that are bound to one core, or all others.
func (t *tally) all(vms []VM, bound bool) {
	t.set = units.CPUSet{}
	for i := range vms {
		r, threads := vms[i].Rates, vms[i].CurrentThreads
		for _, c := range r.VCPUs {
			t.take(c.ThreadRates, c.CPUs, r.AllowedCPUs, bound)
		}
		t.take(r.Emulator, threads.Emulator, r.AllowedCPUs, bound)
		t.take(r.IOThreads, threads.IOThreads, r.AllowedCPUs, bound)
		t.take(r.Vhost, threads.Vhost, r.AllowedCPUs, bound)
		t.take(r.Other, units.CPUSet{}, r.AllowedCPUs, bound)
	}
}

// take attributes the run time r of threads to the cores p that their mask M reaches:
//
//	share_p = r                              when M is inside the one core p
//	share_p = r * busy_p / sum_M(busy)       otherwise, bound threads being taken off busy
//
// The second line is an estimate: of an unpinned thread it is only known how
// long it ran, not where; that it ran where the node was busy is the best
// guess that needs no trace. Siblings outside the mask count as inside, which
// matters only for masks that cut a core in two: we never write such a mask.
func (t *tally) take(rates model.ThreadRates, set, otherwise units.CPUSet, bound bool) {
	run := bounded(float64(rates.RunCores), mostLoad)
	if run <= 0 {
		return
	}
	if set.IsEmpty() {
		set = otherwise
	}
	if !set.Equal(t.set) {
		t.find(set)
	}
	if (len(t.reached) == 1) != bound {
		return
	}
	for _, i := range t.reached {
		switch {
		case bound:
			t.left[i] -= run
		case t.total > 0:
			t.left[i] -= run * t.busy[i] / t.total
		}
	}
}

// find finds the cores that a set reaches, and how busy they were.
func (t *tally) find(set units.CPUSet) {
	t.set, t.reached, t.total = set, t.reached[:0], 0
	for i := range t.node.cores {
		if t.node.cores[i].meets(set) {
			t.reached = append(t.reached, i)
			if t.busy != nil {
				t.total += t.busy[i]
			}
		}
	}
}

// meets tells whether the core has a CPU of the set.
func (c *core) meets(set units.CPUSet) bool {
	return c.first >= 0 && (set.Contains(c.first) || (c.cpus > 1 && !c.set.Intersection(set).IsEmpty()))
}
