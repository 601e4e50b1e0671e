package host

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// Tap is a network device through which a VM gets its packets, as it is now.
type Tap struct {
	// Name of the device in the pod's network namespace, and Index its number there: a
	// device that was made anew has the same name and another number.
	Name  string
	Index int
	// Owner of the device's queueing discipline, and Queue what it is, such as
	// "fq_codel 0:".
	Owner QueueOwner
	Queue string
	// Buffered is true when all that it takes to hold packets is on the device, of this
	// agent or taken over from an earlier one.
	Buffered bool
}

// BufferSample holds the counters of one tap whose packets may be held, since its
// program was made.
type BufferSample struct {
	Name string
	// Window that is in force: the configured one, or what the guest tolerates when that
	// is less. 0: packets are held only during floods.
	Window time.Duration
	// Passed packets towards the VM left at once, Held ones in one of Bunches.
	Passed, Held, Bunches uint64
	// Active is the time in which packets were held.
	Active time.Duration
	// Drops of the queue in front of the tap. Nil: it was not looked at this time.
	Drops *uint64
	// Guest is what the VM's guest declared, Flood the one that it is under. Nil: nothing.
	Guest *model.GuestTools
	Flood *model.Flood
}

// Bufferer is the part of a Host that holds packets towards VMs and releases them in
// bunches.
//
// A tap that is buffered has a program which decides about each packet by itself, and a
// queue that releases packets in time. Nothing is held once KeepBuffering has not been
// called for as long as it was told. Programs outlive the agent: the next one takes them
// over with all that they know.
type Bufferer interface {
	// Taps of the process's pod, in the order of their names; none when the VM has only
	// devices that bypass the kernel. ErrGone when the process has ended; ErrUnsupported
	// when it shares the node's own network.
	Taps(process TaskID) ([]Tap, error)
	// Buffer has a tap's packets held as told. Done again it changes nothing; with other
	// settings it changes those, and no packet is lost by it. ErrForeign when the tap has
	// another's queueing discipline, ErrUnsupported when the kernel lacks what it takes,
	// and then nothing was changed.
	Buffer(process TaskID, tap string, as model.Buffering) error
	// Unbuffer lets all packets of a tap out, in order, takes whatever is the agent's from
	// it, and gives it the kernel's own queueing discipline back, unless it has another's.
	Unbuffer(process TaskID, tap string) error
	// KeepBuffering lets packets be held for so long from now on.
	KeepBuffering(valid time.Duration) error
	// Buffered reads the counters of the process's buffered taps, in the order of their
	// names. It makes no change of namespaces and may be called each second.
	Buffered(process TaskID) ([]BufferSample, error)
}
