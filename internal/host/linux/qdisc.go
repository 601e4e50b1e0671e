package linux

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// What the agent gives a device that it shapes, by the major number that makes
// it known, unless fq does it:
//
//	htb 4a56:            the root
//	  class 4a56:1       the ceiling
//	    class 4a56:10    pass: whatever may not wait; goes first
//	      tbf 4a58:      its queue
//	    class 4a56:20    turn: what may wait
//	      tbf 4a57:      its queue and the gate
//	  bpf                the classifier, when there are turns
//
// The gate is a tbf, not the class's rate: an htb class that sent 64 kB at the
// rate of a trickle owes two seconds, which no change of the rate takes back,
// so that turns would begin late. A tbf forgets at each change.
const (
	rootMajor, gateMajor, passMajor           = 0x4a56, 0x4a57, 0x4a58
	ceilingClass, passClass, turnClass        = 0x1, 0x10, 0x20
	filterName                                = "joulevirt-turn"
	filterHandle, filterPriority       uint32 = 1, 1
	// How the roots read that are the agent's.
	htbQueue, fqQueue = "htb 4a56:", "fq 4a59:"
)

const (
	bitsPerByte = 8
	// unlimited is the rate of what has no bound, in bits per second: above any
	// device, and within what the kernel computes with.
	unlimited units.BitsPerSecond = 1e12
	// largestPacket is what the stack hands over at once, 64 KiB of segments, with
	// the headers that the kernel counts for each. It is htb's quantum, and what a
	// held gate lets through at once: it would cut a larger packet into segments,
	// and hold one that it cannot cut for ever.
	largestPacket = 72 << 10
	// leastTrickle is the least that the API lets through between turns.
	leastTrickle units.BitsPerSecond = 256_000
	// heldBytes bound what waits at a gate: 30 seconds of the least trickle. So
	// long it takes to drain when the agent dies.
	heldBytes = 30 * uint32(leastTrickle) / bitsPerByte
	// A queue before a ceiling holds a tenth of a second of it, within limits.
	leastQueue, mostQueue = 256 << 10, 16 << 20
)

// device is a device of a pod, seen from within its network namespace.
type device struct {
	*netlink.Handle
	link netlink.Link
}

func openDevice(handle *netlink.Handle, name string) (*device, error) {
	link, err := handle.LinkByName(name)
	if err != nil {
		var absent netlink.LinkNotFoundError
		if errors.As(err, &absent) {
			err = fmt.Errorf("%w: %w", host.ErrGone, err)
		}
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	return &device{handle, link}, nil
}

func (d *device) index() int { return d.link.Attrs().Index }

// read tells what the device has, and by which program its packets are sorted.
func (d *device) read() (uplink host.Uplink, program ebpf.ProgramID, err error) {
	uplink.Name = d.link.Attrs().Name
	qdiscs, err := d.QdiscList(d.link)
	if err != nil {
		return uplink, 0, fmt.Errorf("queueing disciplines of %s: %w", uplink.Name, err)
	}
	gate := false
	for _, qdisc := range qdiscs {
		attrs := qdisc.Attrs()
		if attrs.Handle == netlink.MakeHandle(gateMajor, 0) && attrs.Parent == netlink.MakeHandle(rootMajor, turnClass) {
			gate = true
		}
		if attrs.Parent != netlink.HANDLE_ROOT {
			continue
		}
		uplink.Queue = fmt.Sprintf("%s %x:", qdisc.Type(), attrs.Handle>>16)
		switch {
		case attrs.Handle == 0:
		case uplink.Queue == htbQueue, uplink.Queue == fqQueue:
			uplink.Owner = host.QueueOurs
		default:
			uplink.Owner = host.QueueForeign
		}
	}
	if uplink.Owner != host.QueueOurs {
		return uplink, 0, nil
	}
	if uplink.Queue == fqQueue {
		program, err = d.programOf(netlink.HANDLE_MIN_EGRESS, stampName)
		return uplink, program, err
	}
	if uplink.Ceiling, err = d.ceiling(); err != nil {
		return uplink, 0, err
	}
	if gate {
		program, err = d.sortedBy()
	}
	return uplink, program, err
}

// ceiling that is in force; 0 when there is none, and the largest number when
// the class is missing.
func (d *device) ceiling() (units.BitsPerSecond, error) {
	classes, err := d.ClassList(d.link, netlink.MakeHandle(rootMajor, 0))
	if err != nil {
		return 0, fmt.Errorf("classes of %s: %w", d.link.Attrs().Name, err)
	}
	for _, class := range classes {
		htb, is := class.(*netlink.HtbClass)
		if !is || htb.Handle != netlink.MakeHandle(rootMajor, ceilingClass) {
			continue
		}
		if rate := units.BitsPerSecond(htb.Ceil * bitsPerByte); rate < unlimited {
			return rate, nil
		}
		return 0, nil
	}
	return math.MaxInt64, nil
}

// sortedBy is the program that sorts packets; 0: none.
func (d *device) sortedBy() (ebpf.ProgramID, error) {
	return d.programOf(netlink.MakeHandle(rootMajor, 0), filterName)
}

// programOf is the program of a filter; 0: there is no such filter.
func (d *device) programOf(parent uint32, name string) (ebpf.ProgramID, error) {
	filters, err := d.FilterList(d.link, parent)
	if err != nil {
		return 0, fmt.Errorf("filters of %s: %w", d.link.Attrs().Name, err)
	}
	for _, filter := range filters {
		if bpf, is := filter.(*netlink.BpfFilter); is && bpf.Name == name {
			return ebpf.ProgramID(bpf.Id), nil
		}
	}
	return 0, nil
}

// build gives the device the root, unless it has it, and the classes. Until the
// classes are there, and whatever no class is found for, packets pass
// unbounded.
func (d *device) build(shaping model.Shaping, owner host.QueueOwner) error {
	root := netlink.MakeHandle(rootMajor, 0)
	if owner != host.QueueOurs {
		htb := netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: d.index(), Handle: root, Parent: netlink.HANDLE_ROOT})
		htb.Defcls = passClass
		// Added, not replaced: what came in the meantime is somebody else's.
		if err := d.QdiscAdd(htb); err != nil {
			if errors.Is(err, unix.EEXIST) {
				err = host.ErrForeign
			}
			return fmt.Errorf("htb on %s: %w", d.link.Attrs().Name, err)
		}
	}
	ceiling, part := unlimited, unlimited
	if shaping.Ceiling > 0 {
		// Each class has half for itself and what the other leaves, so that both
		// together never exceed the whole.
		ceiling, part = shaping.Ceiling, shaping.Ceiling/2
	}
	top := netlink.MakeHandle(rootMajor, ceilingClass)
	for _, class := range []struct {
		parent, handle uint32
		rate           units.BitsPerSecond
		prio           uint32
	}{
		{root, top, ceiling, 0},
		{top, netlink.MakeHandle(rootMajor, passClass), part, 0},
		{top, netlink.MakeHandle(rootMajor, turnClass), part, 1},
	} {
		if err := d.ClassReplace(d.class(class.parent, class.handle, netlink.HtbClassAttrs{
			Rate: uint64(class.rate), Ceil: uint64(ceiling),
			Buffer: burst(class.rate), Cbuffer: burst(ceiling), Prio: class.prio, Quantum: largestPacket,
		})); err != nil {
			return fmt.Errorf("class of htb on %s: %w", d.link.Attrs().Name, err)
		}
	}
	queue := d.tbf(passMajor, passClass, unlimited, uint32(min(mostQueue, max(leastQueue, ceiling/bitsPerByte/10))))
	if err := d.QdiscReplace(queue); err != nil {
		return fmt.Errorf("queue of htb on %s: %w", d.link.Attrs().Name, err)
	}
	return nil
}

