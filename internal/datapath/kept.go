package datapath

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Stats of a device that was looked at or whose packets are held; false when there is
// none with that ID. It may be called in any network namespace.
func (d *Datapath) Stats(id string) (Stats, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	has := d.devices[id]
	if has == nil {
		return Stats{}, false, nil
	}
	now, err := monotonic()
	if err != nil {
		return Stats{}, false, err
	}
	stats, err := has.program.Stats(now)
	if err != nil {
		return Stats{}, false, fmt.Errorf("counters of %s: %w", id, err)
	}
	return stats, true, nil
}

// Drops is how many packets were dropped by what Apply gave a device, of all queueing
// disciplines that the device has; false when none of them is ours.
func Drops(qdiscs []netlink.Qdisc) (uint64, bool) {
	q := queueOf(qdiscs, 0)
	return q.drops, q.owner == OwnerUs
}

// Forget lets go of what is kept of a device that is gone.
func (d *Datapath) Forget(id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	failures := []error{d.pins.remove(id)}
	if has := d.devices[id]; has != nil {
		delete(d.devices, id)
		failures = append(failures, has.close())
	}
	return errors.Join(failures...)
}

// IDs of all devices that something is known or kept of, in order.
func (d *Datapath) IDs() ([]string, error) {
	ids, err := d.pins.ids()
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.devices {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, err
}

func (h *held) close() error {
	failures := []error{h.program.Close()}
	for _, l := range h.links {
		failures = append(failures, l.Close())
	}
	return errors.Join(failures...)
}

// monotonic is the time of CLOCK_MONOTONIC.
func monotonic() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("monotonic time: %w", err)
	}
	return time.Duration(now.Nano()), nil
}
