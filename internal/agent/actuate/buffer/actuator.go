package buffer

import (
	"fmt"

	"github.com/joulevirt/joulevirt/internal/agent/actuate/device"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Store keeps the taps on disk. journal.Journal is one.
type Store interface {
	SaveTaps(taps []journal.Device) error
}

// Actuator has packets of taps held: see device.Actuator. Its Keeper runs beside it.
type Actuator struct {
	*device.Actuator[host.Tap, model.Buffering]
}

// New returns an Actuator that takes over the taps that an earlier agent buffered. Their
// packets are held on, as far as the Keeper is alive.
func New(h Host, store Store, taps []journal.Device, keeper *Keeper) *Actuator {
	for _, tap := range taps {
		keeper.add(device.Key{Process: tap.Process, Name: tap.Name})
	}
	lever := buffering{host: h, keeper: keeper}
	return &Actuator{device.New[host.Tap, model.Buffering](lever, h.Monotonic, store.SaveTaps, taps)}
}

// buffering is what is done to taps.
type buffering struct {
	host   host.Bufferer
	keeper *Keeper
}

var _ device.Lever[host.Tap, model.Buffering] = buffering{}

// Words implements device.Lever.
func (buffering) Words() device.Words {
	return device.Words{
		Devices: "taps", Done: "buffered", Doing: "buffering",
		None: "the VM has no tap: devices that are passed through (SR-IOV) and networks in user space (passt) bypass the kernel",
	}
}

// Devices implements device.Lever.
func (b buffering) Devices(process host.TaskID) ([]host.Tap, error) { return b.host.Taps(process) }

// Device implements device.Lever.
func (buffering) Device(t host.Tap) device.Device {
	return device.Device{Name: t.Name, Index: t.Index, Owner: t.Owner, Queue: t.Queue}
}

// IsAs implements device.Lever. How a program is set is for nobody else to change.
func (buffering) IsAs(t host.Tap, _ model.Buffering) bool {
	return t.Owner == host.QueueOurs && t.Buffered
}

// Tell implements device.Lever.
func (buffering) Tell(t host.Tap) string { return fmt.Sprintf("%s, buffered %v", t.Queue, t.Buffered) }

// Set implements device.Lever.
func (b buffering) Set(k device.Key, want model.Buffering) error {
	return b.host.Buffer(k.Process, k.Name, want)
}

// Unset implements device.Lever.
func (b buffering) Unset(k device.Key) error { return b.host.Unbuffer(k.Process, k.Name) }

// Begin implements device.Lever.
func (b buffering) Begin(k device.Key, _ model.Buffering) { b.keeper.add(k) }

// End implements device.Lever.
func (b buffering) End(k device.Key) { b.keeper.remove(k) }

// Failure implements device.Lever.
func (b buffering) Failure(k device.Key) error { return b.keeper.failure(k) }
