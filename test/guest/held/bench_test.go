//go:build held

package held

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/datapathtest"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

const (
	// card is the guest's; tap is the host's end of it, in a network namespace of its own.
	card, tap       = "eth0", "eth1"
	guestIP, hostIP = "10.77.0.2", "10.77.0.1"
	// The guest echoes, counts and takes in what comes to these.
	echoAt, sinkAt, drainAt = guestIP + ":7", guestIP + ":9", guestIP + ":5001"
	// leased is how long packets may be held without the host's agent saying so again.
	leased = 5 * time.Second
)

// bench is a guest and its host.
type bench struct {
	*testing.T
	host *hosttest.Outside
	path *datapath.Datapath
	pins string
	// queue is the name of the interrupt for packets towards the guest.
	queue string
	mac   net.HardwareAddr // the guest's
	sink  *sink
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, host: hosttest.NewOutside(t), pins: hosttest.NewPinRoot(t), sink: &sink{next: map[netip.AddrPort]uint64{}}}
	device, err := os.Readlink(filepath.Join("/sys/class/net", card, "device"))
	b.must(err)
	b.queue = filepath.Base(device) + "-input.0"
	guestMAC, hostMAC := b.connect()
	b.mac = guestMAC
	b.must(setUp(card, guestIP, hostIP, hostMAC))
	b.host.Do(func() error { return setUp(tap, hostIP, guestIP, guestMAC) })

	b.path = datapath.New(datapath.Options{PinRoot: b.pins})
	ticker := time.NewTicker(leased / 5)
	b.Cleanup(func() {
		ticker.Stop()
		b.must(b.path.Close())
	})
	go func() {
		for range ticker.C {
			_ = b.path.Extend(leased) // packets that are not held show it
		}
	}()
	b.serve()
	return b
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// connect moves the host's end to where it belongs, and returns both addresses.
func (b *bench) connect() (guest, host net.HardwareAddr) {
	b.Helper()
	inside, err := netlink.LinkByName(card)
	b.must(err)
	outside, err := netlink.LinkByName(tap)
	b.must(err)
	var space int
	b.host.Do(func() (err error) {
		space, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	defer unix.Close(space)
	b.must(netlink.LinkSetNsFd(outside, space))
	return inside.Attrs().HardwareAddr, outside.Attrs().HardwareAddr
}

// setUp gives a device an address. It knows the other end, which has to ask for nothing while
// something is measured.
func setUp(device, own, other string, mac net.HardwareAddr) error {
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+device+"/disable_ipv6", []byte("1"), 0); err != nil {
		return err
	}
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(own + "/24")
	if err != nil {
		return err
	}
	// A card takes only what is sent to it, a tap all.
	return errors.Join(netlink.SetPromiscOn(link), netlink.AddrAdd(link, address), netlink.LinkSetUp(link), netlink.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, IP: net.ParseIP(other), HardwareAddr: mac, State: netlink.NUD_PERMANENT,
	}))
}

// hold has packets towards the guest held; with a zero configuration none are.
func (b *bench) hold(config datapath.Config) {
	b.Helper()
	b.host.Do(func() error {
		handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer handle.Close()
		link, err := handle.LinkByName(tap)
		if err != nil {
			return err
		}
		if config.IsZero() {
			return b.path.Remove(handle, link, tap)
		}
		return errors.Join(b.path.Apply(handle, link, tap, config), b.path.Extend(leased))
	})
}

// holding is how packets are held here. Holding begins well below the rate of the loads.
func holding() datapath.Config {
	return datapath.ConfigOf(model.Buffering{Window: window, FloodWindow: window, OnPackets: 2000})
}

func (b *bench) held() uint64 {
	b.Helper()
	_, held, err := datapathtest.CountHeld(filepath.Join(b.pins, "*"))
	b.must(err)
	return held
}

// interrupts of the guest for packets towards it.
func (b *bench) interrupts() (uint64, error) {
	text, err := os.ReadFile("/proc/interrupts")
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); fields[len(fields)-1] == b.queue {
			return strconv.ParseUint(fields[1], 10, 64) // of the only CPU
		}
	}
	return 0, errors.Join(err, fmt.Errorf("there is no %s in:\n%s", b.queue, text))
}

// serve has the guest take in what is sent to it, until the machine ends.
func (b *bench) serve() {
	b.Helper()
	echo, err := net.ListenPacket("udp4", echoAt)
	b.must(err)
	go func() {
		for packet := make([]byte, 64); ; {
			if n, from, err := echo.ReadFrom(packet); err == nil {
				_, _ = echo.WriteTo(packet[:n], from) // what is lost is the asker's to notice
			}
		}
	}()
	numbered, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(sinkAt)))
	b.must(err)
	b.must(numbered.SetReadBuffer(4 << 20))
	go func() {
		for packet := make([]byte, 64); ; {
			if n, from, err := numbered.ReadFromUDPAddrPort(packet); err == nil && n >= 8 {
				b.sink.add(from, binary.BigEndian.Uint64(packet))
			}
		}
	}()
	drain, err := net.Listen("tcp4", drainAt)
	b.must(err)
	go func() {
		for {
			conn, err := drain.Accept()
			if err != nil {
				continue
			}
			go func() {
				defer conn.Close()
				for buffer := make([]byte, 64<<10); err == nil; {
					_, err = conn.Read(buffer)
				}
			}()
		}
	}()
}

// sink counts what came of flows whose packets are numbered.
type sink struct {
	mu sync.Mutex
	// came are those that followed the one before of their flow, others those that did not.
	came, others int
	next         map[netip.AddrPort]uint64
}

func (s *sink) add(from netip.AddrPort, number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number == s.next[from] {
		s.came++
	} else {
		s.others++
	}
	s.next[from] = number + 1
}

func (s *sink) counts() (came, others int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.came, s.others
}

func (s *sink) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came, s.others = 0, 0
	clear(s.next) // a port may serve another flow
}

// now is CLOCK_MONOTONIC.
func now() time.Duration {
	var at unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &at) // which is always there
	return time.Duration(at.Nano())
}

// until waits for a time of now, to some microseconds: timers of Go are a millisecond late.
func until(at time.Duration) {
	due := unix.NsecToTimespec(int64(at))
	for errors.Is(unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &due, nil), unix.EINTR) {
	}
}

// fromHost does something as the host does, on a thread that wakes up in time.
func (b *bench) fromHost(do func() error) {
	b.Helper()
	b.host.Do(func() error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
			return err
		}
		return do()
	})
}