func (d *device) class(parent, handle uint32, attrs netlink.HtbClassAttrs) *netlink.HtbClass {
	attrs.Rate, attrs.Ceil = sendable(attrs.Rate), sendable(attrs.Ceil)
	return netlink.NewHtbClass(netlink.ClassAttrs{LinkIndex: d.index(), Parent: parent, Handle: handle}, attrs)
}

// sendable is a rate in bits per second that the kernel takes: a multiple of
// 4 GiB/s is a byte less. Beside the whole rate the netlink library sends the
// lower 32 bits, and no rate is refused.
func sendable(rate uint64) uint64 {
	if bytes := rate / bitsPerByte; bytes&math.MaxUint32 == 0 {
		return (bytes - 1) * bitsPerByte
	}
	return rate
}

// burst is what may be sent at once, in bytes. It makes up for the time that the
// kernel's timer is late on a busy node: ten milliseconds, and one at rates at
// which ten would be more than a packet.
func burst(rate units.BitsPerSecond) uint32 {
	const packets = 3200
	inMillisecond := float64(rate) / bitsPerByte / 1000
	return uint32(max(packets, min(10*inMillisecond, largestPacket), inMillisecond))
}

// tbf is a queue below a class.
func (d *device) tbf(major, class uint16, rate units.BitsPerSecond, limit uint32) *netlink.Tbf {
	bytes := uint64(rate / bitsPerByte)
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: d.index(), Handle: netlink.MakeHandle(major, 0), Parent: netlink.MakeHandle(rootMajor, class),
		},
		Rate: bytes, Limit: limit, Buffer: netlink.Xmittime(bytes, max(largestPacket, burst(rate))),
	}
}

// gate is the queue of what may wait: open at rate 0.
func (d *device) gate(trickle units.BitsPerSecond) *netlink.Tbf {
	if trickle <= 0 {
		trickle = unlimited
	}
	return d.tbf(gateMajor, turnClass, trickle, heldBytes)
}

// addGate makes the gate, open, unless there is one.
func (d *device) addGate() error {
	err := d.QdiscAdd(d.gate(0))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("gate of %s: %w", d.link.Attrs().Name, err)
	}
	return nil
}

// sort has a program sort the packets, in one step with the end of what sorted
// them before.
func (d *device) sort(program *ebpf.Program) error {
	filter := d.filter()
	filter.ClassId, filter.Fd, filter.DirectAction = netlink.MakeHandle(rootMajor, passClass), program.FD(), true
	if err := d.FilterReplace(filter); err != nil {
		return fmt.Errorf("classifier of %s: %w", d.link.Attrs().Name, err)
	}
	return nil
}

func (d *device) filter() *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: d.index(), Parent: netlink.MakeHandle(rootMajor, 0),
			Handle: filterHandle, Priority: uint16(filterPriority), Protocol: unix.ETH_P_ALL,
		},
		Name: filterName, Fd: -1,
	}
}

// unsort has all packets pass.
func (d *device) unsort() error {
	if err := d.FilterDel(d.filter()); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("classifier of %s: %w", d.link.Attrs().Name, err)
	}
	return nil
}
