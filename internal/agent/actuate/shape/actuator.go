package shape

import (
	"fmt"

	"github.com/joulevirt/joulevirt/internal/agent/actuate/device"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Store keeps the uplinks on disk. journal.Journal is one.
type Store interface {
	SaveUplinks(uplinks []journal.Device) error
}

// Actuator shapes uplinks: see device.Actuator. Its Turns run beside it.
type Actuator struct {
	*device.Actuator[host.Uplink, model.Shaping]
}

// New returns an Actuator that takes over what an earlier agent had shaped.
// Gates that it left held are opened: what waits there is the oldest.
func New(h host.Shaper, store Store, uplinks []journal.Device, turns *Turns) *Actuator {
	for _, uplink := range uplinks {
		// What fails here fails again when the uplink is shaped or unshaped.
		_ = h.SetGate(uplink.Process, uplink.Name, 0)
	}
	lever := shaping{host: h, turns: turns}
	return &Actuator{device.New[host.Uplink, model.Shaping](lever, h.Monotonic, store.SaveUplinks, uplinks)}
}

// shaping is what is done to uplinks.
type shaping struct {
	host  host.Shaper
	turns *Turns
}

var _ device.Lever[host.Uplink, model.Shaping] = shaping{}

// Words implements device.Lever.
func (shaping) Words() device.Words {
	return device.Words{
		Devices: "uplinks", Done: "shaped", Doing: "shaping",
		None: "the pod has no network device that the kernel can shape: devices passed through (SR-IOV) bypass it",
	}
}

// Devices implements device.Lever.
func (s shaping) Devices(process host.TaskID) ([]host.Uplink, error) { return s.host.Uplinks(process) }

// Device implements device.Lever.
func (shaping) Device(u host.Uplink) device.Device {
	return device.Device{Name: u.Name, Owner: u.Owner, Queue: u.Queue}
}

// IsAs implements device.Lever, to a byte per second.
func (shaping) IsAs(u host.Uplink, want model.Shaping) bool {
	const bitsPerByte = 8
	off := u.Ceiling - want.Ceiling
	return u.Owner == host.QueueOurs && u.Turns == (want.Turn != nil) &&
		units.BitsPerSecond(-bitsPerByte) <= off && off <= bitsPerByte
}

// Tell implements device.Lever.
func (shaping) Tell(u host.Uplink) string {
	return fmt.Sprintf("%s, ceiling %d bit/s, turns %v", u.Queue, int64(u.Ceiling), u.Turns)
}

// Set implements device.Lever.
func (s shaping) Set(k device.Key, want model.Shaping) error {
	if want.Turn == nil {
		s.turns.remove(k) // or the gate would be held once more after it was opened
	}
	return s.host.Shape(k.Process, k.Name, want)
}

// Unset implements device.Lever.
func (s shaping) Unset(k device.Key) error { return s.host.Unshape(k.Process, k.Name) }

// Begin implements device.Lever: turns begin.
func (s shaping) Begin(k device.Key, want model.Shaping) { s.turns.set(k, want.Turn) }

// End implements device.Lever.
func (s shaping) End(k device.Key) { s.turns.remove(k) }

// Failure implements device.Lever.
func (s shaping) Failure(k device.Key) error { return s.turns.failure(k) }
