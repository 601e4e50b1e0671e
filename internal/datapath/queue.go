package datapath

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrForeign means that somebody else decides about a device's packets: theirs is left
// as it is.
var ErrForeign = errors.New("the device has a queueing discipline of somebody else")

// Owner tells whose queueing discipline a device has.
type Owner int

// The owners.
const (
	// OwnerKernel: the kernel's own, which comes back when ours is removed.
	OwnerKernel Owner = iota
	// OwnerUs: what Apply gave it.
	OwnerUs
	// OwnerOther: somebody else's.
	OwnerOther
)

// What Apply gives a device in place of the kernel's queueing discipline, by the number
// that makes it known:
//
//	fq 4a5b:   of a device with one queue
//
//	mq 4a5b:   of a device with several
//	  fq       on each queue that is in use
const (
	queueMajor   = 0x4a5b
	kindOne      = "fq"
	kindMany     = "mq"
	kindClsact   = "clsact"
	kindIngress  = "ingress"
	flowPackets  = 4000  // of one flow that wait at most: far above a bunch
	totalPackets = 20000 // of one queue
	// horizon is the longest that fq holds a packet, whatever its stamp says. It is far
	// above a window, and bounds what is waited for when fq is removed.
	horizon = 50 * time.Millisecond
)

// queue is what a device has of queueing disciplines.
type queue struct {
	owner Owner
	// name of the root, such as "fq_codel 0:".
	name string
	many bool
	// fit is true of a root that needs no change, and lacking are the queues below it
	// without an fq that is as it should be.
	fit     bool
	lacking []uint32
	// clsact and ingress exclude one another.
	clsact, ingress bool
	// waiting packets, and those that were dropped.
	waiting, drops uint64
}

// complete tells whether packets that are stamped leave in time.
func (q queue) complete() bool { return q.owner == OwnerUs && q.fit && len(q.lacking) == 0 }

func readQueue(handle *netlink.Handle, device netlink.Link) (queue, error) {
	qdiscs, err := handle.QdiscList(device)
	if err != nil {
		return queue{}, fmt.Errorf("queueing disciplines of %s: %w", device.Attrs().Name, err)
	}
	inUse := 0
	if tap, is := device.(*netlink.Tuntap); is {
		inUse = tap.Queues
	}
	return queueOf(qdiscs, inUse), nil
}

// queueOf makes out what is whose. inUse is how many queues of the device are in use, as
// far as it tells: the kernel lists its own below an mq of those only.
func queueOf(qdiscs []netlink.Qdisc, inUse int) queue {
	q := queue{name: "noqueue 0:"}
	var root netlink.Qdisc
	below := map[uint32]netlink.Qdisc{}
	for _, qdisc := range qdiscs {
		switch attrs := qdisc.Attrs(); {
		case qdisc.Type() == kindClsact:
			q.clsact = true
		case qdisc.Type() == kindIngress:
			q.ingress = true
		case attrs.Parent == netlink.HANDLE_ROOT:
			root = qdisc
		default:
			below[attrs.Parent] = qdisc
		}
	}
	if root == nil {
		return q
	}
	attrs := root.Attrs()
	q.name, q.many, q.fit = nameOf(root), root.Type() == kindMany, isFit(root)
	if attrs.Statistics != nil && attrs.Statistics.Queue != nil {
		q.waiting, q.drops = uint64(attrs.Statistics.Queue.Qlen), uint64(attrs.Statistics.Queue.Drops)
	}
	switch {
	case attrs.Handle == 0:
	case attrs.Handle == netlink.MakeHandle(queueMajor, 0) && (q.many || root.Type() == kindOne):
		q.owner = OwnerUs
	default:
		q.owner = OwnerOther
	}
	if q.many {
		q.addBelow(attrs.Handle, below, inUse)
	}
	return q
}

