//go:build fq

// These run on a kernel that has fq: see test/guest/fq.

package datapath

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/joulevirt/joulevirt/test/hosttest"
)

const (
	// between two packets of a load: 5 come in a window of a millisecond.
	between = 200 * time.Microsecond
	// surelyHeld is the first packet of a load that comes when 2000 have come within a
	// second, two in a window of a millisecond, and the next slot has begun.
	surelyHeld = 2000 + int(slot/between)
)

// traffic is packets towards a VM, from several flows, and what is done meanwhile.
type traffic struct {
	packets, flows int
	// at the packets of these numbers, beside it.
	at map[int]func()
	// late counts the waits of drive itself that ended by more than a fifth of a window too
	// late: the emulated machine's timers are late when the real one is busy.
	late int
}

// drive sends traffic and returns what came of it, once nothing more comes.
func (p *tap) drive(l *traffic) []arrival {
	p.w.t.Helper()
	clock := func() time.Duration {
		now, err := monotonic()
		if err != nil {
			p.w.t.Fatal(err)
		}
		return now
	}
	var got []arrival
	work := make(chan func(), len(l.at))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for do := range work {
			do()
		}
	}()
	next := clock()
	for number := range l.packets {
		if do := l.at[number]; do != nil {
			work <- do
		}
		p.send(number%l.flows, number)
		next += between
		now := clock()
		for ; now < next; now = clock() {
			got = append(got, p.receive(next-now)...)
		}
		if now-next > time.Millisecond/5 {
			l.late++
		}
	}
	close(work)
	<-done
	quiet := 4 * buffering.bounds().horizon
	for end := clock() + quiet; clock() < end; {
		if more := p.receive(end - clock()); len(more) > 0 {
			got, end = append(got, more...), clock()+quiet
		}
	}
	return got
}

// wantOrder fails unless the packets of each flow came in their order, none twice. It
// returns the numbers of those that did not come.
func wantOrder(t *testing.T, l traffic, got []arrival) (lost []int) {
	t.Helper()
	last, seen := map[int]int{}, map[int]bool{}
	for _, a := range got {
		if before, known := last[a.flow]; known && before >= a.number {
			t.Errorf("flow %d: packet %d came after %d", a.flow, a.number, before)
		}
		last[a.flow], seen[a.number] = a.number, true
	}
	for number := range l.packets {
		if !seen[number] {
			lost = append(lost, number)
		}
	}
	return lost
}

func wantAll(t *testing.T, l traffic, got []arrival) {
	t.Helper()
	if lost := wantOrder(t, l, got); len(lost) > 0 {
		t.Errorf("%d of %d packets were lost, the first of them %v", len(lost), l.packets, lost[:min(len(lost), 10)])
	}
}

// onGrid is the share of arrivals that came within a fifth of a window after a boundary.
func onGrid(got []arrival, window time.Duration) float64 {
	n := 0
	for _, a := range got {
		if a.at%window < window/5 {
			n++
		}
	}
	return float64(n) / float64(max(1, len(got)))
}

func (w *world) extend(d *Datapath, valid time.Duration) {
	w.t.Helper()
	if err := d.Extend(valid); err != nil {
		w.t.Fatal(err)
	}
}

// fqOptions keep programs.
func fqOptions(t *testing.T) Options { return Options{PinRoot: hosttest.NewPinRoot(t)} }

func TestFqProbe(t *testing.T) {
	w := newWorld(t)
	before := w.dump()
	w.on("lo", func(handle *netlink.Handle, device netlink.Link) error {
		return Probe(handle, device, Options{}, eager(time.Millisecond))
	})
	wantAsBefore(t, w, before)
}

