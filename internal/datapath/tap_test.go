package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/test/hosttest"
)

// world is a network namespace that ends with the test.
type world struct {
	*hosttest.Outside
	t testing.TB
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{hosttest.NewOutside(t), t}
	w.Do(func() error { // nothing is sent but by the test
		return os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	})
	return w
}

// on works on a device with a netlink handle.
func (w *world) on(name string, do func(*netlink.Handle, netlink.Link) error) {
	w.t.Helper()
	w.Do(func() error {
		handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer handle.Close()
		device, err := handle.LinkByName(name)
		if err != nil {
			return err
		}
		return do(handle, device)
	})
}

// tap is a device with a reader for each of its queues, which stands for the VM.
type tap struct {
	w      *world
	name   string
	queues []int
	// sender puts frames onto the device's way to the VM.
	sender int
	// sent packets.
	sent atomic.Int64
}

func (w *world) newTap(name string, queues int) *tap {
	w.t.Helper()
	p := &tap{w: w, name: name, sender: -1}
	w.t.Cleanup(p.close)
	w.Do(func() error {
		for range queues {
			fd, err := openTap(name, queues > 1)
			if err != nil {
				return err
			}
			p.queues = append(p.queues, fd)
		}
		device, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(device)
		}
		if err == nil {
			p.sender, err = hosttest.OpenSender(name)
		}
		return err
	})
	return p
}

// newPair makes a pair of veth devices that are up. What is sent through the first is
// received by the second.
func (w *world) newPair(name, peer string) *tap {
	w.t.Helper()
	p := &tap{w: w, name: name, sender: -1}
	w.t.Cleanup(p.close)
	w.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		pair := &netlink.Veth{LinkAttrs: attrs, PeerName: peer}
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
		other, err := netlink.LinkByName(peer)
		if err := errors.Join(err, netlink.LinkSetUp(pair), netlink.LinkSetUp(other)); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		p.queues = []int{fd}
		const ipv4 = 0x0008 // in network byte order
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: other.Attrs().Index, Protocol: ipv4}); err != nil {
			return err
		}
		p.sender, err = hosttest.OpenSender(pair.Name)
		return err
	})
	hosttest.Eventually(w.t, "both devices to be up", func() bool {
		return strings.Count(strings.Join(w.dump(), "\n"), "1500 ") == strings.Count(strings.Join(w.dump(), "\n"), " up")
	})
	return p
}

// close ends the device.
func (p *tap) close() {
	for _, fd := range append(p.queues, p.sender) {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	p.queues, p.sender = nil, -1
}

func openTap(name string, several bool) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return fd, err
	}
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if several {
		flags |= unix.IFF_MULTI_QUEUE
	}
	request.SetUint16(flags)
	return fd, unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
}

// send a packet of a flow to the VM.
func (p *tap) send(flow, number int) {
	p.w.t.Helper()
	if err := unix.Send(p.sender, frameOf(flow, number), 0); err != nil {
		p.w.t.Fatalf("send: %v", err)
	}
	p.sent.Add(1)
}

// fromVM sends a packet as the VM would.
func (p *tap) fromVM() {
	p.w.t.Helper()
	if _, err := unix.Write(p.queues[0], frameOf(0, 0)); err != nil {
		p.w.t.Fatalf("send from the VM: %v", err)
	}
}

const (
	headerBytes = 14 + 20 + 8
	testPort    = 7777
)

// frameOf is a UDP packet of a flow, which carries a number.
func frameOf(flow, number int) []byte {
	payload := udp(uint16(10_000+flow), testPort, 64)
	binary.BigEndian.PutUint32(payload[8:], uint32(flow))
	binary.BigEndian.PutUint32(payload[12:], uint32(number))
	return ether(ip4("10.0.0.1", protoUDP, 0, payload), etherIPv4)
}

// arrival is a packet that came to the VM.
type arrival struct {
	flow, number int
	at           time.Duration // of CLOCK_MONOTONIC
}

// receive takes what has come, waiting for the first packet no longer than reported.
func (p *tap) receive(patience time.Duration) []arrival {
	p.w.t.Helper()
	polled := make([]unix.PollFd, len(p.queues))
	for i, fd := range p.queues {
		polled[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	wait := unix.NsecToTimespec(patience.Nanoseconds())
	if _, err := unix.Ppoll(polled, &wait, nil); err != nil && !errors.Is(err, unix.EINTR) {
		p.w.t.Fatalf("poll: %v", err)
	}
	now, err := monotonic()
	if err != nil {
		p.w.t.Fatal(err)
	}
	var arrivals []arrival
	frame := make([]byte, 2048)
	for _, fd := range p.queues {
		for {
			n, err := unix.Read(fd, frame)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				p.w.t.Fatalf("read: %v", err)
			}
			if udp := frame[34:]; n == headerBytes+64 && frame[23] == unix.IPPROTO_UDP && binary.BigEndian.Uint16(udp[2:]) == testPort {
				arrivals = append(arrivals, arrival{
					int(binary.BigEndian.Uint32(udp[8:])), int(binary.BigEndian.Uint32(udp[12:])), now,
				})
			}
		}
	}
	return arrivals
}

// newDatapath closes with the test.
func newDatapath(t testing.TB, opts Options) *Datapath {
	t.Helper()
	d := New(opts)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// dump is all that a namespace's devices have, as text.
func (w *world) dump() []string {
	w.t.Helper()
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	w.Do(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, device := range links {
			attrs := device.Attrs()
			add("%s: %x %d %d %s", attrs.Name, attrs.RawFlags, attrs.MTU, attrs.TxQLen, attrs.OperState)
			qdiscs, err := netlink.QdiscList(device)
			if err != nil {
				return err
			}
			for _, qdisc := range qdiscs {
				a := *qdisc.Attrs()
				a.Statistics, a.LinkIndex = nil, 0
				add("  %s %s", qdisc.Type(), a.String())
			}
			for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
				filters, err := netlink.FilterList(device, parent)
				if err != nil && !isAbsent(err) {
					return err
				}
				for _, filter := range filters {
					add("  %s %s", filter.Type(), filter.Attrs())
				}
			}
		}
		return nil
	})
	return lines
}
