package host

import (
	"errors"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// ErrForeign means that somebody else decides about a device's packets: theirs
// is left as it is.
var ErrForeign = errors.New("the device has a queueing discipline that is not the agent's")

// QueueOwner tells whose queueing discipline a device has for what it sends.
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

// Uplink is a network device through which a VM's traffic leaves its pod, as it
// is now.
type Uplink struct {
	// Name of the device in the pod's network namespace.
	Name string
	// Owner of the device's queueing discipline, and Queue what it is, such as
	// "fq_codel 8001:".
	Owner QueueOwner
	Queue string
	// Ceiling that is in force, exact to a byte per second. 0: none.
	Ceiling units.BitsPerSecond
	// Turns is true when packets are sorted into those that wait for a turn and
	// those that pass, by this agent and no earlier one.
	Turns bool
}

// Shaper is the part of a Host that bounds what VMs send.
//
// A device that is shaped has a gate. While the gate is open all packets pass,
// in order. While it is held, small ones pass, and of the others as much as a
// trickle: the rest waits, in order, up to a bound. Nothing new waits once
// KeepTurns has not been called for as long as it was told.
type Shaper interface {
	// Monotonic is the node's CLOCK_MONOTONIC, on which turns lie.
	Monotonic() (time.Duration, error)
	// Uplinks are the pod's devices that lead out, in the order of their names;
	// none when a VM has only devices that bypass the kernel. ErrGone when the
	// process has ended; ErrUnsupported when it shares the node's own network.
	Uplinks(process TaskID) ([]Uplink, error)
	// Shape bounds what leaves by an uplink. Done again it changes nothing. A
	// gate that was there stays as it is, and a new one is open. ErrForeign when
	// the device has another's queueing discipline, and then nothing was changed.
	Shape(process TaskID, uplink string, shaping model.Shaping) error
	// SetGate holds what has to wait for a turn to a trickle, or opens the gate
	// when the trickle is 0. An uplink that is not shaped is left alone, as is one
	// whose turns the kernel keeps by itself.
	SetGate(process TaskID, uplink string, trickle units.BitsPerSecond) error
	// Unshape takes whatever is the agent's from the device, and gives it the
	// kernel's own queueing discipline back, unless it has another's. What waited
	// is sent first, as far as possible.
	Unshape(process TaskID, uplink string) error
	// KeepTurns lets gates hold packets back for so long from now on.
	KeepTurns(valid time.Duration) error
}
