package thread

import (
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
	// Unread says why the VM, which runs, could not be looked at in this round:
	// it is left as it is. Nil when it was looked at.
	Unread error
}

// Attribute is something that each thread has one of. The zero value of V is the
// kernel's default.
type Attribute[V journal.Value[V]] interface {
	// Name of the attribute in messages.
	Name() string
	// Get reads a thread's value as the kernel shows it.
	Get(thread host.TaskID) (V, error)
	// Set gives a thread a value; the zero value gives the kernel's default back.
	Set(thread host.TaskID, value V) error
	// Threads of a process that could be read.
	Threads(sample *host.ProcessSample) []Thread[V]
	// Fit returns what of a value a VM's threads can have. Zero: nothing.
	Fit(vm *VM[V], value V) V
	// Default is what the kernel shows for a thread of the VM that nobody gave a
	// value. False: not known.
	Default(vm *VM[V]) (V, bool)
	// Uniform tells whether all threads of a VM are given the same value. One that
	// was created with it is then left without an entry of its own: it is undone by
	// that of the main thread.
	Uniform() bool
}

// Wanted says what the threads of one VM are to have.
type Wanted[V journal.Value[V]] interface {
	// Of returns the value of threads of a role. Zero: the kernel's default.
	Of(role discover.Role) V
	// Feasible tells what becomes of it: Applied, Incomplete, Undone when it has no
	// value for any thread, or NoAllowedCore, with which nothing is done. The text says
	// more.
	Feasible(vm *VM[V]) (Outcome, string)
}

// Outcome is what became of what is wanted of one VM.
type Outcome string

const (
	// Applied: every value was read back.
	Applied Outcome = "Applied"
	// Undone: nothing is wanted of the VM, and nothing of the agent's is left.
	Undone Outcome = "Undone"
	// Dedicated: KubeVirt pins the VM; it is left alone.
	Dedicated Outcome = "Dedicated"
	// NoAllowedCore: a pin has no CPU in the container's cpuset. Nothing is
	// bound.
	NoAllowedCore Outcome = "NoAllowedCore"
	// Contested: something else changed the threads back twice. They are left to
	// it until the VM leaves the plan.
	Contested Outcome = "Contested"
	// Incomplete: some vCPU of the plan has no thread; the others are done.
	Incomplete Outcome = "Incomplete"
	// Unsupported: the kernel, or how a thread is scheduled, has no such attribute.
	Unsupported Outcome = "Unsupported"
	// Failed: the kernel or the journal refused, or another value was read back.
	Failed Outcome = "Failed"
	// Gone: the VM ended meanwhile.
	Gone Outcome = "Gone"
)

// Result is what became of one VM.
type Result[V journal.Value[V]] struct {
	PodUID          string
	Namespace, Name string
	Outcome         Outcome
	// Message says more, in words.
	Message string
	// Held are the threads that have a value of the agent's, as it was read back.
	Held []Thread[V]
	// Changed counts the threads that were written to.
	Changed int
}

// action is what to do to one thread.
type action int

const (
	give    action = iota
	restore        // put the original back
	release        // lift what a thread inherited
	forget         // nothing: what was ours is so no longer
)

// change is one thing to do. entry is what the journal holds once it is done.
type change[V journal.Value[V]] struct {
	action action
	thread host.TaskID
	entry  journal.Record[V]
}
