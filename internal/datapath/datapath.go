// Package datapath holds and shapes the packets of network devices: an eBPF program stamps
// each packet with the time at which it may leave, and the queueing discipline fq releases
// it then. Hosts use it on the taps and uplinks of VMs, and the guest's tools on the guest's
// own card.
//
// It knows devices and packets only. The caller is in the network namespace of the device.
package datapath

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrUnsupported means that the kernel lacks what it takes; the error around it says what.
var ErrUnsupported = errors.New("the kernel cannot hold packets")

// Options say how a Datapath works.
type Options struct {
	// PinRoot is a folder of a BPF file system, which is made, where programs are kept
	// beyond the life of the process.
	PinRoot string
	// EgressOnly leaves what comes in through devices alone.
	EgressOnly bool
	// WithoutFq treats the kernel as one that lacks fq.
	WithoutFq bool
	// WithoutQueue attaches programs only, which counts packets and answers guests on kernels
	// that lack fq.
	WithoutQueue bool
}

// State is what a device has.
type State struct {
	Owner Owner
	// Queue is its queueing discipline, such as "fq_codel 0:".
	Queue string
	// Complete is true when all that it takes to hold packets is on the device.
	Complete bool
}

// Datapath applies settings to devices. Its methods may be called from several goroutines.
// Devices are given with a netlink handle of the network namespace that they are in, which
// must be the calling thread's, and an ID which is the caller's, of letters, digits, -, _
// and =.
type Datapath struct {
	opts Options
	pins pins
	// work is held while a device is read or changed.
	work sync.Mutex
	// mu guards what is below.
	mu      sync.Mutex
	lease   *lease
	devices map[string]*openDevice
}

// openDevice is a device whose programs this process has open.
type openDevice struct {
	index   int
	program *program
	hooks   []hook
}

// target is a device as the caller gave it.
type target struct {
	handle *netlink.Handle
	device netlink.Link
	id     string
}

func (t target) index() int   { return t.device.Attrs().Index }
func (t target) name() string { return t.device.Attrs().Name }

// New changes nothing. The caller closes the Datapath.
func New(opts Options) *Datapath {
	return &Datapath{opts: opts, devices: map[string]*openDevice{}, pins: pins{root: opts.PinRoot}}
}

// CheckPins makes the folder of the pins, or returns why programs cannot be kept there.
func (d *Datapath) CheckPins() error { return d.pins.open() }

// Extend lets packets be held for so long from now on, also those of devices that an
// earlier process left and that were not observed yet.
func (d *Datapath) Extend(valid time.Duration) error {
	lease, err := d.openLease(false)
	if err != nil || lease == nil {
		return err
	}
	now, err := monotonic()
	if err != nil {
		return err
	}
	return lease.extend(now + valid)
}

// openLease takes over the lease of an earlier process. Without one it makes one if asked to,
// and returns nil otherwise.
func (d *Datapath) openLease(create bool) (lease *lease, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lease == nil && (create || d.pins.haveLease()) {
		d.lease, err = openPinnedLease(d.pins.path(pinLease))
	}
	return d.lease, err
}

// Observe returns what a device has. What an earlier process left of it is taken over; what
// was there of another device with the same ID is dropped.
func (d *Datapath) Observe(handle *netlink.Handle, device netlink.Link, id string) (State, error) {
	at := target{handle, device, id}
	d.work.Lock()
	defer d.work.Unlock()
	q, err := readQueue(handle, device)
	if err != nil {
		return State{}, err
	}
	state := State{Owner: q.owner, Queue: q.name}
	opened, err := d.find(at)
	if err != nil || opened == nil {
		return state, err
	}
	attached, err := isAttached(at, opened.hooks)
	state.Complete = attached && q.complete()
	return state, err
}

// Apply has the packets of a device held or shaped. Done again it changes nothing; with
// other settings it changes those, and no packet is lost by it. ErrForeign when the device
// has a queueing discipline of somebody else, and then nothing was changed.
func (d *Datapath) Apply(handle *netlink.Handle, device netlink.Link, id string, s Settings) error {
	at := target{handle, device, id}
	d.work.Lock()
	defer d.work.Unlock()
	q, err := readQueue(handle, device)
	if err != nil {
		return err
	}
	if q.owner == OwnerOther {
		return fmt.Errorf("%s has %s: %w", at.name(), q.name, ErrForeign)
	}
	opened, err := d.find(at)
	if err != nil {
		return err
	}
	created := opened == nil
	if created {
		if opened, err = d.create(at, s.kind()); err != nil {
			return err
		}
	}
	if err = d.apply(at, opened, q, s); err != nil && created && q.owner == OwnerKernel {
		// Half of it would be worse than nothing.
		err = errors.Join(err, d.remove(at))
	}
	return err
}

func (d *Datapath) apply(at target, opened *openDevice, q queue, s Settings) error {
	if err := opened.program.Configure(s); err != nil {
		return fmt.Errorf("configure the program of %s: %w", at.name(), err)
	}
	if !d.opts.WithoutQueue {
		if err := q.install(s.kind(), at.handle, at.device); err != nil {
			return err
		}
		// Read again: an mq has brought others.
		after, err := readQueue(at.handle, at.device)
		if err != nil {
			return err
		}
		if err := after.install(s.kind(), at.handle, at.device); err != nil {
			return err
		}
	}
	return attach(at, opened.hooks, q, func() error { return d.pins.markClsact(at.id) })
}

