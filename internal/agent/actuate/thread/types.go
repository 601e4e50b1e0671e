// Package thread changes an attribute of VMs' threads, such as their affinity, and
// reverts it. What is to be done is decided by pure functions (decide.go); Actuator
// does it, in the order journal, write, read back, and remembers only what it read
// back.
//
// Undoing leaves the state that the kernel would have without the agent. A thread that
// nobody had given a value gets the kernel's default, which may change later, and not
// the value that it was seen with.
package thread

import (
	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Thread is a thread of a VM, or a kernel's worker for it, as it is now.
type Thread[V journal.Value[V]] struct {
	ID   host.TaskID
	Role discover.Role
	// Value that the kernel shows.
	Value V
}

// VM is a VM's process as it is now.
type VM[V journal.Value[V]] struct {
	discover.VM
	// Cpuset is the effective cpuset of the VM's container. Empty when it is
	// not known.
	Cpuset  units.CPUSet
	Threads []Thread[V]
	// Unread says why the VM, which runs, could not be read in this round:
	// it is left as it is. Nil when it was read.
	Unread error
}

// Attribute is something that each thread has one of. The zero value of V is the
// kernel's default.
type Attribute[V journal.Value[V]] interface {
	// Name of the attribute in messages.
	Name() string
	// Get reads a thread's value as the kernel shows it.
	Get(thread host.TaskID) (V, error)
	// Set gives a thread a value; the zero value is the kernel's default.
	Set(thread host.TaskID, value V) error
	// Threads of a process that could be read.
	Threads(sample *host.ProcessSample) []Thread[V]
	// Fit returns what of a value a VM's threads can have. Zero: nothing.
	Fit(vm *VM[V], value V) V
	// Default is what the kernel shows for a thread of the VM that nobody gave a
	// value. False: not known.
	Default(vm *VM[V]) (V, bool)
	// Uniform reports whether all threads of a VM are given the same value. One that
	// was created with it is then left without an entry of its own: it is undone by
	// that of the main thread.
	Uniform() bool
}

// Wanted says what the threads of one VM are to have.
type Wanted[V journal.Value[V]] interface {
	// Of returns the value of threads of a role. Zero: the kernel's default.
	Of(role discover.Role) V
	// Feasible returns what becomes of it: Applied, Incomplete, Undone when it has no
	// value for any thread, or NoAllowedCore, with which nothing is done. The text says
	// more.
	Feasible(vm *VM[V]) (actuate.Outcome, string)
}

// Result is what became of one VM.
type Result[V journal.Value[V]] struct {
	actuate.Result
	// Held are the threads that have a value of the agent's, as it was read back.
	Held []Thread[V]
}

// action is what to do to one thread.
type action int

const (
	give    action = iota
	restore        // write the original value
	release        // write the default over what a thread inherited
	forget         // only drop the entry: the value is not ours any more
)

// change is one thing to do. entry is what the journal holds once it is done.
type change[V journal.Value[V]] struct {
	action action
	thread host.TaskID
	entry  journal.Record[V]
}
