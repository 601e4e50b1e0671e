package datapath

import (
	"errors"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
	"github.com/joulevirt/joulevirt/test/datapathtest"
)

const (
	ms = time.Millisecond
	us = time.Microsecond
	// start of the tests' clock: a whole second, so that slots and windows are easy to
	// reckon.
	start = 1000 * time.Second
	// ever is a lease that does not end.
	ever = time.Duration(1<<63 - 1)
)

// Answers of the programs to the kernel, see linux/pkt_cls.h.
const (
	goOn     = ^uint32(0)
	drop     = 2
	redirect = 7
)

type skb = datapathtest.SKB

// rig has the programs of one device and a clock.
type rig struct {
	*program
	t                  testing.TB
	now                time.Duration
	clock, flows, seen *ebpf.Map
	flowOf             *ebpf.Program
	touched            map[uint32]bool
}

// loadForTest loads a program that goes by the tests' clock, with a lease that does not end.
func loadForTest(t testing.TB, k kind, load func() (*ebpf.CollectionSpec, error)) (*program, *ebpf.Collection) {
	t.Helper()
	spec, err := load()
	must(t, err)
	lease, err := newLease()
	must(t, err)
	made, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{bpf.JvMapJvLease: lease.until},
	})
	must(t, err)
	p := newProgram(k, made, lease)
	t.Cleanup(func() {
		must(t, errors.Join(p.Close(), lease.close()))
		made.Close()
	})
	must(t, lease.extend(ever))
	return p, made
}

// newRig has a lease that does not end, and no configuration.
func newRig(t testing.TB) *rig {
	t.Helper()
	p, made := loadForTest(t, buffering, datapathtest.LoadJv)
	r := &rig{
		program: p, t: t, touched: map[uint32]bool{},
		clock: made.Maps["jv_clock"], flows: made.Maps[bpf.JvMapJvFlows], seen: made.Maps[bpf.JvMapJvSources],
		flowOf: made.Programs["jv_flow_of"],
	}
	r.set(start)
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reset makes the programs forget all.
func (r *rig) reset() {
	r.t.Helper()
	must(r.t, r.state.Put(uint32(0), &bpf.JvState{}))
	must(r.t, r.guest.Put(uint32(0), &bpf.JvGuest{}))
	must(r.t, r.seen.Put(uint32(0), &bpf.JvSources{}))
	must(r.t, r.config.Put(uint32(0), &bpf.JvConfig{}))
	for flow := range r.touched {
		must(r.t, r.flows.Put(flow, uint64(0)))
	}
	must(r.t, r.lease.extend(ever))
	r.set(start)
}

// set sets the clock.
func (r *rig) set(now time.Duration) {
	r.t.Helper()
	r.now = now
	must(r.t, r.clock.Put(uint32(0), uint64(now)))
}

func (r *rig) wait(d time.Duration) { r.t.Helper(); r.set(r.now + d) }

// run gives a program a packet a number of times and returns its answer, the stamp that
// the packet has in the end, and the packet.
func (r *rig) run(p *ebpf.Program, packet []byte, in skb, times int) (uint32, time.Duration, []byte) {
	r.t.Helper()
	var out skb
	opts := ebpf.RunOptions{
		Data: packet, DataOut: make([]byte, len(packet)+64), Context: in, ContextOut: &out, Repeat: uint32(times),
	}
	var answer uint32
	undisturbed(r.t, func() (err error) { answer, err = p.Run(&opts); return err })
	return answer, time.Duration(out.Stamp), opts.DataOut
}

// undisturbed runs something with no signal delivered to its thread. One, as Go's scheduler
// sends them, ends what the kernel repeats in the middle, and the library begins anew with all.
func undisturbed(t testing.TB, run func() error) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, was unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	must(t, unix.PthreadSigmask(unix.SIG_BLOCK, &all, &was))
	err := run()
	must(t, unix.PthreadSigmask(unix.SIG_SETMASK, &was, nil))
	must(t, err)
}

// send sends packets towards the VM and returns when the last one leaves; 0: at once.
func (r *rig) send(packet []byte, times int) time.Duration {
	r.t.Helper()
	return r.sendAs(packet, skb{}, times)
}

func (r *rig) sendAs(packet []byte, as skb, times int) time.Duration {
	r.t.Helper()
	answer, stamp, _ := r.run(r.egress, packet, as, times)
	if answer != goOn {
		r.t.Fatalf("a packet was answered with %d: others cannot go on with it", int32(answer))
	}
	return stamp
}

// entry is where a packet's flow keeps its deadline.
func (r *rig) entry(packet []byte) uint32 {
	r.t.Helper()
	entry, _, _ := r.run(r.flowOf, packet, skb{}, 1)
	r.touched[entry] = true
	return entry
}

// bursts sends as many packets each millisecond, which is quicker than one by one.
func (r *rig) bursts(packet []byte, perSecond int, d time.Duration) {
	r.t.Helper()
	for end := r.now + d; r.now < end; {
		r.send(packet, perSecond/1000)
		r.wait(ms)
	}
}

func (r *rig) configure(change func(*Config)) {
	r.t.Helper()
	c := testConfig()
	if change != nil {
		change(&c)
	}
	must(r.t, r.Configure(c))
}

func (r *rig) raw() bpf.JvState {
	r.t.Helper()
	s, err := r.readState()
	must(r.t, err)
	return s
}

// holding returns true if the next packet is held.
func (r *rig) holding() bool { r.t.Helper(); return r.raw().Window != 0 }

func (r *rig) stats() Stats {
	r.t.Helper()
	s, err := r.Stats(r.now)
	must(r.t, err)
	return s
}

// fast puts the device into the mode, its packets being those.
func (r *rig) fast(packet []byte) {
	r.t.Helper()
	r.bursts(packet, 20_000, 1100*ms)
	if !r.holding() {
		r.t.Fatalf("packets are not held: %+v", r.stats())
	}
}

// testConfig holds from 10,000 packets a second in windows of 500 us, in bursts too.
func testConfig() Config {
	return Config{
		Buffering:  bufferingOf(500*us, 500*us, 10_000),
		OffPackets: 7000, Hold: 2 * time.Second, Gap: 10 * us, MostArrivals: 1000,
		FloodPackets: 10_000, FloodBytes: 100,
	}
}

// sortedKeys is for loops whose order tests tell of.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