// addBelow makes out what is below an mq.
func (q *queue) addBelow(root uint32, below map[uint32]netlink.Qdisc, inUse int) {
	q.fit = true
	most := uint32(max(1, inUse))
	for parent := range below {
		if major, minor := netlink.MajorMinor(parent); netlink.MakeHandle(major, 0) == root {
			most = max(most, uint32(minor))
		}
	}
	ours := q.owner == OwnerUs
	for minor := uint32(1); minor <= most; minor++ {
		qdisc := below[root|minor]
		if qdisc == nil || qdisc.Attrs().Handle == 0 || !isFit(qdisc) {
			q.lacking = append(q.lacking, minor)
		}
		if qdisc != nil && qdisc.Attrs().Handle != 0 && (!ours || qdisc.Type() != kindOne) {
			q.owner, q.name = OwnerOther, nameOf(qdisc)
		}
	}
}

func nameOf(qdisc netlink.Qdisc) string {
	return fmt.Sprintf("%s %x:", qdisc.Type(), qdisc.Attrs().Handle>>16)
}

// isFit tells whether an fq does what it is here for.
func isFit(qdisc netlink.Qdisc) bool {
	fq, is := qdisc.(*netlink.Fq)
	return is && fq.Pacing == 0 && fq.PacketLimit == totalPackets && fq.FlowPacketLimit == flowPackets &&
		fq.Horizon == uint32(horizon.Microseconds()) && fq.HorizonDropPolicy == netlink.HORIZON_DROP_POLICY_CAP
}

// newFq below a parent. Stamps alone say when packets leave: what is sent from this node
// to the device is not paced, and what is stamped too far ahead leaves at the horizon.
func newFq(device netlink.Link, handle, parent uint32) *netlink.Fq {
	fq := netlink.NewFq(netlink.QdiscAttrs{LinkIndex: device.Attrs().Index, Handle: handle, Parent: parent})
	fq.Pacing = 0
	fq.PacketLimit, fq.FlowPacketLimit = totalPackets, flowPackets
	fq.Horizon, fq.HorizonDropPolicy = uint32(horizon.Microseconds()), netlink.HORIZON_DROP_POLICY_CAP
	return fq
}

// install gives the device what it lacks.
func (q queue) install(handle *netlink.Handle, device netlink.Link) error {
	name, root := device.Attrs().Name, netlink.MakeHandle(queueMajor, 0)
	if q.owner == OwnerKernel {
		var ours netlink.Qdisc = newFq(device, root, netlink.HANDLE_ROOT)
		if q.many {
			ours = newMq(device)
		}
		// Added, not replaced: what came in the meantime is somebody else's.
		err := handle.QdiscAdd(ours)
		if errors.Is(err, unix.EEXIST) {
			err = ErrForeign
		}
		if err != nil {
			return fmt.Errorf("%s on %s: %w", ours.Type(), name, err)
		}
	} else if !q.fit {
		if err := handle.QdiscChange(newFq(device, root, netlink.HANDLE_ROOT)); err != nil {
			return fmt.Errorf("settings of fq on %s: %w", name, err)
		}
	}
	for _, minor := range q.lacking {
		if err := handle.QdiscReplace(newFq(device, 0, root|minor)); err != nil {
			return fmt.Errorf("fq on queue %d of %s: %w", minor, name, err)
		}
	}
	return nil
}

func newMq(device netlink.Link) netlink.Qdisc {
	return &netlink.GenericQdisc{QdiscType: kindMany, QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: device.Attrs().Index, Handle: netlink.MakeHandle(queueMajor, 0), Parent: netlink.HANDLE_ROOT,
	}}
}

// uninstall gives the device the kernel's own back.
func (q queue) uninstall(handle *netlink.Handle, device netlink.Link) error {
	if q.owner != OwnerUs {
		return nil
	}
	if err := handle.QdiscDel(newMq(device)); err != nil && !isAbsent(err) {
		return fmt.Errorf("remove %s from %s: %w", q.name, device.Attrs().Name, err)
	}
	return nil
}

func isAbsent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV)
}

// drain waits until nothing waits in front of the device, as long as anything can.
func drain(handle *netlink.Handle, device netlink.Link) error {
	const look = 500 * time.Microsecond
	for end := time.Now().Add(2 * horizon); ; {
		q, err := readQueue(handle, device)
		if err != nil || q.owner != OwnerUs || q.waiting == 0 || time.Now().After(end) {
			return err
		}
		<-time.After(look)
	}
}
