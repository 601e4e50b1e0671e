package datapath

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/datapathtest"
)

// shapingRig has the program that shapes one device, and a clock.
type shapingRig struct {
	*program
	t     *testing.T
	now   time.Duration
	clock *ebpf.Map
}

func newShapingRig(t *testing.T, s model.Shaping) *shapingRig {
	t.Helper()
	p, made := loadForTest(t, shaping, datapathtest.LoadShape)
	r := &shapingRig{program: p, t: t, clock: made.Maps["jv_clock"]}
	must(t, r.Configure(Shaping{s}))
	r.set(start)
	return r
}

func (r *shapingRig) set(now time.Duration) {
	r.t.Helper()
	r.now = now
	must(r.t, r.clock.Put(uint32(0), uint64(now)))
}

// What becomes of a packet that is not stamped.
const (
	dropped = "dropped"
	passes  = "passes" // before all that waits
)

func (r *shapingRig) send(packet []byte) string { return r.sendStamped(packet, 0) }

// sendStamped sends a packet with a stamp of its sender's. It returns how long the packet waits,
// or what else becomes of it.
func (r *shapingRig) sendStamped(packet []byte, stamp time.Duration) string {
	r.t.Helper()
	const firstInLine = 7
	var out skb
	answer, err := r.egress.Run(&ebpf.RunOptions{
		Data: packet, DataOut: make([]byte, len(packet)+64), Context: skb{Stamp: uint64(stamp)}, ContextOut: &out, Repeat: 1,
	})
	must(r.t, err)
	switch {
	case answer == drop:
		return dropped
	case answer != goOn:
		r.t.Fatalf("a packet was answered with %d: others cannot go on with it", int32(answer))
	case out.Priority == firstInLine:
		return passes
	}
	return (time.Duration(out.Stamp) - r.now).String()
}

// large is a UDP packet of 1000 bytes with its Ethernet header.
func large(flow uint16) []byte {
	return ether(ip4("192.0.2.1", protoUDP, 0, udp(20_000+flow, 5000, 1000-14-20-8)), etherIPv4)
}

func ack(flow uint16) []byte {
	return ether(ip4("192.0.2.1", protoTCP, 0, tcp(20_000+flow, 80, flagACK, 0)), etherIPv4)
}

func smallTCP(flow uint16) []byte {
	return ether(ip6("2001:db8::2", protoTCP, 64, tcp(20_000+flow, 80, flagACK, 50)), etherIPv6)
}

// turnOf 4 s in each 10 s, with a trickle of 1 Mbit/s. The tests' clock starts with a turn.
func turnOf() *model.Turn {
	return &model.Turn{Period: 10 * time.Second, Length: 4 * time.Second, Trickle: 1e6}
}

