package host

import (
	"errors"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// ErrForeign means that somebody else decides about a device's packets: theirs
// is left as it is.
var ErrForeign = errors.New("the device has a queueing discipline that is not the agent's")

// QueueOwner is whose queueing discipline a device has for what it sends.
type QueueOwner int

// The owners.
const (
	// QueueDefault: the kernel's own, which comes back when ours is removed.
	QueueDefault QueueOwner = iota
	// QueueOurs: the agent's, of this or an earlier life.
	QueueOurs
	// QueueForeign: somebody else's.
	QueueForeign
)

// Device is a network device of a VM's pod, as it is now: an uplink through which the VM's
// traffic leaves, or a tap through which the VM gets its packets.
type Device struct {
	// Name of the device in the pod's network namespace, and Index its number there: a
	// device that was made anew has the same name and another number.
	Name  string
	Index int
	// Owner of the device's queueing discipline, and Queue what it is, such as
	// "fq_codel 0:".
	Owner QueueOwner
	Queue string
	// Complete is true when all that it takes to shape or hold packets is on the device, of
	// this agent or taken over from an earlier one.
	Complete bool
}

// BufferSample holds the counters of one tap whose packets may be held, since its
// program was made.
type BufferSample struct {
	Name string
	// Window that is in force: the configured one, or what the guest tolerates when that
	// is less. 0: packets are held only during floods.
	Window time.Duration
	// Passed packets towards the VM left at once, Held ones in bunches.
	Passed, Held uint64
	// Active is the time in which packets were held.
	Active time.Duration
	// Drops of the queue in front of the tap. Nil: it was not read this time.
	Drops *uint64
	// Guest is what the VM's guest declared, Flood the one that it is under. Nil: nothing.
	Guest *model.GuestTools
	Flood *model.Flood
}

// Leaser lets the kernel hold packets for a while. Programs on devices outlive the agent, and
// the next one takes them over with all that they know; but nothing is held, neither by turns
// nor by buffering, once ExtendLease has not been called for as long as it said.
type Leaser interface {
	ExtendLease(valid time.Duration) error
}

// Shaper is the part of a Host that bounds what VMs send. In a VM's turn its packets leave at
// once. Between turns small ones do, and of the others as much as a trickle: the rest waits, in
// order, up to a bound.
type Shaper interface {
	// Uplinks are the pod's devices that lead out, in the order of their names; none when a VM
	// has only devices that bypass the kernel. ErrGone when the process has ended;
	// ErrUnsupported when it shares the node's own network.
	Uplinks(process TaskID) ([]Device, error)
	// Shape bounds what leaves by an uplink. Done again it changes nothing. ErrForeign when the
	// device has another's queueing discipline, ErrUnsupported when the kernel lacks what it
	// takes, and then nothing was changed.
	Shape(process TaskID, uplink string, shaping model.Shaping) error
	// Unshape removes whatever is the agent's from the device, and gives it the kernel's own
	// queueing discipline back, unless it has another's. What waits for a turn is lost.
	Unshape(process TaskID, uplink string) error
}

// Bufferer is the part of a Host that holds packets towards VMs and releases them in bunches: a
// tap that is buffered has a program which decides about each packet by itself, and a queue
// that releases packets in time.
type Bufferer interface {
	// Taps of the process's pod, in the order of their names; none when the VM has only
	// devices that bypass the kernel. ErrGone when the process has ended; ErrUnsupported
	// when it shares the node's own network.
	Taps(process TaskID) ([]Device, error)
	// Buffer has a tap's packets held. Done again it changes nothing; with other settings it
	// changes those, and no packet is lost by it. ErrForeign when the tap has another's
	// queueing discipline, ErrUnsupported when the kernel lacks what it takes, and then
	// nothing was changed.
	Buffer(process TaskID, tap string, as model.Buffering) error
	// Unbuffer lets all packets of a tap out, in order, removes whatever is the agent's from
	// it, and gives it the kernel's own queueing discipline back, unless it has another's.
	Unbuffer(process TaskID, tap string) error
	// Buffered reads the counters of the process's buffered taps, in the order of their
	// names. It makes no change of namespaces and may be called each second.
	Buffered(process TaskID) ([]BufferSample, error)
}
