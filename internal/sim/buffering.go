package sim

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// tap is the name of each VM's only tap, and firstIndex its number until it is made anew.
const (
	tap        = "tap0"
	firstIndex = 2
)

// missingBuffering is why a host with Config.NoBuffering can hold nothing.
const missingBuffering = "the simulated kernel has no queueing discipline fq"

// Taps implements host.Host.
func (h *Host) Taps(process host.TaskID) ([]host.Tap, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.process(process)
	if err != nil {
		return nil, err
	}
	b := &v.buffering
	is := host.Tap{Name: tap, Index: firstIndex + b.remade, Owner: host.QueueDefault, Queue: "fq_codel 0:", Buffered: b.ours}
	switch {
	case b.ours:
		is.Owner, is.Queue = host.QueueOurs, "fq 4a57:"
	case b.foreign != "":
		is.Owner, is.Queue = host.QueueForeign, b.foreign
	}
	return []host.Tap{is}, nil
}

// Buffer implements host.Host.
func (h *Host) Buffer(process host.TaskID, name string, as model.Buffering) error {
	return h.rebuffer(process, name, func(b *buffering) error {
		switch {
		case h.cfg.NoBuffering:
			return fmt.Errorf("simulated process %d: %s: %w", process.PID, missingBuffering, host.ErrUnsupported)
		case b.foreign != "":
			return fmt.Errorf("device %s of simulated process %d: %w", name, process.PID, host.ErrForeign)
		case !as.IsValid():
			return fmt.Errorf("device %s of simulated process %d: packets cannot be held as in %+v", name, process.PID, as)
		}
		b.ours, b.config = true, datapath.ConfigOf(as)
		return nil
	})
}

// Unbuffer implements host.Host.
func (h *Host) Unbuffer(process host.TaskID, name string) error {
	return h.rebuffer(process, name, func(b *buffering) error {
		b.begin()
		return nil
	})
}

// KeepBuffering implements host.Host.
func (h *Host) KeepBuffering(valid time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bufferUntil = h.monotonic() + valid
	return nil
}

// Buffered implements host.Host.
func (h *Host) Buffered(process host.TaskID) ([]host.BufferSample, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.process(process)
	if err != nil || !v.buffering.ours {
		return nil, err
	}
	b := &v.buffering
	var drops uint64 // the queue is larger than any bunch: it is the VM's ring that loses
	sample := host.BufferSample{
		Name: tap, Window: b.inForce(h.monotonic()),
		Passed: uint64(b.passed), Held: uint64(b.held), Bunches: uint64(b.bunches), Active: duration(b.active), Drops: &drops,
	}
	if b.heard(h.monotonic()) {
		declared := b.guest
		declared.TransmitMicroseconds = int(b.transmit(h.monotonic(), h.monotonic() < h.bufferUntil) / time.Microsecond)
		sample.Guest = &declared
	}
	if b.flood != nil {
		evidence := *b.flood
		sample.Flood = &evidence
	}
	return []host.BufferSample{sample}, nil
}

// SetTapQueue has somebody else give a VM's tap a queueing discipline, or makes the tap
// anew when it is empty: what was the agent's is gone.
func (h *Host) SetTapQueue(podUID, queue string) error {
	return h.change(podUID, func(v *vm) {
		v.buffering.begin()
		v.buffering.foreign = queue
		if queue == "" {
			v.buffering.remade++
		}
	})
}

// SetGuestTools has a VM's guest run the product's tools, which declare what is given:
// TransmitMicroseconds is the longest window of what it sends, of which it holds what the
// host's own window allows. Nil ends that: what was declared last stands for a while.
func (h *Host) SetGuestTools(podUID string, tools *model.GuestTools) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.pod(podUID)
	if err != nil {
		return err
	}
	b := &v.buffering
	if tools == nil {
		if b.declares {
			b.heardUntil = h.monotonic() + declarationStands
		}
		b.declares = false
		return nil
	}
	b.declares, b.guest = true, *tools
	return nil
}

// SetRing gives a VM's guest a ring of so many packets. 0: as in AddVM.
func (h *Host) SetRing(podUID string, packets int) error {
	return h.change(podUID, func(v *vm) { v.Ring = max(0, packets) })
}

func (h *Host) rebuffer(process host.TaskID, name string, do func(*buffering) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.process(process)
	if err != nil {
		return err
	}
	if name != tap {
		return fmt.Errorf("device %s of simulated process %d: %w", name, process.PID, host.ErrGone)
	}
	return do(&v.buffering)
}
