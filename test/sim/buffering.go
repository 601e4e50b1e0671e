package sim

import (
	"fmt"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// tap is the name of each VM's only tap, and tapIndex its number.
const (
	tap      = "tap0"
	tapIndex = 2
)

// Taps implements host.Host.
func (h *Host) Taps(process host.TaskID) ([]host.Device, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.process(process)
	if err != nil {
		return nil, err
	}
	b := &v.buffering
	is := host.Device{Name: tap, Index: tapIndex, Owner: host.QueueDefault, Queue: "fq_codel 0:", Complete: b.ours}
	if b.ours {
		is.Owner, is.Queue = host.QueueOurs, "fq 4a57:"
	}
	return []host.Device{is}, nil
}

// Buffer implements host.Host.
func (h *Host) Buffer(process host.TaskID, name string, as model.Buffering) error {
	return h.rebuffer(process, name, func(b *buffering) error {
		b.ours, b.config = true, datapath.ConfigOf(as)
		return nil
	})
}

// Unbuffer implements host.Host.
func (h *Host) Unbuffer(process host.TaskID, name string) error {
	return h.rebuffer(process, name, func(b *buffering) error {
		*b = buffering{}
		return nil
	})
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
		Name: tap, Window: b.config.Window,
		Passed: uint64(b.passed), Held: uint64(b.held), Active: duration(b.active), Drops: &drops,
	}
	if b.flood != nil {
		evidence := *b.flood
		sample.Flood = &evidence
	}
	return []host.BufferSample{sample}, nil
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