func TestFqApplyAndRemove(t *testing.T) {
	for name, test := range map[string]struct {
		queues int
		want   string
	}{"one queue": {1, "fq 4a5b:"}, "four queues": {4, "mq 4a5b:"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.newTap("tap0", test.queues)
			before := w.dump()
			d := newDatapath(t, fqOptions(t))
			var applied []string
			for range 2 { // done again it changes nothing
				w.apply(d, "tap0", eager(time.Millisecond))
				if diff := cmp.Diff(State{OwnerUs, test.want, true}, w.observe(d, "tap0")); diff != "" {
					t.Errorf("state (-want +got):\n%s", diff)
				}
				if applied != nil {
					wantAsBefore(t, w, applied)
				}
				applied = w.dump()
			}
			w.on("tap0", func(handle *netlink.Handle, device netlink.Link) error {
				qdiscs, err := handle.QdiscList(device)
				kinds := 0
				for _, qdisc := range qdiscs {
					if isFit(qdisc, buffering) {
						kinds++
					}
				}
				if kinds != test.queues {
					t.Errorf("%d fq, want one on each of %d queues", kinds, test.queues)
				}
				if drops, ours := Drops(qdiscs); !ours || drops != 0 {
					t.Errorf("drops %d, %v", drops, ours)
				}
				return err
			})
			l := traffic{packets: 50, flows: 5}
			wantAll(t, l, p.drive(&l))
			for range 2 {
				w.remove(d, "tap0")
				wantAsBefore(t, w, before)
			}
		})
	}
}

func TestFqSettingsThatSomebodyChanged(t *testing.T) {
	w := newWorld(t)
	w.newTap("tap0", 1)
	d := newDatapath(t, fqOptions(t))
	w.apply(d, "tap0", eager(time.Millisecond))
	applied := w.dump()
	w.on("tap0", func(handle *netlink.Handle, device netlink.Link) error {
		other := newFq(buffering, device, netlink.MakeHandle(buffering.major(), 0), netlink.HANDLE_ROOT)
		other.Pacing, other.FlowPacketLimit = 1, 100
		return handle.QdiscChange(other)
	})
	if w.observe(d, "tap0").Complete {
		t.Error("complete with other settings")
	}
	w.apply(d, "tap0", eager(time.Millisecond))
	if !w.observe(d, "tap0").Complete {
		t.Error("the settings are not put right")
	}
	wantAsBefore(t, w, applied)
}

// What is stamped comes at the boundaries of the window, in order, and nothing is lost.
func TestFqHoldsOnTheGrid(t *testing.T) {
	for name, device := range map[string]func(*world) *tap{
		"one queue":         func(w *world) *tap { return w.newTap("tap0", 1) },
		"four queues":       func(w *world) *tap { return w.newTap("tap0", 4) },
		"a pair of devices": func(w *world) *tap { return w.newPair("veth0", "veth1") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := device(w)
			before := w.dump()
			d := newDatapath(t, fqOptions(t))
			w.apply(d, p.name, eager(time.Millisecond))
			free := traffic{packets: 300, flows: 8}
			got := p.drive(&free) // the lease was never extended
			wantAll(t, free, got)
			if share := onGrid(got, time.Millisecond); share > 0.5 {
				t.Errorf("%.2f of packets that pass come at boundaries", share)
			}
			w.extend(d, time.Minute)
			measureGrid(t, d, p)
			w.remove(d, p.name)
			wantAsBefore(t, w, before)
		})
	}
}

// measureGrid decides by the share of packets that come at boundaries, of those that could:
// where the machine's own timers were late it measures again, and says so.
func measureGrid(t *testing.T, d *Datapath, p *tap) {
	t.Helper()
	const attempts, wanted = 5, 0.95
	for attempt := 1; ; attempt++ {
		l := traffic{packets: surelyHeld + 500, flows: 8}
		before := heldPackets(t, d)
		got := p.drive(&l)
		wantAll(t, l, got)
		stats, _, err := d.Stats(testID)
		must(t, err)
		late := got[min(surelyHeld, len(got)):]
		share, punctual := onGrid(late, time.Millisecond), 1-float64(l.late)/float64(l.packets)
		t.Logf("%+v; at boundaries: %.3f; this machine's own timers in time: %.3f", stats, share, punctual)
		if share < wanted && punctual < 0.99 && attempt < attempts {
			t.Logf("measured again: this machine was late %d times", l.late)
			continue
		}
		if share < wanted {
			t.Errorf("%.2f of held packets come at boundaries", share)
		}
		if held := stats.Held - before; held < uint64(len(late)) || stats.Bunches > stats.Held/3 {
			t.Errorf("held %d in %d bunches", held, stats.Bunches)
		}
		return
	}
}