// Each step is a packet at a time after the start of a turn.
func TestShapingDepartures(t *testing.T) {
	type step struct {
		at     time.Duration
		packet []byte
		want   string
	}
	for name, test := range map[string]struct {
		shaping model.Shaping
		steps   []step
	}{
		"nothing": {model.Shaping{}, []step{{0, large(0), "-16m40s"}}}, // not stamped at all
		"in a turn all packets leave at once": {model.Shaping{Turn: turnOf()}, []step{
			{0, large(0), "0s"}, {0, large(0), "0s"}, {0, plain(1), passes}, {3 * time.Second, ack(0), passes},
		}},
		"between turns a trickle passes, and the rest waits for the turn": {model.Shaping{Turn: turnOf()}, []step{
			{5 * time.Second, large(0), "0s"}, {5 * time.Second, large(0), "8ms"}, {5 * time.Second, large(1), "16ms"},
			{5*time.Second + 100*time.Millisecond, large(0), "0s"},
			{9*time.Second + 999*time.Millisecond, large(2), "0s"}, {9*time.Second + 999*time.Millisecond, large(2), "1ms"},
			{10 * time.Second, large(3), "0s"},
		}},
		"small packets pass, unless larger ones of their flow wait": {model.Shaping{Turn: turnOf()}, []step{
			{5 * time.Second, plain(0), passes}, {5 * time.Second, large(0), "0s"}, {5 * time.Second, large(0), "8ms"},
			{5 * time.Second, plain(0), "16ms"}, {5 * time.Second, ack(0), passes}, {5 * time.Second, plain(1), passes},
			{5 * time.Second, smallTCP(2), passes}, {5 * time.Second, arp(), passes},
			{7 * time.Second, plain(0), passes},
		}},
		"a ceiling spaces packets": {model.Shaping{Ceiling: 8e6}, []step{
			{0, large(0), "0s"}, {0, large(1), "1ms"}, {0, plain(2), "2ms"}, {500 * time.Microsecond, large(0), "1.564ms"},
			{time.Second, ack(0), passes}, {time.Second, large(0), "54µs"},
		}},
		"what waits for a turn leaves below the ceiling": {model.Shaping{Ceiling: 8e6, Turn: turnOf()}, []step{
			{9*time.Second + 995*time.Millisecond, large(0), "0s"}, {9*time.Second + 995*time.Millisecond, large(0), "5ms"},
			{9*time.Second + 995*time.Millisecond, large(0), "6ms"}, {9*time.Second + 995*time.Millisecond, plain(1), passes},
			{10 * time.Second, large(2), "2ms"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newShapingRig(t, test.shaping)
			for i, s := range test.steps {
				r.set(start + s.at)
				if got := r.send(s.packet); got != s.want {
					t.Errorf("step %d at %v: %s, want %s", i, s.at, got, s.want)
				}
			}
		})
	}
}

func TestShapingBoundsWhatWaits(t *testing.T) {
	for name, s := range map[string]model.Shaping{
		"by a trickle": {Turn: &model.Turn{Period: time.Hour, Offset: 30 * time.Minute, Length: time.Minute, Trickle: model.LeastRate}},
		"by a ceiling": {Ceiling: model.LeastRate},
	} {
		r := newShapingRig(t, s)
		sent := 0
		for r.send(large(0)) != dropped {
			if sent += 1000; sent > 2*int(heldBytes) {
				break
			}
		}
		if sent < leastQueue || sent > int(heldBytes)+2000 {
			t.Errorf("%s: %d bytes wait", name, sent)
		}
		r.set(r.now + time.Minute)
		if got := r.send(large(0)); got == dropped {
			t.Errorf("%s: nothing passes once all has left", name)
		}
	}
}

func TestShapingEndsWithTheLease(t *testing.T) {
	r := newShapingRig(t, model.Shaping{Ceiling: model.LeastRate, Turn: turnOf()})
	r.set(start + 5*time.Second)
	r.send(large(0))
	if got := r.send(large(0)); got == passes || got == "0s" {
		t.Errorf("nothing waits: %s", got)
	}
	must(t, r.lease.extend(r.now))
	for range 2 {
		if got := r.send(large(0)); got != passes {
			t.Errorf("past the lease: %s", got)
		}
	}
}

// A local TCP paces by stamps; stamps of another clock count for nothing.
func TestShapingHeedsStamps(t *testing.T) {
	r := newShapingRig(t, model.Shaping{Turn: turnOf()})
	if got := r.sendStamped(large(0), r.now+10*time.Millisecond); got != "10ms" {
		t.Errorf("a paced packet waits %s", got)
	}
	if got := r.send(large(0)); got != "10ms" {
		t.Errorf("the next one of the flow waits %s", got)
	}
	if got := r.sendStamped(large(1), r.now+time.Hour); got != "0s" {
		t.Errorf("a packet with a stamp of another clock waits %s", got)
	}
}

// The same layer attaches, takes over and removes the programs of both kinds.
func TestShapingIsAttachedAndRemoved(t *testing.T) {
	opts := attachOnly(t)
	w := newWorld(t)
	w.newPair("veth0", "veth1")
	before := w.dump()
	d := newDatapath(t, opts)
	set := func(s model.Shaping) {
		w.on("veth0", func(handle *netlink.Handle, device netlink.Link) error {
			return d.Apply(handle, device, testID, Shaping{s})
		})
	}
	set(model.Shaping{Ceiling: 1e6})
	applied := w.dump()
	set(model.Shaping{Ceiling: 2e6, Turn: turnOf()})
	wantSame(t, applied, w.dump())
	must(t, d.Close())
	d = newDatapath(t, opts) // the next agent takes it over
	if !w.attached(d, "veth0") {
		t.Error("not attached, or not taken over")
	}
	set(model.Shaping{Ceiling: 1e6})
	wantSame(t, applied, w.dump())
	w.remove(d, "veth0")
	wantAsBefore(t, w, before)
}

func wantSame(t *testing.T, before, after []string) {
	t.Helper()
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the device was changed (-before +after):\n%s", diff)
	}
}
