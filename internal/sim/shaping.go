package sim

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// uplink is the name of each VM's only device that leads out.
const uplink = "eth0"

// shape is what bounds a VM's sending.
type shape struct {
	host.Uplink
	// trickle that the gate lets through; 0 when it is open.
	trickle units.BitsPerSecond
	// held are the bytes that wait at the gate. The VM's software waits with
	// them: nothing is lost.
	held float64
}

// Monotonic implements host.Host: the time since boot.
func (h *Host) Monotonic() (time.Duration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.monotonic(), nil
}

func (h *Host) monotonic() time.Duration { return uptimeAtStart + h.now.Sub(h.cfg.Start) }

// Uplinks implements host.Host.
func (h *Host) Uplinks(process host.TaskID) ([]host.Uplink, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.process(process)
	if err != nil {
		return nil, err
	}
	is := v.shape.Uplink
	is.Name = uplink
	if is.Owner == host.QueueDefault {
		is.Queue = "noqueue 0:"
	}
	return []host.Uplink{is}, nil
}

// Shape implements host.Host.
func (h *Host) Shape(process host.TaskID, name string, shaping model.Shaping) error {
	return h.reshape(process, name, func(s *shape) error {
		if s.Owner == host.QueueForeign {
			return fmt.Errorf("simulated process %d: %w", process.PID, host.ErrForeign)
		}
		s.Owner, s.Queue, s.Ceiling, s.Turns = host.QueueOurs, "htb 4a56:", shaping.Ceiling, shaping.Turn != nil
		if !s.Turns {
			s.trickle = 0
		}
		return nil
	})
}

// SetGate implements host.Host.
func (h *Host) SetGate(process host.TaskID, name string, trickle units.BitsPerSecond) error {
	return h.reshape(process, name, func(s *shape) error {
		if s.Owner == host.QueueOurs {
			s.trickle = max(0, trickle)
		}
		return nil
	})
}

// Unshape implements host.Host.
func (h *Host) Unshape(process host.TaskID, name string) error {
	return h.reshape(process, name, func(s *shape) error {
		if s.Owner == host.QueueOurs {
			*s = shape{held: s.held}
		}
		return nil
	})
}

// KeepTurns implements host.Host.
func (h *Host) KeepTurns(valid time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turnsUntil = h.monotonic() + valid
	return nil
}

// SetQueue has somebody else give a VM's uplink a queueing discipline, or
// remove what there is when it is empty.
func (h *Host) SetQueue(podUID, queue string) error {
	return h.change(podUID, func(v *vm) {
		v.shape = shape{held: v.shape.held}
		if queue != "" {
			v.shape.Owner, v.shape.Queue = host.QueueForeign, queue
		}
	})
}

func (h *Host) reshape(process host.TaskID, name string, do func(*shape) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.process(process)
	if err != nil {
		return err
	}
	if name != uplink {
		return fmt.Errorf("device %s of simulated process %d: %w", name, process.PID, host.ErrGone)
	}
	return do(&v.shape)
}

// hold bounds what a VM sends in a step of dt seconds, in bytes per second. What
// a held gate keeps back comes as soon as it is open; what is above a ceiling is
// not sent at all, as by software that adapts.
func (s *shape) hold(bytes, dt float64, valid bool) float64 {
	if s.Owner != host.QueueOurs && s.held == 0 {
		return bytes
	}
	const bitsPerByte = 8
	if most := float64(s.Ceiling) / bitsPerByte; s.Ceiling > 0 && bytes > most {
		bytes = most
	}
	wanted := bytes + s.held/dt
	pass := wanted
	if s.Ceiling > 0 {
		pass = min(pass, float64(s.Ceiling)/bitsPerByte)
	}
	if s.trickle > 0 && valid {
		pass = min(pass, float64(s.trickle)/bitsPerByte)
	}
	s.held = (wanted - pass) * dt
	return pass
}

// giveBack keeps what was let through and not handled for the next step, in
// bytes, when the VM takes turns: others' traffic comes again anyway.
func (s *shape) giveBack(bytes float64) {
	if s.Owner == host.QueueOurs && s.Turns {
		s.held += bytes
	}
}
