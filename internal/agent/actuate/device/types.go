// Package device does something to network devices of VMs' pods, such as shaping them,
// and undoes it. What is to be done is decided by pure functions (decide.go); Actuator
// does it, in the order journal, change, read back, and remembers only what it read
// back.
//
// What a device had before needs no record: only the kernel's default is ever replaced.
// A device of somebody else's is left alone.
package device

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
)

// Value is what a device is to have. It is immutable.
type Value[V any] interface {
	// IsZero reports whether it is nothing at all.
	IsZero() bool
	Equal(other V) bool
}

// Lever is what is done to devices.
type Lever[V Value[V]] struct {
	// Devices that it is done to, such as uplinks, for messages.
	Devices string
	// Done is what they are, such as shaped, and Doing the work, such as shaping.
	Done, Doing string
	// None says that a pod has no such device.
	None string
	// List the devices of a process's pod. ErrGone when the process has ended; ErrUnsupported
	// when its devices are not to be touched.
	List func(process host.TaskID) ([]host.Device, error)
	// Set gives a device what it is to have. ErrForeign when it is somebody else's, and
	// ErrUnsupported when the kernel cannot: nothing was changed then.
	Set func(process host.TaskID, name string, want V) error
	// Unset removes whatever is the agent's from a device.
	Unset func(process host.TaskID, name string) error
}

// Key names a device.
type Key struct {
	Process host.TaskID
	Name    string
}

// entry is the journal's of a device.
func (k Key) entry(podUID string) journal.Device {
	return journal.Device{PodUID: podUID, Process: k.Process, Name: k.Name}
}

// action is what to do to one device.
type action int

const (
	apply  action = iota // do it
	undo                 // revert to the kernel's default
	forget               // only drop the entry: the device is gone
)

// change is one thing to do.
type change struct {
	action action
	name   string
}

// decision is what is to become of a VM.
type decision struct {
	outcome actuate.Outcome
	message string
	changes []change
}

// task is the work on one VM.
type task[V Value[V]] struct {
	vm       discover.VM
	want     *V
	memory   *memory[V]
	now      time.Duration
	decision decision
	changed  int
	gone     bool
	failures []error
}

// result says what became of a VM.
func (t *task[V]) result() actuate.Result {
	r := actuate.Result{VM: t.vm, Outcome: t.decision.outcome, Message: t.decision.message, Changed: t.changed}
	switch {
	case t.gone:
		r.Outcome, r.Message = actuate.Gone, "the VM ended"
	case len(t.failures) > 0:
		r.Outcome, r.Message = actuate.Failed, t.failures[0].Error()
	}
	return r
}
