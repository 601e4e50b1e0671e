package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// uplink is the name of each VM's only device that leads out.
const uplink = "eth0"

// shape is what bounds a VM's sending.
type shape struct {
	host.Device
	model.Shaping
	// held are the bytes that wait for a turn. The VM's software waits with them: nothing is
	// lost.
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
func (h *Host) Uplinks(process host.TaskID) ([]host.Device, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.process(process)
	if err != nil {
		return nil, err
	}
	is := v.shape.Device
	is.Name = uplink
	if is.Owner == host.QueueDefault {
		is.Queue = "noqueue 0:"
	}
	return []host.Device{is}, nil
}

// Shape implements host.Host.
func (h *Host) Shape(process host.TaskID, name string, shaping model.Shaping) error {
	return h.reshape(process, name, func(s *shape) error {
		s.Owner, s.Queue, s.Complete, s.Shaping = host.QueueOurs, "fq 4a59:", true, shaping
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

// ExtendLease implements host.Host.
func (h *Host) ExtendLease(valid time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaseUntil = h.monotonic() + valid
	return nil
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

// hold bounds what a VM sends in a step of dt seconds that begins at a time, in bytes per second.
// What waits for a turn comes as soon as that begins; what is above a ceiling is not sent at all,
// as by software that adapts. Without a lease nothing is bounded.
func (s *shape) hold(bytes, dt float64, now time.Duration, leased bool) float64 {
	if s.Owner != host.QueueOurs && s.held == 0 {
		return bytes
	}
	const bitsPerByte = 8
	most := math.Inf(1)
	if s.Ceiling > 0 && leased {
		most = float64(s.Ceiling) / bitsPerByte
	}
	wanted := min(bytes, most) + s.held/dt
	pass := min(wanted, most)
	if s.Turn != nil && leased {
		if open, _ := s.Turn.Phase(now); !open {
			pass = min(pass, float64(s.Turn.Trickle)/bitsPerByte)
		}
	}
	s.held = (wanted - pass) * dt
	return pass
}

// giveBack keeps what was let through and not handled for the next step, in
// bytes, when the VM takes turns: others' traffic comes again anyway.
func (s *shape) giveBack(bytes float64) {
	if s.Owner == host.QueueOurs && s.Turn != nil {
		s.held += bytes
	}
}
