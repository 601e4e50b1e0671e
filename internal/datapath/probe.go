package datapath

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/model"
)

// Probe has the packets of a device held and gives it back: one that nobody needs, such as
// the loopback device of an empty network namespace. The error wraps ErrUnsupported and
// names what the kernel lacks.
func Probe(handle *netlink.Handle, device netlink.Link, opts Options) error {
	opts.PinRoot = ""
	d := New(opts)
	err := d.probe(place{handle, device, "probe"})
	if err != nil && !errors.Is(err, ErrUnsupported) {
		err = fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return errors.Join(err, d.Close())
}

func (d *Datapath) probe(at place) error {
	has, err := d.make(at)
	if err != nil {
		return fmt.Errorf("the kernel refuses the eBPF programs: %w", err)
	}
	if err := has.program.Configure(ConfigOf(model.Buffering{Window: model.ShortestWindow, OnPackets: 1})); err != nil {
		return fmt.Errorf("the kernel refuses the eBPF programs: %w", err)
	}
	q, err := readQueue(at.handle, at.device)
	if err != nil {
		return err
	}
	if err = d.probeQueue(at, q); err == nil {
		if err = d.attach(at, has, q); err != nil {
			err = fmt.Errorf("the kernel has neither tcx (Linux 6.6) nor clsact with cls_bpf (modules sch_ingress and cls_bpf): %w", err)
		}
	}
	return errors.Join(err, d.remove(at))
}

func (d *Datapath) probeQueue(at place, q queue) error {
	if d.opts.withoutQueue {
		return nil
	}
	err := error(unix.ENOENT)
	if !d.opts.WithoutFq {
		err = q.install(at.handle, at.device)
	}
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("the kernel has no fq (module sch_fq): %w", err)
	}
	if err != nil {
		return err
	}
	after, err := readQueue(at.handle, at.device)
	if err == nil && !after.complete() {
		err = errors.New("the kernel's fq is older than that of Linux 5.8, and knows no horizon")
	}
	return err
}