// find returns what is open of the device, or what an earlier process has kept of it; nil
// when there is neither.
func (d *Datapath) find(at target) (*openDevice, error) {
	if err := checkID(at.id); err != nil {
		return nil, err
	}
	d.mu.Lock()
	opened := d.devices[at.id]
	d.mu.Unlock()
	if opened != nil && opened.index == at.index() {
		return opened, nil
	}
	pinned := d.pins.device(at.id)
	if opened != nil || pinned != 0 && pinned != at.index() {
		return nil, d.Forget(at.id)
	}
	if pinned == 0 {
		return nil, nil
	}
	lease, err := d.openLease(true)
	if err != nil {
		return nil, err
	}
	program, err := openPinned(d.pins.path(at.id, pinProgram), lease)
	if err != nil {
		return nil, nil //nolint:nilerr // it cannot be taken over: create replaces it
	}
	return d.add(at, program), nil
}

func (d *Datapath) add(at target, program *program) *openDevice {
	opened := &openDevice{index: at.index(), program: program, hooks: d.hooks(program)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.devices[at.id] = opened
	return opened
}

// create makes and pins programs for the device, in place of what cannot be taken over of
// earlier ones.
func (d *Datapath) create(at target, k kind) (*openDevice, error) {
	if err := d.pins.open(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	lease, err := d.openLease(true)
	if err != nil {
		return nil, err
	}
	program, err := load(k, lease)
	if err != nil {
		return nil, err
	}
	if err = d.pins.begin(at.id, at.index()); err == nil {
		err = program.Pin(d.pins.path(at.id, pinProgram))
	}
	if err != nil {
		return nil, errors.Join(err, program.Close())
	}
	return d.add(at, program), nil
}

// Remove lets all packets of a device out, in order, removes what this or an earlier process
// put on it, and gives it the kernel's own queueing discipline back, unless it has
// somebody else's.
func (d *Datapath) Remove(handle *netlink.Handle, device netlink.Link, id string) error {
	d.work.Lock()
	defer d.work.Unlock()
	return d.remove(target{handle, device, id})
}

func (d *Datapath) remove(at target) error {
	opened, err := d.find(at)
	if err != nil {
		return err
	}
	q, err := readQueue(at.handle, at.device)
	if err != nil {
		return err
	}
	if opened != nil {
		err = opened.program.Configure(opened.program.kind.off())
	}
	err = errors.Join(err, drain(at.handle, at.device),
		detach(at, d.hooks(nil), d.pins.clsactWasThere(at.id)), q.uninstall(at.handle, at.device))
	return errors.Join(err, d.Forget(at.id))
}

// Stats of a device that was observed or has settings; false when there is none with that
// ID. It may be called in any network namespace.
func (d *Datapath) Stats(id string) (Stats, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	opened := d.devices[id]
	if opened == nil {
		return Stats{}, false, nil
	}
	now, err := monotonic()
	if err != nil {
		return Stats{}, false, err
	}
	stats, err := opened.program.Stats(now)
	if err != nil {
		return Stats{}, false, fmt.Errorf("counters of %s: %w", id, err)
	}
	return stats, true, nil
}

// Forget drops what is kept of a device that is gone.
func (d *Datapath) Forget(id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.pins.remove(id)
	if opened := d.devices[id]; opened != nil {
		delete(d.devices, id)
		err = errors.Join(err, opened.program.Close())
	}
	return err
}

// IDs of all devices that something is known or kept of, in order.
func (d *Datapath) IDs() ([]string, error) {
	ids, err := d.pins.ids()
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.devices {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// Close closes all programs. They stay at work until the lease ends.
func (d *Datapath) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var failures []error
	for id, opened := range d.devices {
		failures = append(failures, opened.program.Close())
		delete(d.devices, id)
	}
	if d.lease != nil {
		failures = append(failures, d.lease.close())
		d.lease = nil
	}
	return errors.Join(append(failures, d.pins.tidy())...)
}

// Probe applies settings to a device that nobody needs, such as the loopback device of an
// empty network namespace, and removes them. The error wraps ErrUnsupported and names what
// the kernel lacks.
func Probe(handle *netlink.Handle, device netlink.Link, opts Options, s Settings) error {
	err := New(opts).probe(target{handle: handle, device: device}, s)
	if err != nil && !errors.Is(err, ErrUnsupported) {
		err = fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

// probe pins nothing.
func (d *Datapath) probe(at target, s Settings) (err error) {
	lease, err := newLease()
	if err != nil {
		return fmt.Errorf("the kernel refuses the eBPF programs: %w", err)
	}
	defer func() { err = errors.Join(err, lease.close()) }()
	program, err := load(s.kind(), lease)
	if err != nil {
		return fmt.Errorf("the kernel refuses the eBPF programs: %w", err)
	}
	defer func() { err = errors.Join(err, program.Close()) }()
	if err := program.Configure(s); err != nil {
		return fmt.Errorf("the kernel refuses the eBPF programs: %w", err)
	}
	q, err := readQueue(at.handle, at.device)
	if err != nil {
		return err
	}
	hooks := d.hooks(program)
	if err = d.probeQueue(at, s.kind(), q); err == nil {
		if err = attach(at, hooks, q, func() error { return nil }); err != nil {
			err = fmt.Errorf("the kernel has no clsact with cls_bpf (modules sch_ingress and cls_bpf): %w", err)
		}
	}
	after, readErr := readQueue(at.handle, at.device)
	return errors.Join(err, detach(at, hooks, false), readErr, after.uninstall(at.handle, at.device))
}

func (d *Datapath) probeQueue(at target, k kind, q queue) error {
	if d.opts.WithoutQueue {
		return nil
	}
	err := error(unix.ENOENT)
	if !d.opts.WithoutFq {
		err = q.install(k, at.handle, at.device)
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

// monotonic is the time of CLOCK_MONOTONIC.
func monotonic() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("monotonic time: %w", err)
	}
	return time.Duration(now.Nano()), nil
}
