//go:build held

package held

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

const (
	// rate of packets that are held, and the window of that.
	rate, flows = 5000, 4
	between     = time.Second / rate
	window      = 500 * time.Microsecond
	// settle is when packets of a load are held: they have to come fast for a second, and
	// decisions are an eighth apart.
	settle    = 1200 * time.Millisecond
	measuring = 900 * time.Millisecond
	// toolsSettle is when the guest's tools defer interrupts: they count each second, and want
	// packets to come fast in a whole one.
	toolsSettle = 2200 * time.Millisecond
	// mostInterrupts is what is left of them, as a share of those without.
	mostInterrupts = 0.65
	// kept is what is left of TCP's throughput, at least.
	kept = 0.95
)

func TestHeld(t *testing.T) {
	b := newBench(t)
	story := func(name string, tell func(*bench)) {
		t.Run(name, func(t *testing.T) {
			part := *b
			part.T = t
			tell(&part)
		})
	}
	story("Loads", (*bench).loads)
	story("TCP", (*bench).tcp)
	story("Flood", (*bench).flood)
}

// load is what a load caused.
type load struct {
	// interrupts per second, and the lower quartile of round trips beside it.
	interrupts float64
	rtt        time.Duration
}

// loads: holding saves interrupts, and more of them with the guest's tools. No packet is lost or
// overtaken, and none waits for longer than a window.
func (b *bench) loads() {
	without := b.load(settle)
	if without.interrupts < 0.95*rate {
		b.Fatalf("%.0f interrupts/s for %d packets/s of which none is held", without.interrupts, rate)
	}
	b.hold(holding())
	defer b.hold(datapath.Config{})
	before := b.held()
	with := b.load(settle)
	if held := b.held() - before; float64(held) < 0.95*rate*measuring.Seconds() {
		b.Errorf("only %d packets were held", held)
	}
	ratio := with.interrupts / without.interrupts
	b.Logf("figure buffer_irq_ratio_500us %.4g with over without", ratio)
	if ratio > mostInterrupts {
		b.Errorf("%.0f interrupts/s with packets held, %.0f without", with.interrupts, without.interrupts)
	}
	// Packets from the guest are not held without its tools.
	if added := with.rtt - without.rtt; added > window {
		b.Errorf("round trips take %v longer, with a window of %v", added, window)
	}
	defer b.startTools()()
	if deferred := b.load(toolsSettle); deferred.interrupts > mostInterrupts*with.interrupts {
		b.Errorf("%.0f interrupts/s with the guest's tools, %.0f without", deferred.interrupts, with.interrupts)
	}
}

// load sends small packets to the guest, and measures what that causes once it has settled.
func (b *bench) load(settled time.Duration) load {
	b.Helper()
	var l load
	b.sink.clear()
	total := int((settled + measuring) / between)
	b.fromHost(func() error {
		var sockets []net.Conn
		for range flows {
			conn, err := net.Dial("udp4", sinkAt)
			if err != nil {
				return err
			}
			defer conn.Close()
			sockets = append(sockets, conn)
		}
		var from uint64
		var begun time.Duration
		trips := make(chan []time.Duration, 1)
		start := now()
		packet := make([]byte, 18)
		for n := range total {
			until(start + time.Duration(n)*between)
			if n == int(settled/between) {
				var err error
				if from, err = b.interrupts(); err != nil {
					return err
				}
				begun = now()
				go func() { trips <- b.roundTrips() }()
			}
			binary.BigEndian.PutUint64(packet, uint64(n/flows))
			if _, err := sockets[n%flows].Write(packet); err != nil {
				return err
			}
		}
		until, err := b.interrupts()
		l.interrupts = float64(until-from) / (now() - begun).Seconds()
		if err != nil {
			return err
		}
		if late := now() - start - time.Duration(total)*between; late > 10*between {
			return fmt.Errorf("the load took %v too long", late)
		}
		l.rtt = lowerQuartile(<-trips)
		return nil
	})
	hosttest.Eventually(b, "all packets", func() bool {
		came, others := b.sink.counts()
		return came+others >= total
	})
	if came, others := b.sink.counts(); came != total || others > 0 {
		b.Errorf("of %d packets %d came in order, %d did not", total, came, others)
	}
	b.Logf("%v: %+v", settled, l)
	return l
}

