package datapath

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
	"github.com/joulevirt/joulevirt/internal/datapath/inband"
	"github.com/joulevirt/joulevirt/internal/model"
)

// packetKind is a packet that sequences are made of.
type packetKind struct {
	packet []byte
	is     described
}

// kinds are packets of several flows, small and large, exempt, opening connections, and of
// a service, which is UDP port 53.
func kinds(r *rig) []packetKind {
	source := func(a string) uint32 {
		b := netip.MustParseAddr(a).As4()
		return binary.NativeEndian.Uint32(b[:])
	}
	var all []packetKind
	add := func(packet []byte, is described) {
		is.bytes, is.segments, is.at4 = uint64(len(packet)), 1, r.entry(packet)
		all = append(all, packetKind{packet, is})
	}
	v4 := func(from string, proto byte, payload []byte, is described) {
		is.source, is.hasSource, is.talks = source(from), true, !is.syn
		add(ether(ip4(from, proto, 0, payload), etherIPv4), is)
	}
	for i := range uint16(4) {
		v4("192.0.2.1", protoUDP, udp(20_000+i, 5000, 22), described{})
	}
	v4("192.0.2.1", protoTCP, tcp(1, 80, flagACK, 1200), described{})
	v4("192.0.2.1", protoTCP, tcp(1, 80, flagSYN, 0), described{opens: true, syn: true})
	v4("192.0.2.1", protoTCP, tcp(1, 80, flagSYN|flagRST, 0), described{syn: true})
	v4("192.0.2.9", protoUDP, udp(3000, 53, 30), described{service: 1<<31 | 1<<16 | 53})
	v4("0.0.0.0", protoUDP, udp(67, 68, 240), described{control: true})
	add(arp(), described{control: true})
	add(ether(make([]byte, 50), 0x88CC), described{})
	for i := range 8 {
		v4(fmt.Sprintf("198.51.100.%d", i), protoUDP, udp(4000, 5000, 10), described{})
	}
	return all
}

// sequence is a series of bytes that say what happens next, and of what.
type sequence struct {
	bytes []byte
}

func (s *sequence) more() bool { return len(s.bytes) > 0 }

// next is a number below n, below 256.
func (s *sequence) next(n int) int {
	if !s.more() {
		return 0
	}
	b := s.bytes[0]
	s.bytes = s.bytes[1:]
	return int(b) % n
}

// play lets the same happen to the program and to the reference, and compares both after
// each step.
func play(t *testing.T, r *rig, all []packetKind, data []byte) {
	t.Helper()
	r.t = t
	r.reset()
	s, m := &sequence{bytes: data}, newReference()
	reconfigure(r, m, s)
	for s.more() {
		switch what := s.next(41); {
		case what < 24:
			sendBoth(t, r, m, s, all)
		case what < 28:
			// A service, or what goes on, at a steady rate for a while.
			k := all[s.next(len(all))]
			for range 8 + s.next(200) {
				sendOne(t, r, m, k, skb{}, 4)
				r.wait(ms)
			}
		case what < 34:
			r.wait([]time.Duration{1, 3 * us, 50 * us, 250 * us, 700 * us, 5 * ms}[s.next(6)])
		case what < 36:
			r.wait([]time.Duration{40 * ms, 125 * ms, 300 * ms, 1100 * ms, 3 * time.Second, 40 * time.Second}[s.next(6)])
		case what == 36:
			reconfigure(r, m, s)
		case what == 37:
			declareBoth(t, r, m, s)
		case what == 38:
			m.until = r.now + []time.Duration{-1, 100 * us, 300 * ms, time.Hour}[s.next(4)]
			must(t, r.lease.extend(m.until))
		case what == 39:
			floodBoth(t, r, m, s, all, s.next(3))
		default:
			answerBoth(t, r, m, all[s.next(len(all))], s.next(200))
		}
	}
}

func sendBoth(t *testing.T, r *rig, m *reference, s *sequence, all []packetKind) {
	k := all[s.next(len(all))]
	var as skb
	switch s.next(8) {
	case 0: // ahead on this clock
		as.Stamp = uint64(r.now + []time.Duration{-ms, 10 * us, 3600 * us, 99_900 * us, 200 * ms, 9 * time.Second}[s.next(6)])
	case 1: // of another clock
		as.Stamp = uint64(r.now + []time.Duration{10 * time.Second, 1e18}[s.next(2)])
	case 2:
		as.Segments, k.is.segments = 5, 5
	case 3:
		as.SegmentSize, k.is.segments = 100, (k.is.bytes+99)/100
	}
	sendOne(t, r, m, k, as, 1+[]int{0, 0, 1, 40, 200}[s.next(5)])
	r.wait([]time.Duration{0, 5 * us, 20 * us, 60 * us}[s.next(4)])
}

// answerBoth has the VM send packets. Its program decides nothing: that comes with the next
// packet to the VM.
func answerBoth(t *testing.T, r *rig, m *reference, k packetKind, times int) {
	t.Helper()
	if times == 0 {
		return
	}
	r.run(r.ingress, k.packet, skb{}, times)
	for range times {
		m.sent(k.is)
	}
}

// floodBoth sends more than a second of small packets from many addresses, to each of which the
// VM answers with a number of others.
func floodBoth(t *testing.T, r *rig, m *reference, s *sequence, all []packetKind, answers int) {
	first := s.next(len(all))
	for range 1100 + 10*s.next(200) {
		first++
		sendOne(t, r, m, all[first%len(all)], skb{}, 3)
		answerBoth(t, r, m, all[first%len(all)], answers)
		r.wait(ms)
	}
}

