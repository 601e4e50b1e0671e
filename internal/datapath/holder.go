package datapath

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// Options say how a Datapath works.
type Options struct {
	// PinRoot is a folder of a BPF file system, which is made, where programs are kept
	// beyond the life of the process. Empty: none are.
	PinRoot string
	// HoldOnly leaves what comes in through devices alone.
	HoldOnly bool
	// WithoutTCX attaches programs by clsact also where the kernel has tcx, and WithoutFq
	// takes it for one that lacks fq.
	WithoutTCX, WithoutFq bool
	// withoutQueue attaches programs only: tests do it on kernels that lack fq.
	withoutQueue bool
}

// State is what a device has.
type State struct {
	Owner Owner
	// Queue is its queueing discipline, such as "fq_codel 0:".
	Queue string
	// Complete is true when all that it takes to hold packets is on the device.
	Complete bool
}

// Datapath has the packets of devices held. Its methods may be called from several
// goroutines. Devices are given with a netlink handle of the network namespace that they
// are in, which must be the calling thread's, and an ID which is the caller's, of letters,
// digits, -, _ and =.
type Datapath struct {
	opts Options
	// pinsMissing is why programs end with this process; nil when they do not.
	pinsMissing error
	pins        pins
	// work is held while a device is looked at or changed.
	work sync.Mutex
	// mu guards what is below.
	mu      sync.Mutex
	lease   *Lease
	devices map[string]*held
	// paused leases are not extended.
	paused bool
}

// held is one device whose program this process has open.
type held struct {
	index   int
	program *Program
	// ids of the programs by the names of hooks: the kernel takes its time to tell them.
	ids map[string]ebpf.ProgramID
	// links by the names of hooks; none with clsact.
	links map[string]link.Link
}

// place is a device, as it was given.
type place struct {
	handle *netlink.Handle
	device netlink.Link
	id     string
}

func (p place) index() int   { return p.device.Attrs().Index }
func (p place) name() string { return p.device.Attrs().Name }

// New changes nothing but for the folder of the pins. The caller closes the Datapath.
func New(opts Options) *Datapath {
	d := &Datapath{opts: opts, devices: map[string]*held{}, pins: pins{root: opts.PinRoot, marks: map[string]bool{}}}
	if d.pinsMissing = openPins(opts.PinRoot); d.pinsMissing != nil {
		d.pins.root = ""
	}
	return d
}

// MissesPins tells why programs end with this process; nil when the next one takes them
// over.
func (d *Datapath) MissesPins() error { return d.pinsMissing }

// openLease takes over the lease, or makes one, once.
func (d *Datapath) openLease() (*Lease, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.openLeaseLocked()
}

// openLeaseLocked is openLease for who has locked mu.
func (d *Datapath) openLeaseLocked() (*Lease, error) {
	if d.lease != nil {
		return d.lease, nil
	}
	var err error
	if d.pins.root == "" {
		d.lease, err = NewLease()
	} else {
		d.lease, err = OpenLease(filepath.Join(d.pins.root, pinLease))
	}
	if err != nil {
		d.lease = nil
		return nil, fmt.Errorf("lease: %w", err)
	}
	return d.lease, nil
}

// Extend lets packets be held for so long from now on, also those of devices that an
// earlier process left and that were not looked at yet.
func (d *Datapath) Extend(valid time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paused || d.lease == nil && !d.pins.haveLease() {
		return nil // nothing is to be held
	}
	lease, err := d.openLeaseLocked()
	if err != nil {
		return err
	}
	now, err := monotonic()
	if err != nil {
		return err
	}
	return lease.Extend(now + valid)
}

// Look tells what a device has. What an earlier process left of it is taken over; what was
// there of another device with the same ID is dropped.
func (d *Datapath) Look(handle *netlink.Handle, device netlink.Link, id string) (State, error) {
	at := place{handle, device, id}
	d.work.Lock()
	defer d.work.Unlock()
	q, err := readQueue(handle, device)
	if err != nil {
		return State{}, err
	}
	state := State{Owner: q.owner, Queue: q.name}
	has, err := d.find(at)
	if err != nil || has == nil {
		return state, err
	}
	attached, err := d.isAttached(at, has)
	state.Complete = attached && q.complete()
	return state, err
}

// Apply has the packets of a device held as told. Done again it changes nothing; with
// another config it changes that, and no packet is lost by it. ErrForeign when the device
// has a queueing discipline of somebody else, and then nothing was changed.
func (d *Datapath) Apply(handle *netlink.Handle, device netlink.Link, id string, c Config) error {
	at := place{handle, device, id}
	d.work.Lock()
	defer d.work.Unlock()
	q, err := readQueue(handle, device)
	if err != nil {
		return err
	}
	if q.owner == OwnerOther {
		return fmt.Errorf("%s has %s: %w", at.name(), q.name, ErrForeign)
	}
	has, err := d.find(at)
	if err != nil {
		return err
	}
	made := has == nil
	if made {
		if has, err = d.make(at); err != nil {
			return err
		}
	}
	if err = d.apply(at, has, q, c); err == nil {
		return nil
	}
	if made && q.owner == OwnerKernel {
		// Half of it would be worse than nothing.
		err = errors.Join(err, d.remove(at))
	}
	return err
}

