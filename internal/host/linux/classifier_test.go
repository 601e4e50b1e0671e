package linux

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// packet is what a test has the classifier sort.
type packet struct {
	ipv6     bool
	ether    uint16 // 0: that of IP
	protocol byte
	port     uint16 // of the source: tells flows apart
	payload  int    // behind the TCP or UDP header
	mark     uint32
}

// frame is the packet with headers as far as the classifier reads.
func (p packet) frame() []byte {
	ether, network := uint16(unix.ETH_P_IP), make([]byte, 20)
	header := map[byte]int{unix.IPPROTO_TCP: 32, unix.IPPROTO_UDP: 8}[p.protocol]
	transport := make([]byte, header+p.payload)
	if p.ipv6 {
		ether, network = unix.ETH_P_IPV6, make([]byte, 40)
		network[0], network[6], network[7] = 6<<4, p.protocol, 64
		binary.BigEndian.PutUint16(network[4:], uint16(len(transport)))
		network[23], network[39] = 1, 2
	} else {
		network[0], network[8], network[9] = 4<<4|5, 64, p.protocol
		binary.BigEndian.PutUint16(network[2:], uint16(len(network)+len(transport)))
		network[15], network[19] = 1, 2
	}
	if header > 0 {
		binary.BigEndian.PutUint16(transport, p.port)
		binary.BigEndian.PutUint16(transport[2:], 80)
	}
	if p.protocol == unix.IPPROTO_TCP {
		transport[12] = 32 / 4 << 4 // with timestamps
	}
	if p.ether != 0 {
		ether = p.ether
	}
	var ethernet [14]byte
	binary.BigEndian.PutUint16(ethernet[12:], ether)
	return slices.Concat(ethernet[:], network, transport)
}

// skb is the beginning of struct __sk_buff.
type skb struct {
	Len, PktType, Mark, QueueMapping, Protocol uint32
	_                                          [3]uint32
	Priority                                   uint32
	_                                          [29]uint32
	Tstamp                                     uint64
	_                                          [8]uint32
}

// sortOf returns the action and whether the packet may wait.
func sortOf(t *testing.T, program *ebpf.Program, p packet) (action uint32, turn bool) {
	t.Helper()
	in, out := skb{Mark: p.mark}, skb{}
	action, err := program.Run(&ebpf.RunOptions{Data: p.frame(), Context: in, ContextOut: &out})
	if err != nil {
		t.Fatal(err)
	}
	return action, out.Priority == turnClass
}

func newTestClassifier(t *testing.T, valid time.Duration) (*classifier, *ebpf.Program) {
	t.Helper()
	c, err := newClassifier()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.close() })
	now, err := (&Host{}).Monotonic()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.keep(now + valid); err != nil {
		t.Fatal(err)
	}
	// A test run does not show the class.
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, Instructions: c.classify(10*time.Second, skbPriority)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return c, program
}

func TestWhatMayWait(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		_, program := newTestClassifier(t, time.Hour)
		tcp := func(port uint16, payload int) packet {
			return packet{ipv6: ipv6, protocol: unix.IPPROTO_TCP, port: port, payload: payload}
		}
		udp := func(port uint16, payload int) packet {
			return packet{ipv6: ipv6, protocol: unix.IPPROTO_UDP, port: port, payload: payload}
		}
		icmp := packet{ipv6: ipv6, protocol: unix.IPPROTO_ICMPV6, payload: 64}
		large := icmp
		large.payload = 1000
		for _, step := range []struct {
			what string
			p    packet
			turn bool
		}{
			{"a small TCP segment of a new flow", tcp(1, 100), false},
			{"a large one", tcp(1, 1000), true},
			{"a small one behind it", tcp(1, 100), true},
			{"an acknowledgement behind it", tcp(1, 0), false},
			{"a small one of another flow", tcp(2, 100), false},
			{"a small datagram", udp(3, 100), false},
			{"a large one", udp(3, 1200), true},
			{"a small one behind it", udp(3, 100), true},
			{"a ping", icmp, false},
			{"a large ping", large, true},
			{"a large frame of no IP", packet{ether: 0x88cc, payload: 1000}, false},
			{"ARP", packet{ether: unix.ETH_P_ARP, payload: 8}, false},
		} {
			if action, turn := sortOf(t, program, step.p); action != 0 || turn != step.turn {
				t.Errorf("IPv6 %v: %s: action %d, waits %v", ipv6, step.what, action, turn)
			}
		}
	}
}

func TestSizeThatWaits(t *testing.T) {
	_, program := newTestClassifier(t, time.Hour)
	const headers = 14 + 20 + 8
	for size, want := range map[int]bool{smallPacket - 1: false, smallPacket: true} {
		p := packet{protocol: unix.IPPROTO_UDP, port: uint16(size), payload: size - headers}
		if _, turn := sortOf(t, program, p); turn != want {
			t.Errorf("%d bytes wait: %v", size, turn)
		}
	}
}

func TestNothingWaitsForAnAgentThatIsGone(t *testing.T) {
	c, program := newTestClassifier(t, -time.Nanosecond)
	p := packet{protocol: unix.IPPROTO_TCP, port: 1, payload: 1000}
	if _, turn := sortOf(t, program, p); turn {
		t.Error("a packet waits past the time")
	}
	now, err := (&Host{}).Monotonic()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.keep(now + time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, turn := sortOf(t, program, p); !turn {
		t.Error("no packet waits before the time")
	}
}

func TestOnlyAKickIsDropped(t *testing.T) {
	_, program := newTestClassifier(t, time.Hour)
	for _, test := range []struct {
		p       packet
		dropped bool
	}{
		{packet{ether: kickProto, mark: kickMark}, true},
		{packet{ether: kickProto}, false},
		{packet{mark: kickMark}, false},
	} {
		if action, _ := sortOf(t, program, test.p); (action == 2) != test.dropped {
			t.Errorf("%+v: action %d", test.p, action)
		}
	}
}

func TestPeriodsShareProgrammes(t *testing.T) {
	c, _ := newTestClassifier(t, time.Hour)
	for period := 100 * time.Millisecond; period <= time.Hour; period += 700 * time.Millisecond {
		if _, err := c.program(period); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.programs); n > 16 {
		t.Errorf("%d programs", n)
	}
	for memory := range c.programs {
		if memory <= time.Second {
			t.Errorf("a flow is remembered for %v", memory)
		}
	}
}