// sendOne sends a packet a number of times: each has the stamp of the one before, as the
// kernel runs them.
func sendOne(t *testing.T, r *rig, m *reference, k packetKind, as skb, times int) {
	t.Helper()
	want := time.Duration(as.Stamp)
	for range times {
		want = m.packet(r.now, want, k.is)
	}
	if got := r.sendAs(k.packet, as, times); got != want {
		t.Fatalf("at %s: %d times %x with stamp %d leave at %d, want %d (window %s, flooded %t)",
			r.now, times, k.packet[:min(len(k.packet), 48)], as.Stamp, got, want, m.window, m.flooded)
	}
	compareStates(t, r, m)
}

// decided is what both know of decisions.
type decided struct {
	Passed, Held, Exempt uint64
	Window, Active       time.Duration
	Fast, Flooded        bool
	Floods               uint64
	Packets, Arrivals    uint64
	Sent, Talk           uint64
	Usual                usual
}

func compareStates(t *testing.T, r *rig, m *reference) {
	t.Helper()
	s := r.raw()
	got := decided{
		s.Passed, s.Held, s.Exempt, time.Duration(s.Window), time.Duration(s.Active), s.Fast != 0, s.Flooded != 0,
		s.Floods, s.Last.Packets, s.Last.Arrivals, s.Last.Sent, s.Last.Talk,
		usual{s.Usual.Suspects.Segments, s.Usual.Suspects.Bytes, s.Usual.ServiceSegments, s.Usual.Sent},
	}
	want := decided{
		m.passed, m.held, m.spare, m.window, m.active, m.fast, m.flooded, m.floods, m.before.packets, m.before.arrivals,
		m.before.sent, m.before.talk, m.usual,
	}
	if got != want {
		t.Fatalf("at %s: the program is not where it should be (-want +got):\n%s%+v\nand not %+v",
			r.now, cmp.Diff(want, got), s.Last, m.before)
	}
	if n := uint64(len(m.deadlines)); s.Bunches < n || s.Bunches > s.Held {
		t.Fatalf("at %s: %d bunches of %d packets with %d deadlines", r.now, s.Bunches, s.Held, n)
	}
}

func reconfigure(r *rig, m *reference, s *sequence) {
	r.t.Helper()
	windows := []time.Duration{500 * us, 1000 * us, 250 * us, 125 * us, 0}
	c := Config{
		Buffering: bufferingOf(windows[s.next(5)], windows[[]int{0, 2, 4}[s.next(3)]], 2500),
		Hold:      []time.Duration{250 * ms, 2 * time.Second}[s.next(2)], Gap: 10 * us,
		OffPackets: 2000, MostArrivals: []uint32{1_000_000, 8}[s.next(2)],
		FloodPackets: []uint32{2000, 4000, 0}[s.next(3)], FloodBytes: 128,
	}
	if s.next(2) == 0 {
		c.Services = []model.Service{{UDP: true, Port: 53}}
	}
	if s.next(8) == 0 {
		c = Config{}
	}
	must(r.t, r.Configure(c))
	must(r.t, r.config.Lookup(uint32(0), &m.config))
	m.stale = true
}

func declareBoth(t *testing.T, r *rig, m *reference, s *sequence) {
	t.Helper()
	tolerated := []int{0, 100, 125, 300, 700, 100_000}[s.next(6)]
	answer, _, _ := r.run(r.ingress, frame(uint32(tolerated), nil), skb{}, 1)
	m.sent(described{segments: 1})
	if answer == redirect {
		m.guest = bpf.JvGuest{At: uint64(r.now), Tolerated: uint64(time.Duration(tolerated) * us)}
		m.stale = true
	}
}

// frame is a declaration of the guest's, changed.
func frame(tolerated uint32, change func([]byte)) []byte {
	f := make([]byte, inband.Size)
	copy(f, []byte{0x01, 0x80, 0xC2, 0, 0, 0x0E, 2, 0, 0, 0, 0, 7, 0x88, 0xB5, 'J', 'V', 'E', 'B', 1, 1, 0, 1, 9, 8, 7, 6})
	binary.BigEndian.PutUint32(f[26:], tolerated)
	binary.BigEndian.PutUint32(f[30:], 250)
	if change != nil {
		change(f)
	}
	return f
}

func TestProgramKeepsToTheRules(t *testing.T) {
	r := newRig(t)
	all := kinds(r)
	var met bpf.JvState
	for seed := range uint64(20) {
		data := make([]byte, 400)
		random := rand.New(rand.NewPCG(seed, 1))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			play(t, r, all, data)
			s := r.raw()
			met.Held, met.Exempt, met.Floods = met.Held+s.Held, met.Exempt+s.Exempt, met.Floods+s.Floods
			met.Active, met.Taken = met.Active+s.Active, met.Taken+s.Taken
		})
	}
	r.t = t
	if met.Held == 0 || met.Exempt == 0 || met.Floods == 0 || met.Active == 0 || met.Taken == 0 {
		t.Errorf("the sequences never met something: %d held, %d exempt, %d floods, %d declarations",
			met.Held, met.Exempt, met.Floods, met.Taken)
	}
}