func (d *Datapath) apply(at place, has *held, q queue, c Config) error {
	if err := has.program.Configure(c); err != nil {
		return fmt.Errorf("configure the program of %s: %w", at.name(), err)
	}
	if !d.opts.withoutQueue {
		if err := q.install(at.handle, at.device); err != nil {
			return err
		}
		// Read again: an mq has brought others.
		after, err := readQueue(at.handle, at.device)
		if err != nil {
			return err
		}
		if err := after.install(at.handle, at.device); err != nil {
			return err
		}
	}
	return d.attach(at, has, q)
}

// find returns what is open of the device, or what an earlier process has kept of it; nil
// when there is neither.
func (d *Datapath) find(at place) (*held, error) {
	if err := checkID(at.id); err != nil {
		return nil, err
	}
	d.mu.Lock()
	has := d.devices[at.id]
	d.mu.Unlock()
	if has != nil {
		if has.index == at.index() {
			return has, nil
		}
		return nil, d.Forget(at.id)
	}
	switch d.pins.device(at.id) {
	case 0:
		return nil, nil
	case at.index():
	default:
		return nil, d.pins.remove(at.id)
	}
	lease, err := d.openLease()
	if err != nil {
		return nil, err
	}
	program, err := OpenPinned(d.pins.path(at.id, pinProgram), lease)
	if err != nil {
		return nil, nil //nolint:nilerr // it cannot be taken over: make replaces it
	}
	return d.keep(at, program, d.pins.links(at.id)), nil
}

func (d *Datapath) keep(at place, program *Program, links map[string]link.Link) *held {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := map[string]ebpf.ProgramID{hookHold: programID(program.Hold()), hookHear: programID(program.Hear())}
	has := &held{index: at.index(), program: program, ids: ids, links: links}
	d.devices[at.id] = has
	return has
}

// make a program for the device, in place of what cannot be taken over of an earlier one.
// That one lets out first what it holds: the new one does not know of it.
func (d *Datapath) make(at place) (*held, error) {
	if err := d.pins.ready(); err != nil {
		return nil, err
	}
	lease, err := d.openLease()
	if err != nil {
		return nil, err
	}
	program, err := Load(lease)
	if err != nil {
		return nil, err
	}
	if d.pins.device(at.id) != 0 {
		err = errors.Join(d.empty(at), Unpin(d.pins.path(at.id, pinProgram)))
	}
	if err == nil {
		err = d.pins.begin(at.id, at.index())
	}
	if err == nil && d.pins.root != "" {
		err = program.Pin(d.pins.path(at.id, pinProgram))
	}
	if err != nil {
		return nil, errors.Join(err, program.Close())
	}
	return d.keep(at, program, d.pins.links(at.id)), nil
}

// Remove lets all packets of a device out, in order, takes from it what this or an earlier
// process put there, and gives it the kernel's own queueing discipline back, unless it has
// somebody else's.
func (d *Datapath) Remove(handle *netlink.Handle, device netlink.Link, id string) error {
	d.work.Lock()
	defer d.work.Unlock()
	return d.remove(place{handle, device, id})
}

func (d *Datapath) remove(at place) error {
	has, err := d.find(at)
	if err != nil {
		return err
	}
	q, err := readQueue(at.handle, at.device)
	if err != nil {
		return err
	}
	links := map[string]link.Link{}
	switch {
	case has != nil:
		links, err = has.links, has.program.Configure(Config{})
	case d.pins.device(at.id) != 0:
		links, err = d.pins.links(at.id), d.empty(at)
	}
	err = errors.Join(err, drain(at.handle, at.device), d.detach(at, links), q.uninstall(at.handle, at.device))
	return errors.Join(err, d.Forget(at.id))
}

// empty has no device hold packets, until the lease is extended again, and waits until
// those of one have left.
func (d *Datapath) empty(at place) error {
	lease, err := d.openLease()
	if err != nil {
		return err
	}
	pause := func(paused bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.paused = paused
	}
	pause(true)
	defer pause(false)
	if err := lease.Extend(0); err != nil {
		return err
	}
	return drain(at.handle, at.device)
}

// Close lets go of all programs. Those that are pinned stay at work until the lease ends;
// the others end.
func (d *Datapath) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var failures []error
	for id, has := range d.devices {
		failures = append(failures, has.close())
		delete(d.devices, id)
	}
	if d.lease != nil {
		failures = append(failures, d.lease.Close())
		d.lease = nil
	}
	return errors.Join(append(failures, d.pins.tidy())...)
}