// roundTrips asks the guest's echo, rarely: it is not the load.
func (b *bench) roundTrips() (took []time.Duration) {
	const count, gap = 80, 8125 * time.Microsecond // each at another place of a window
	b.fromHost(func() error {
		conn, err := net.Dial("udp4", echoAt)
		if err != nil {
			return err
		}
		defer conn.Close()
		start := now()
		for n := range count {
			until(start + time.Duration(n)*gap)
			asked := now()
			if _, err := conn.Write(make([]byte, 18)); err != nil {
				return err
			}
			if _, err := conn.Read(make([]byte, 18)); err != nil {
				return err
			}
			took = append(took, now()-asked)
		}
		return nil
	})
	return took
}

// startTools starts the guest's tools, waits until the host lets both halves hold, and returns what
// ends them.
func (b *bench) startTools() (end func()) {
	b.Helper()
	output := filepath.Join(b.TempDir(), "tools.log")
	log, err := os.Create(output)
	b.must(err)
	defer log.Close()
	tools := exec.Command("/bin/joulevirt-guest", "--state-dir=/tmp/tools")
	tools.Stdout, tools.Stderr = log, log
	b.must(tools.Start())
	hosttest.Eventually(b, "the host to let the tools hold", func() bool {
		said, err := os.ReadFile(output)
		b.must(err)
		return strings.Contains(string(said), `msg="transmit half" card=eth0 state=InForce`) &&
			strings.Contains(string(said), `msg="receive half" card=eth0 state=InForce`)
	})
	return func() { b.must(errors.Join(tools.Process.Signal(syscall.SIGTERM), tools.Wait())) }
}

// tcp: streams are as fast with packets held.
func (b *bench) tcp() {
	const paced = 7_500_000 // bytes a second, about as many packets as the loads
	free, bounded := b.stream(0), b.stream(paced)
	b.hold(holding())
	defer b.hold(datapath.Config{})
	before := b.held()
	boundedHeld := b.stream(paced)
	const segmentBytes = 1448
	if held := float64(b.held() - before); held < boundedHeld*measuring.Seconds()/segmentBytes {
		b.Errorf("only %.0f segments were held", held)
	}
	freeHeld := b.stream(0)
	b.Logf("Mbit/s: free %.0f, held %.0f; bounded %.1f, held %.1f", free*8e-6, freeHeld*8e-6, bounded*8e-6, boundedHeld*8e-6)
	if bounded < kept*paced || boundedHeld < kept*bounded || freeHeld < kept*free {
		b.Error("streams are slower with packets held, or than their bound")
	}
}

// stream sends to the guest by TCP, and returns the bytes a second that were acknowledged once it had
// settled. A stream that is bounded has packets of one segment.
func (b *bench) stream(bytesPerSecond int) (speed float64) {
	b.Helper()
	b.fromHost(func() error {
		if bytesPerSecond > 0 {
			link, err := netlink.LinkByName(tap)
			if err == nil {
				err = netlink.LinkSetGSOMaxSegs(link, 1)
			}
			if err != nil {
				return err
			}
			defer func() { _ = netlink.LinkSetGSOMaxSegs(link, int(link.Attrs().GSOMaxSegs)) }()
		}
		conn, err := net.Dial("tcp4", drainAt)
		if err != nil {
			return err
		}
		defer conn.Close()
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err == nil && bytesPerSecond > 0 {
			err = errors.Join(raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, bytesPerSecond)
			}), err)
		}
		if err != nil {
			return err
		}
		var acked [2]uint64
		var at [2]time.Duration
		for i, during := range []time.Duration{settle, measuring} {
			if err := sendFor(conn, during); err != nil {
				return err
			}
			var info *unix.TCPInfo
			at[i] = now()
			if err := errors.Join(raw.Control(func(fd uintptr) {
				info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			}), err); err != nil {
				return err
			}
			acked[i] = info.Bytes_acked
		}
		speed = float64(acked[1]-acked[0]) / (at[1] - at[0]).Seconds()
		return nil
	})
	return speed
}