// Windows change, holding ends and begins again, and the agent is replaced: no packet is
// lost, and none overtakes another of its flow.
func TestFqChangesUnderLoad(t *testing.T) {
	w := newWorld(t)
	p := w.newTap("tap0", 1)
	before := w.dump()
	opts := fqOptions(t)
	d := New(opts)
	w.apply(d, "tap0", eager(time.Millisecond))
	w.extend(d, time.Minute)
	set := func(window time.Duration) func() {
		return func() { w.apply(d, "tap0", eager(window)) }
	}
	l := traffic{packets: 5400, flows: 7, at: map[int]func(){
		2700: set(500 * time.Microsecond), 3000: set(time.Millisecond), 3300: set(0), 3600: set(time.Millisecond),
		3900: func() { w.extend(d, 0) }, 4200: func() { w.extend(d, time.Minute) },
		4500: func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			d = New(opts)
			if !w.observe(d, "tap0").Complete {
				t.Error("not taken over")
			}
		},
		4900: set(500 * time.Microsecond),
	}}
	wantAll(t, l, p.drive(&l))
	stats, _, err := d.Stats(testID)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", stats)
	if stats.Held < 1500 || stats.Held+stats.Passed != uint64(l.packets) {
		t.Errorf("held %d and passed %d of %d packets", stats.Held, stats.Passed, l.packets)
	}
	w.remove(d, "tap0")
	wantAsBefore(t, w, before)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// To put a queueing discipline in the place of another costs the packets that come in that
// moment: how many is reported, and that no others are.
func TestFqGraftUnderLoad(t *testing.T) {
	for name, queues := range map[string]int{"one queue": 1, "four queues": 4} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.newTap("tap0", queues)
			before := w.dump()
			d := newDatapath(t, fqOptions(t))
			var spans [][2]int
			during := func(do func()) func() {
				return func() {
					from := int(p.sent.Load())
					do()
					spans = append(spans, [2]int{from, int(p.sent.Load())})
				}
			}
			l := traffic{packets: 3500, flows: 7, at: map[int]func(){
				100:  during(func() { w.apply(d, "tap0", eager(time.Millisecond)); w.extend(d, time.Minute) }),
				3300: during(func() { w.remove(d, "tap0") }),
			}}
			lost := wantOrder(t, l, p.drive(&l))
			t.Logf("applied and removed while these packets were sent: %v; lost: %d of them, %v", spans, len(lost), lost)
			for _, number := range lost {
				// What waits is lost with what it waits in.
				const waiting = 20
				if !slices.ContainsFunc(spans, func(s [2]int) bool { return number >= s[0]-waiting && number <= s[1] }) {
					t.Errorf("packet %d was lost, when nothing was done", number)
				}
			}
			wantAsBefore(t, w, before)
		})
	}
}

func heldPackets(t *testing.T, d *Datapath) uint64 {
	t.Helper()
	stats, _, err := d.Stats(testID)
	if err != nil {
		t.Fatal(err)
	}
	return stats.Held
}

// A VM that uses more queues than before gets an fq for them too.
func TestFqMoreQueuesAreUsed(t *testing.T) {
	w := newWorld(t)
	p := w.newTap("tap0", 2)
	d := newDatapath(t, fqOptions(t))
	w.apply(d, "tap0", eager(time.Millisecond))
	w.Do(func() error {
		fd, err := openTap("tap0", true)
		p.queues = append(p.queues, fd)
		return err
	})
	if w.observe(d, "tap0").Complete {
		t.Error("complete with a queue that lacks fq")
	}
	w.apply(d, "tap0", eager(time.Millisecond))
	if diff := cmp.Diff(State{OwnerUs, "mq 4a5b:", true}, w.observe(d, "tap0")); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	w.remove(d, "tap0")
}
