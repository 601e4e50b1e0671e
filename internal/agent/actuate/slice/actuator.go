// Package slice gives threads of VMs scheduler slices and reverts them, in the way
// of package thread. All threads of a VM, and the kernel's workers for it, have the
// same slice: a packet waits for the slowest of those that handle it.
//
// A thread that nobody had given a slice gets the kernel's default back, which
// changes with the number of CPUs, and not the slice that it was seen with.
package slice

import (
	"errors"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/thread"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
)

// readEvery is after how many rounds a thread's slice is read again that was in
// order. Threads that are new are read each round. It costs a few system calls a
// thread, and a node has thousands.
const readEvery = 10

// Result is what became of one VM.
type Result = thread.Result[journal.Slice]

// Actuator gives slices. It is used by one goroutine at a time.
type Actuator struct {
	*thread.Actuator[journal.Slice]
	slices slices
	round  int
	// unread are the processes that could not be read in the last round, or were not yet.
	unread map[host.TaskID]bool
}

// New returns an Actuator that takes over the slices that an earlier agent had given, or was about
// to give when it was killed. save writes the entries to disk.
func New(h host.Host, save func([]journal.SliceEntry) error, entries []journal.SliceEntry) *Actuator {
	unread := map[host.TaskID]bool{}
	for i := range entries {
		unread[entries[i].Process] = true
	}
	return &Actuator{Actuator: thread.New(h, slices{h}, save, entries), slices: slices{h}, unread: unread}
}

// Apply gives the VMs' threads the slices of the plan, by pod UID, and reverts
// every other one of the agent: see thread.Actuator. A slice of 0 is as none, but foreign
// changes stay counted. Of a VM that has a thread without
// slices, on an old kernel all have none, nothing is changed.
func (a *Actuator) Apply(vms []sample.VM, plan func(podUID string) (slice time.Duration, planned bool)) ([]Result, error) {
	a.round++
	unread := map[host.TaskID]bool{}
	defer func() { a.unread = unread }()
	read := make([]thread.VM[journal.Slice], 0, len(vms))
	for i := range vms {
		planned, _ := plan(vms[i].PodUID)
		want := journal.Slice(planned)
		if vms[i].Dedicated {
			want = 0
		}
		if want == 0 && !a.Touched(vms[i].Process) {
			read = append(read, thread.VM[journal.Slice]{VM: vms[i].VM, Cpuset: vms[i].Sample.Cpuset, Unread: vms[i].Unread})
			continue
		}
		one := a.read(&vms[i], want)
		if one.Unread != nil {
			unread[one.Process] = true
		}
		read = append(read, one)
	}
	return a.Actuator.Apply(read, func(podUID string) thread.Wanted[journal.Slice] {
		if slice, planned := plan(podUID); planned {
			return wanted(slice)
		}
		return nil
	})
}

// read reads the slices of a VM's threads. Those that were in order, and are to stay
// as they are, are read now and then only, unless that failed: a thread that has no slice
// any more keeps its VM from being in order until it has one.
func (a *Actuator) read(vm *sample.VM, want journal.Slice) thread.VM[journal.Slice] {
	out := thread.VM[journal.Slice]{VM: vm.VM, Cpuset: vm.Sample.Cpuset, Unread: vm.Unread}
	if vm.Unread != nil {
		return out
	}
	due := (a.round+vm.Process.PID)%readEvery == 0 || a.unread[vm.Process]
	threads := threadsOf(&vm.Sample)
	out.Threads = make([]thread.Thread[journal.Slice], 0, len(threads))
	for _, s := range threads {
		one := thread.Thread[journal.Slice]{ID: s.ID, Role: discover.RoleOf(s.Thread), Value: want}
		entry, ours := a.Entry(vm.Process, s.ID)
		if !ours || entry.Undone || entry.Ours != want || due {
			var err error
			one.Value, err = a.slices.Get(s.ID)
			switch {
			case errors.Is(err, host.ErrGone), err != nil && want == 0:
				continue
			case err != nil:
				out.Unread = err
				return out
			}
		}
		out.Threads = append(out.Threads, one)
	}
	return out
}

// Assume takes every slice that threads of the VMs have for one that the agent gave,
// and returns the threads. It is for an agent that lost its journal: KubeVirt gives
// none.
func (a *Actuator) Assume(vms []sample.VM) []host.TaskID {
	read := make([]thread.VM[journal.Slice], 0, len(vms))
	for i := range vms {
		read = append(read, a.read(&vms[i], 0))
	}
	return a.Actuator.Assume(read)
}

// wanted is the slice that all threads of a VM are to have. 0: the kernel's.
type wanted journal.Slice

// Of implements thread.Wanted.
func (w wanted) Of(discover.Role) journal.Slice { return journal.Slice(w) }

// Feasible implements thread.Wanted.
func (w wanted) Feasible(*thread.VM[journal.Slice]) (actuate.Outcome, string) {
	if w == 0 {
		return actuate.Undone, ""
	}
	return actuate.Applied, ""
}

// slices are a thread's attribute.
type slices struct{ host host.Host }

var _ thread.Attribute[journal.Slice] = slices{}

func (slices) Name() string { return "slice" }

func (s slices) Get(id host.TaskID) (journal.Slice, error) {
	slice, err := s.host.Slice(id)
	return journal.Slice(slice), err
}

func (s slices) Set(id host.TaskID, slice journal.Slice) error {
	return s.host.SetSlice(id, time.Duration(slice))
}

// Threads are those that have slices.
func (s slices) Threads(sample *host.ProcessSample) []thread.Thread[journal.Slice] {
	var threads []thread.Thread[journal.Slice]
	for _, one := range threadsOf(sample) {
		if slice, err := s.Get(one.ID); err == nil {
			threads = append(threads, thread.Thread[journal.Slice]{ID: one.ID, Role: discover.RoleOf(one.Thread), Value: slice})
		}
	}
	return threads
}

func (slices) Fit(_ *thread.VM[journal.Slice], slice journal.Slice) journal.Slice { return slice }

func (slices) Default(*thread.VM[journal.Slice]) (journal.Slice, bool) { return 0, true }

func (slices) Uniform() bool { return true }

// threadsOf are the threads of a process and the kernel's workers for it.
func threadsOf(sample *host.ProcessSample) []host.ThreadSample {
	if len(sample.Workers) == 0 {
		return sample.Threads
	}
	return append(append([]host.ThreadSample{}, sample.Threads...), sample.Workers...)
}
