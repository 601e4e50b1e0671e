package device

import (
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
)

// Device is a network device of a VM's pod as it is now.
type Device struct {
	Name string
	// Index tells a device from one that was made anew with the same name. 0: not known.
	Index int
	// Owner of the device's queueing discipline, and Queue what it is.
	Owner host.QueueOwner
	Queue string
}

// Value is what a device is to have. It is not changed once it was handed over.
type Value[V any] interface {
	// IsZero tells whether it is nothing at all.
	IsZero() bool
	Equal(other V) bool
}

// Lever is what is done to devices: D is one as the host shows it, and V what it is to
// have.
type Lever[D any, V Value[V]] interface {
	// Words of messages.
	Words() Words
	// Devices of a process's pod. ErrGone when the process has ended; ErrUnsupported when
	// its devices are not to be touched.
	Devices(process host.TaskID) ([]D, error)
	// Device is what every lever knows of a device.
	Device(d D) Device
	// IsAs tells whether a device has what it is to have, and Tell says what it has.
	IsAs(d D, want V) bool
	Tell(d D) string
	// Set gives a device what it is to have. ErrForeign when it is somebody else's, and
	// ErrUnsupported when the kernel cannot: nothing was changed then.
	Set(k Key, want V) error
	// Unset takes whatever is the agent's from a device.
	Unset(k Key) error
	// Begin is called once a device was read back as it is to be, End before the agent's
	// is taken from it, or when it was found to be gone.
	Begin(k Key, want V)
	End(k Key)
	// Failure of what goes on between the rounds; nil: none.
	Failure(k Key) error
}

// Words name a lever's work in messages.
type Words struct {
	// Devices that it is done to, such as uplinks.
	Devices string
	// Done is what they are, such as shaped, and Doing the work, such as shaping.
	Done, Doing string
	// None says that a pod has no such device.
	None string
}

// Outcome is what became of one VM.
type Outcome string

const (
	// Applied: every device was read back as the plan wants it.
	Applied Outcome = "Applied"
	// Undone: nothing is wanted of the VM, and nothing of the agent's is left.
	Undone Outcome = "Undone"
	// None: the VM has no such device.
	None Outcome = "None"
	// Unsupported: the kernel cannot do it, or not to devices of this VM.
	Unsupported Outcome = "Unsupported"
	// Foreign: a device has a queueing discipline of somebody else's, which is left
	// alone. Nothing is done to the VM's other devices either.
	Foreign Outcome = "Foreign"
	// Contested: somebody else replaced or removed twice what was done. The VM is left
	// alone until it leaves the plan.
	Contested Outcome = "Contested"
	// Failed: the kernel or the journal refused, or something else was read back.
	Failed Outcome = "Failed"
	// Gone: the VM ended meanwhile.
	Gone Outcome = "Gone"
)

// Result is what became of one VM.
type Result struct {
	PodUID          string
	Namespace, Name string
	Process         host.TaskID
	Outcome         Outcome
	// Message says more, in words.
	Message string
	// Changed counts the devices that something was done to, or undone.
	Changed int
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
	keep   action = iota // it is as wanted
	apply                // do it
	undo                 // give it the kernel's default back
	tidy                 // its queue is not ours any more: take what is left beside it
	forget               // nothing: it is gone, or was never ours
)

// change is one thing to do.
type change struct {
	action action
	name   string
}

// decision is what is to become of a VM.
type decision struct {
	outcome Outcome
	message string
	changes []change
}

// task is the work on one VM.
type task[V Value[V]] struct {
	vm       discover.VM
	want     *V
	memory   *memory[V]
	look     int64
	decision decision
	changed  int
	gone     bool
	failures []error
}

// result says what became of a VM.
func (t *task[V]) result() Result {
	r := Result{
		PodUID: t.vm.PodUID, Namespace: t.vm.Namespace, Name: t.vm.Name, Process: t.vm.Process,
		Outcome: t.decision.outcome, Message: t.decision.message, Changed: t.changed,
	}
	switch {
	case t.gone:
		r.Outcome, r.Message = Gone, "the VM ended"
	case len(t.failures) > 0:
		r.Outcome, r.Message = Failed, t.failures[0].Error()
	}
	return r
}
