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

// Owner is whose queueing discipline a device has.
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
//	fq 4a5b:   of a device with one queue (4a59: of one that is shaped)
//
//	mq 4a5b:   of a device with several
//	  fq       on each queue that is in use
const (
	qdiscOne     = "fq"
	qdiscMany    = "mq"
	qdiscClsact  = "clsact"
	qdiscIngress = "ingress"
	// longestDrain bounds how long the removal of a queue waits for what waits in it. What a
	// turn holds for longer is lost: no stamp can be changed, and the senders send it again.
	longestDrain = 100 * time.Millisecond
)

// major is the number of the queueing discipline of a kind.
func (k kind) major() uint16 {
	if k == shaping {
		return 0x4a59
	}
	return 0x4a5b
}

// bounds are what a queue of a kind holds.
type bounds struct {
	// packets in all, and of one flow.
	packets, flowPackets uint32
	// horizon is the longest that a packet waits, whatever its stamp says.
	horizon time.Duration
}

func (k kind) bounds() bounds {
	if k == shaping {
		// The program bounds what waits, by bytes.
		return bounds{packets: 1 << 17, flowPackets: 1 << 17, horizon: time.Minute}
	}
	// Far above a bunch, and far above a window.
	return bounds{packets: 20_000, flowPackets: 4000, horizon: 50 * time.Millisecond}
}

// queue is what a device has of queueing disciplines.
type queue struct {
	owner Owner
	// kind that it serves, when it is ours.
	kind kind
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

// complete returns true if packets that are stamped leave in time.
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
// far as it says: the kernel lists its own below an mq of those only.
func queueOf(qdiscs []netlink.Qdisc, inUse int) queue {
	q := queue{name: "noqueue 0:"}
	var root netlink.Qdisc
	below := map[uint32]netlink.Qdisc{}
	for _, qdisc := range qdiscs {
		switch attrs := qdisc.Attrs(); {
		case qdisc.Type() == qdiscClsact:
			q.clsact = true
		case qdisc.Type() == qdiscIngress:
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
	if attrs.Handle == netlink.MakeHandle(shaping.major(), 0) {
		q.kind = shaping
	}
	q.name, q.many, q.fit = nameOf(root), root.Type() == qdiscMany, isFit(root, q.kind)
	if attrs.Statistics != nil && attrs.Statistics.Queue != nil {
		q.waiting, q.drops = uint64(attrs.Statistics.Queue.Qlen), uint64(attrs.Statistics.Queue.Drops)
	}
	switch {
	case attrs.Handle == 0:
	case attrs.Handle == netlink.MakeHandle(q.kind.major(), 0) && (q.many || root.Type() == qdiscOne):
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
		if qdisc == nil || qdisc.Attrs().Handle == 0 || !isFit(qdisc, q.kind) {
			q.lacking = append(q.lacking, minor)
		}
		if qdisc != nil && qdisc.Attrs().Handle != 0 && (!ours || qdisc.Type() != qdiscOne) {
			q.owner, q.name = OwnerOther, nameOf(qdisc)
		}
	}
}

func nameOf(qdisc netlink.Qdisc) string {
	return fmt.Sprintf("%s %x:", qdisc.Type(), qdisc.Attrs().Handle>>16)
}

// isFit returns true if an fq does what it is here for.
func isFit(qdisc netlink.Qdisc, k kind) bool {
	fq, is := qdisc.(*netlink.Fq)
	b := k.bounds()
	return is && fq.Pacing == 0 && fq.PacketLimit == b.packets && fq.FlowPacketLimit == b.flowPackets &&
		fq.Horizon == uint32(b.horizon.Microseconds()) && fq.HorizonDropPolicy == netlink.HORIZON_DROP_POLICY_CAP
}

// newFq below a parent. Stamps alone say when packets leave: what is sent from this node
// to the device is not paced, and what is stamped too far ahead leaves at the horizon.
func newFq(k kind, device netlink.Link, handle, parent uint32) *netlink.Fq {
	b := k.bounds()
	fq := netlink.NewFq(netlink.QdiscAttrs{LinkIndex: device.Attrs().Index, Handle: handle, Parent: parent})
	fq.Pacing = 0
	fq.PacketLimit, fq.FlowPacketLimit = b.packets, b.flowPackets
	fq.Horizon, fq.HorizonDropPolicy = uint32(b.horizon.Microseconds()), netlink.HORIZON_DROP_POLICY_CAP
	return fq
}

// install gives the device what it lacks.
func (q queue) install(k kind, handle *netlink.Handle, device netlink.Link) error {
	name, root := device.Attrs().Name, netlink.MakeHandle(k.major(), 0)
	if q.owner == OwnerKernel {
		var ours netlink.Qdisc = newFq(k, device, root, netlink.HANDLE_ROOT)
		if q.many {
			ours = newMq(k, device)
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
		if err := handle.QdiscChange(newFq(k, device, root, netlink.HANDLE_ROOT)); err != nil {
			return fmt.Errorf("settings of fq on %s: %w", name, err)
		}
	}
	for _, minor := range q.lacking {
		if err := handle.QdiscReplace(newFq(k, device, 0, root|minor)); err != nil {
			return fmt.Errorf("fq on queue %d of %s: %w", minor, name, err)
		}
	}
	return nil
}

func newMq(k kind, device netlink.Link) netlink.Qdisc {
	return &netlink.GenericQdisc{QdiscType: qdiscMany, QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: device.Attrs().Index, Handle: netlink.MakeHandle(k.major(), 0), Parent: netlink.HANDLE_ROOT,
	}}
}

// uninstall gives the device the kernel's own back.
func (q queue) uninstall(handle *netlink.Handle, device netlink.Link) error {
	if q.owner != OwnerUs {
		return nil
	}
	if err := handle.QdiscDel(newMq(q.kind, device)); err != nil && !isAbsent(err) {
		return fmt.Errorf("remove %s from %s: %w", q.name, device.Attrs().Name, err)
	}
	return nil
}

func isAbsent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV)
}

// drain waits until nothing waits in front of the device, as long as anything can.
func drain(handle *netlink.Handle, device netlink.Link) error {
	const interval = 500 * time.Microsecond
	for end := time.Now().Add(longestDrain); ; {
		q, err := readQueue(handle, device)
		if err != nil || q.owner != OwnerUs || q.waiting == 0 || time.Now().After(end) {
			return err
		}
		<-time.After(interval)
	}
}

// Drops is how many packets were dropped by what Apply gave a device, of all queueing
// disciplines that the device has; false when none of them is ours.
func Drops(qdiscs []netlink.Qdisc) (uint64, bool) {
	q := queueOf(qdiscs, 0)
	return q.drops, q.owner == OwnerUs
}
