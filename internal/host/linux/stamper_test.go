package linux

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/model"
)

// stamperBench has packets stamped without a device.
type stamperBench struct {
	t       *testing.T
	until   *ebpf.Map
	stamper *stamper
	program *ebpf.Program
}

func newStamperBench(t *testing.T, turn model.Turn) *stamperBench {
	t.Helper()
	c, err := newClassifier()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.close() })
	s, err := newStamper()
	if err != nil {
		t.Fatal(err)
	}
	b := &stamperBench{t: t, until: c.until, stamper: s}
	t.Cleanup(func() { s.close() })
	b.keep(b.now() + time.Hour)
	b.load(turn)
	return b
}

// load changes the turns.
func (b *stamperBench) load(turn model.Turn) {
	b.t.Helper()
	program, err := b.stamper.load(turn, b.until)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { program.Close() })
	b.program = program
}

func (b *stamperBench) keep(until time.Duration) {
	b.t.Helper()
	if err := b.until.Put(uint32(0), uint64(until)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *stamperBench) now() time.Duration {
	b.t.Helper()
	now, err := (&Host{}).Monotonic()
	if err != nil {
		b.t.Fatal(err)
	}
	return now
}

// verdict is what became of a packet.
type verdict struct {
	passed, dropped bool
	// at is when it leaves; before and after are around the stamping.
	at, before, after time.Duration
}

// leftAtOnce tells whether a packet leaves by its stamp without waiting.
func (v verdict) leftAtOnce() bool {
	return !v.passed && !v.dropped && v.at >= v.before && v.at <= v.after
}

func (b *stamperBench) send(p packet, stamp time.Duration) verdict {
	b.t.Helper()
	in, out := skb{Mark: p.mark, Tstamp: uint64(stamp)}, skb{}
	v := verdict{before: b.now()}
	action, err := b.program.Run(&ebpf.RunOptions{Data: p.frame(), Context: in, ContextOut: &out})
	if err != nil {
		b.t.Fatal(err)
	}
	v.after, v.at = b.now(), time.Duration(out.Tstamp)
	v.passed, v.dropped = out.Priority == firstInLine, action == 2
	if !v.dropped && int32(action) != -1 {
		b.t.Errorf("action %d", int32(action))
	}
	return v
}

// hold is a turn that begins in so long.
func (b *stamperBench) hold(in time.Duration) (turn model.Turn, next time.Duration) {
	const period = time.Hour
	next = b.now() + in
	return model.Turn{Period: period, Offset: next % period, Length: 10 * time.Millisecond, Trickle: leastTrickle}, next
}

func large(port uint16) packet {
	return packet{protocol: unix.IPPROTO_TCP, port: port, payload: 1000}
}

func small(port uint16) packet {
	return packet{protocol: unix.IPPROTO_TCP, port: port, payload: 100}
}

func anyTurn() model.Turn {
	return model.Turn{Period: time.Hour, Length: time.Hour, Trickle: leastTrickle}
}

func TestStampsBetweenTurns(t *testing.T) {
	b := newStamperBench(t, anyTurn())
	// Far enough away for a busy machine to send them all before.
	turn, next := b.hold(10 * time.Second)
	b.load(turn)
	size := len(large(1).frame())
	step := time.Duration(size) * bitsPerByte * time.Second / time.Duration(turn.Trickle)
	first := b.send(large(1), 0)
	if !first.leftAtOnce() {
		t.Fatalf("the first of the trickle: %+v", first)
	}
	atTurn := 0
	for i := range 500 {
		v := b.send(large(uint16(1+i%3)), 0)
		if want := min(first.at+time.Duration(i+1)*step, next); v.at != want || v.passed || v.dropped {
			t.Errorf("packet %d: %+v, want it at %v", i, v, want)
		}
		if v.at == next {
			atTurn++
		}
	}
	if atTurn < 10 {
		t.Errorf("%d packets wait for the turn", atTurn)
	}
	// Those of a flow that waits do not pass it; others do.
	if v := b.send(small(1), 0); v.at != next || v.passed {
		t.Errorf("small, behind what waits: %+v", v)
	}
	for what, p := range map[string]packet{
		"of another flow": small(9),
		"without data":    {protocol: unix.IPPROTO_TCP, port: 1},
		"a probe":         {protocol: unix.IPPROTO_UDP, port: 7, payload: 20},
		"ARP":             {ether: unix.ETH_P_ARP, payload: 8},
	} {
		if v := b.send(p, 0); !v.passed || v.at != 0 {
			t.Errorf("small, %s: %+v", what, v)
		}
	}
}

func TestStampsInATurn(t *testing.T) {
	b := newStamperBench(t, anyTurn())
	for range 100 {
		if v := b.send(large(1), 0); !v.leftAtOnce() {
			t.Fatalf("in a turn: %+v", v)
		}
	}
	if v := b.send(small(1), 0); !v.leftAtOnce() {
		t.Errorf("small, right behind a large one of its flow: %+v", v)
	}
	if v := b.send(small(2), 0); !v.passed {
		t.Errorf("small, of another flow: %+v", v)
	}
}

// The turns' places in the period, across its end.
func TestStampsOnTheGrid(t *testing.T) {
	b := newStamperBench(t, anyTurn())
	const period, length = 100 * time.Second, 40 * time.Second
	for _, within := range []time.Duration{0, 10 * time.Second, 39 * time.Second, 41 * time.Second, 99 * time.Second} {
		now := b.now()
		turn := model.Turn{Period: period, Length: length, Trickle: leastTrickle}
		// The offset with which now is so far behind a turn's begin.
		turn.Offset = ((now-within)%period + period) % period
		b.load(turn)
		// The trickle is spoken for.
		if err := b.stamper.queue.Put(uint32(0), [2]uint64{uint64(now + 20*time.Second), uint64(now - within + period)}); err != nil {
			t.Fatal(err)
		}
		v := b.send(large(uint16(within/time.Second)), 0)
		if within < length {
			if !v.leftAtOnce() {
				t.Errorf("%v behind a turn's begin: %+v", within, v)
			}
			continue
		}
		if want := min(period-within, 20*time.Second) + now; v.at != want {
			t.Errorf("%v behind a turn's begin: %+v, want it at %v", within, v, want)
		}
	}
}

// What waits is bounded by the time that the trickle needs for it.
func TestStampsDropWhatIsTooMuch(t *testing.T) {
	b := newStamperBench(t, anyTurn())
	turn, _ := b.hold(30 * time.Minute)
	b.load(turn)
	size, sent := len(large(1).frame()), 0
	for {
		v := b.send(large(1), 0)
		if v.dropped {
			break
		}
		if v.at-v.before > 31*time.Second {
			t.Fatalf("a packet waits for %v", v.at-v.before)
		}
		if sent += size; sent > 2*int(heldBytes) {
			break
		}
	}
	if sent < int(heldBytes) || sent > int(heldBytes)*11/10 {
		t.Errorf("%d bytes wait, want little more than %d", sent, heldBytes)
	}
	if v := b.send(small(2), 0); !v.passed {
		t.Errorf("a small packet when it is full: %+v", v)
	}
}

// New holds begin with a trickle of their own.
func TestTrickleIsAfreshInEachHold(t *testing.T) {
	b := newStamperBench(t, anyTurn())
	for port := range uint16(3) {
		turn, _ := b.hold(time.Duration(10+port) * time.Minute)
		b.load(turn)
		for i := range 5 {
			if v := b.send(large(100+port), 0); v.leftAtOnce() != (i == 0) {
				t.Errorf("hold %d, packet %d: %+v", port, i, v)
			}
		}
	}
}

func TestNothingNewIsHeldByStampsForAnAgentThatIsGone(t *testing.T) {
	b := newStamperBench(t, anyTurn())
	turn, _ := b.hold(10 * time.Second)
	b.load(turn)
	for i := range 5 {
		if v := b.send(large(1), 0); v.passed || v.leftAtOnce() != (i == 0) {
			t.Errorf("packet %d: %+v", i, v)
		}
	}
	b.keep(b.now())
	for port := range uint16(2) {
		if v := b.send(large(1+port), 0); !v.passed {
			t.Errorf("past the time, flow %d: %+v", port, v)
		}
	}
}

func TestStampsOfOthers(t *testing.T) {
	b := newStamperBench(t, anyTurn())
	for port := uint16(2); ; port++ {
		paced := b.now() + ownStamp/2
		v := b.send(large(port), paced)
		if v.after >= paced {
			continue // a busy machine sent it when its time had come
		}
		if v.at != paced {
			t.Errorf("a TCP's own stamp of %v: %+v", paced, v)
		}
		break
	}
	if v := b.send(large(1), time.Duration(time.Now().UnixNano())); !v.leftAtOnce() {
		t.Errorf("a stamp of another clock: %+v", v)
	}
}