// sendFor sends what a connection takes, for a time.
func sendFor(conn net.Conn, during time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(during)); err != nil {
		return err
	}
	var err error
	for block := make([]byte, 64<<10); err == nil; {
		_, err = conn.Write(block)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// flood: packets are held whatever the flood is of, though the plan is to hold floods alone, and
// the guest serves its own clients meanwhile.
func (b *bench) flood() {
	config := holding()
	config.Window, config.FloodPackets = 0, 3000
	for name, packet := range map[string]func() []byte{"syn": b.syn, "udp": b.emptyUDP, "icmp": b.echoRequest} {
		without := b.flooded(packet)
		b.hold(config)
		with := b.flooded(packet)
		b.hold(datapath.Config{})
		ratio := with.interrupts / without.interrupts
		b.Logf("figure flood_irq_ratio_%s %.4g with over without", name, ratio)
		b.Logf("%s: interrupts/s %.0f without, %.0f with; the guest's own replies take %v and %v",
			name, without.interrupts, with.interrupts, without.rtt, with.rtt)
		if ratio > mostInterrupts {
			b.Errorf("%s: %.0f interrupts/s with the flood held, %.0f without", name, with.interrupts, without.interrupts)
		}
	}
}

// flooded floods the guest for long enough for the flood to be told, and returns what that causes
// from then on.
func (b *bench) flooded(packet func() []byte) (l load) {
	b.Helper()
	const settle, during, gap = 2500 * time.Millisecond, time.Second, time.Second / 8000
	b.fromHost(func() error {
		fd, err := hosttest.OpenSender(tap)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		var from uint64
		var begun time.Duration
		trips := make(chan []time.Duration, 1)
		start := now()
		for n := range int((settle + during) / gap) {
			until(start + time.Duration(n)*gap)
			if n == int(settle/gap) {
				if from, err = b.interrupts(); err != nil {
					return err
				}
				begun = now()
				go func() { trips <- b.roundTrips() }()
			}
			if _, err := unix.Write(fd, packet()); err != nil {
				return err
			}
		}
		until, err := b.interrupts()
		l.interrupts = float64(until-from) / (now() - begun).Seconds()
		l.rtt = lowerQuartile(<-trips)
		return err
	})
	return l
}

func lowerQuartile(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)/4]
}

// syn is the frame of a TCP connection to the guest that a random address in 11.0.0.0/8 opens.
func (b *bench) syn() []byte {
	frame := b.frame(unix.IPPROTO_TCP, 11<<24|rand.Uint32()&0xffffff)
	tcp := frame[34:]
	binary.BigEndian.PutUint16(tcp[2:], 80)
	tcp[12], tcp[13] = 5<<4, 0x02
	return frame
}

// emptyUDP is the frame of a datagram without payload from the host to a port that nobody serves.
func (b *bench) emptyUDP() []byte {
	frame := b.frame(unix.IPPROTO_UDP, binary.BigEndian.Uint32(net.ParseIP(hostIP).To4()))
	udp := frame[34:]
	binary.BigEndian.PutUint16(udp[2:], 9000)
	binary.BigEndian.PutUint16(udp[4:], 8)
	return frame
}

// echoRequest is the frame of an ICMP echo request of the host's, which the guest answers.
func (b *bench) echoRequest() []byte {
	frame := b.frame(unix.IPPROTO_ICMP, binary.BigEndian.Uint32(net.ParseIP(hostIP).To4()))
	icmp := frame[34:]
	icmp[0] = 8
	binary.BigEndian.PutUint16(icmp[2:], checksum(icmp))
	return frame
}

// frame is one of 60 bytes to the guest, with an IP header.
func (b *bench) frame(protocol byte, source uint32) []byte {
	frame := make([]byte, 60)
	copy(frame, b.mac)
	frame[12] = 0x08 // IPv4
	ip := frame[14:34]
	ip[0], ip[3], ip[8], ip[9] = 0x45, byte(len(frame)-14), 64, protocol
	binary.BigEndian.PutUint32(ip[12:], source)
	copy(ip[16:], net.ParseIP(guestIP).To4())
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	return frame
}

// checksum is that of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
