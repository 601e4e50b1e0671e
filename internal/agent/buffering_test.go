package agent

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/hosttest"
	"github.com/joulevirt/joulevirt/test/sim"
)

// bufferingHost is a simulated node with one VM of one tap, whose packets it holds.
type bufferingHost struct {
	*sim.Host
	mu     sync.Mutex
	is     model.Buffering
	guest  *model.GuestTools
	leases int
	held   uint64
}

func (h *bufferingHost) Taps(host.TaskID) ([]host.Device, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tap := host.Device{Name: "tap0", Index: 3, Queue: "fq_codel 0:"}
	if !h.is.IsZero() {
		tap.Owner, tap.Queue, tap.Complete = host.QueueOurs, "fq 4a56:", true
	}
	return []host.Device{tap}, nil
}

func (h *bufferingHost) Buffer(_ host.TaskID, _ string, as model.Buffering) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.is = as
	return nil
}

func (h *bufferingHost) Unbuffer(host.TaskID, string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.is = model.Buffering{}
	return nil
}

func (h *bufferingHost) ExtendLease(time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leases++
	return nil
}

func (h *bufferingHost) Buffered(host.TaskID) ([]host.BufferSample, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.is.IsZero() {
		return nil, nil
	}
	h.held += 8000
	window := h.is.Window
	if h.guest != nil {
		window = min(window, model.WindowOf(time.Duration(h.guest.ToleratedMicroseconds)*time.Microsecond))
	}
	return []host.BufferSample{{Name: "tap0", Window: window, Held: h.held, Guest: h.guest}}, nil
}

// state reads something of the host's while the agent runs.
func (h *bufferingHost) state() (leases int, is model.Buffering) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leases, h.is
}

// buffered is an agent on such a node.
type buffered struct {
	*simNode
	host *bufferingHost
}

func newBuffered(t *testing.T) *buffered {
	t.Helper()
	n := newSimNode(t, sim.Config{Start: noon()}, sim.VM{Namespace: "shop", Name: "web", PodUID: podUID(1), VCPUs: 1})
	b := &buffered{simNode: n, host: &bufferingHost{Host: n.host}}
	n.seen = b.host
	b.plan(1000)
	b.start()
	return b
}

// plan wants a window, and the one of floods.
func (b *buffered) plan(microseconds int32) {
	flood := int32(500)
	b.cluster.plan = &v1alpha1.NodePlan{Spec: v1alpha1.NodePlanSpec{Apply: true, VMs: []v1alpha1.VMPlan{{
		VMReference: v1alpha1.VMReference{Namespace: "shop", Name: "web", PodUID: types.UID(podUID(1))},
		Buffering: &v1alpha1.BufferingAction{
			WindowMicroseconds: &microseconds, FloodWindowMicroseconds: &flood, OnPacketsPerSecond: 10_000,
		},
	}}}}
}

// round is one of the agent, a second later.
func (b *buffered) round() *v1alpha1.VMApplied {
	b.Helper()
	b.step()
	for i := range b.cluster.status.VMs {
		return &b.cluster.status.VMs[i]
	}
	return nil
}

func readBackOf(window int32, transmit v1alpha1.BufferingHalf) *v1alpha1.BufferingReadBack {
	return &v1alpha1.BufferingReadBack{WindowMicroseconds: window, Transmit: transmit}
}

func (b *buffered) wantReadBack(what string, got *v1alpha1.VMApplied, want *v1alpha1.BufferingReadBack) {
	b.Helper()
	if got == nil || got.Lever != v1alpha1.LeverBuffering || got.State != v1alpha1.LeverInForce {
		b.Fatalf("%s: %+v", what, got)
	}
	if diff := cmp.Diff(want, got.Buffering); diff != "" {
		b.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestBufferingIsFollowedReadBackAndUndone(t *testing.T) {
	b := newBuffered(t)
	in, no, declines := v1alpha1.BufferingHalfInForce, v1alpha1.BufferingHalfNoGuestTools, v1alpha1.BufferingHalfGuestDeclines
	b.wantReadBack("in the first round", b.round(), readBackOf(1000, no))
	if leases, is := b.host.state(); leases != 1 || is.Window != time.Millisecond || is.FloodWindow != 500*time.Microsecond || is.OnPackets != 10_000 {
		t.Errorf("%d leases, %+v", leases, is)
	}
	b.round()
	b.round() // counters have a rate once they were read twice
	s := b.board.Latest()
	if s.InForce[v1alpha1.LeverBuffering] != 1 || s.Changes[v1alpha1.LeverBuffering] != 1 || s.Rates.VMs[0].Buffering == nil || s.Rates.VMs[0].Buffering.HeldPerSecond == 0 {
		t.Errorf("state %+v, rates %+v", s, s.Rates.VMs[0].Buffering)
	}
	b.plan(500)
	b.wantReadBack("another plan, at once", b.round(), readBackOf(500, no))
	if _, is := b.host.state(); is.Window != 500*time.Microsecond {
		t.Errorf("%+v", is)
	}

	b.host.guest = &model.GuestTools{ToleratedMicroseconds: 250, TransmitMicroseconds: 250}
	b.wantReadBack("tools that were just declared", b.round(), readBackOf(500, no))
	for range int(declarationTime / time.Second) {
		b.round()
	}
	b.wantReadBack("tools", b.round(), readBackOf(250, in))
	b.host.guest = &model.GuestTools{}
	for range int(declarationTime/time.Second) + 1 {
		b.round()
	}
	b.wantReadBack("a guest that declines", b.round(), readBackOf(0, declines))

	b.cluster.plan = nil
	b.round()
	if _, is := b.host.state(); !is.IsZero() || b.board.Latest().InForce[v1alpha1.LeverBuffering] != 0 {
		t.Errorf("left without a plan: %+v", is)
	}
	b.plan(1000)
	b.round()
	b.cluster.renewed = b.clock.Now().Add(-time.Hour)
	if one := b.round(); one != nil {
		t.Errorf("status of a stale manager: %+v", one)
	}
	if _, is := b.host.state(); !is.IsZero() {
		t.Errorf("left with a stale manager: %+v", is)
	}
	b.cluster.renewed = b.clock.Now()
	b.round()
	if err := b.agent.end(t.Context()); err != nil {
		t.Error(err)
	}
	if _, is := b.host.state(); !is.IsZero() || len(b.journal.Content().Taps) != 0 {
		t.Errorf("left at the end: %+v, journal %v", is, b.journal.Content().Taps)
	}
}

// A status is no place for what a guest changes its mind about.
func TestAFickleGuestIsReportedSeldom(t *testing.T) {
	b := newBuffered(t)
	changes, last := 0, v1alpha1.BufferingReadBack{}
	for second := range 300 {
		b.host.guest = &model.GuestTools{ToleratedMicroseconds: []int{1000, 250, 0}[second%3], TransmitMicroseconds: second % 2}
		b.cluster.renewed = b.clock.Now()
		if second%100 == 99 {
			b.host.guest = nil
		}
		if now := *b.round().Buffering; now != last {
			changes, last = changes+1, now
		}
	}
	if changes != 1 {
		t.Errorf("the status changed %d times", changes)
	}
}

func TestANewAgentHoldsOnAndRestoreUndoes(t *testing.T) {
	b := newBuffered(t)
	b.round()
	b.crash()
	b.cluster.synced = false
	b.start()
	before, _ := b.host.state()
	b.agent.keeper.Beat()
	b.round()
	if leases, is := b.host.state(); leases != before+1 || is.IsZero() {
		t.Errorf("%d leases, %+v before the plan is known", leases-before, is)
	}
	b.cluster.synced = true
	b.wantReadBack("taken over", b.round(), readBackOf(1000, v1alpha1.BufferingHalfNoGuestTools))
	b.crash()
	j, err := journal.Open(b.dir, "boot")
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, want := range []int{1, 0} {
		if got, err := Restore(b.host, j); err != nil || len(got.Taps) != want {
			t.Errorf("restored %+v, %v; want %d taps", got, err, want)
		}
		if _, is := b.host.state(); !is.IsZero() {
			t.Errorf("left after restore: %+v", is)
		}
	}
}

// No guard watches over VMs that are not known.
func TestANewAgentThatLearnsNothingPutsBackSoon(t *testing.T) {
	b := newBuffered(t)
	b.round()
	b.crash()
	b.cluster.synced = false
	b.start()
	b.agent.opts.StaleAfter = time.Hour
	for range int(longestBlind / time.Second) {
		b.round()
		if _, is := b.host.state(); is.IsZero() || b.board.Latest().RoundError != nil {
			t.Fatalf("%+v, %v after %s", is, b.board.Latest().RoundError, b.clock.Now().Sub(b.agent.blindSince))
		}
	}
	b.round()
	if _, is := b.host.state(); !is.IsZero() || len(b.journal.Content().Taps) != 0 || b.board.Latest().RoundError == nil {
		t.Errorf("left after %s: %+v, journal %v, error %v", longestBlind, is, b.journal.Content().Taps, b.board.Latest().RoundError)
	}
	b.cluster.synced, b.cluster.renewed = true, b.clock.Now()
	b.wantReadBack("once the plan is known", b.round(), readBackOf(1000, v1alpha1.BufferingHalfNoGuestTools))
	if err := b.board.Latest().RoundError; err != nil {
		t.Errorf("still: %v", err)
	}
}

func TestNothingIsHeldAfterTheEnd(t *testing.T) {
	b := newBuffered(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.agent.Run(ctx) }()
	hosttest.Eventually(t, "the buffering", func() bool { _, is := b.host.state(); return !is.IsZero() })
	before, _ := b.host.state()
	hosttest.Eventually(t, "the keeper", func() bool {
		b.clock.Step(time.Second)
		now, _ := b.host.state()
		return now > before+3
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	leases, is := b.host.state()
	if !is.IsZero() {
		t.Errorf("left at the end: %+v", is)
	}
	b.clock.Step(time.Minute)
	if later, _ := b.host.state(); later != leases {
		t.Error("packets are held on after the end")
	}
}

func TestBufferingReadBack(t *testing.T) {
	in, no, declines := v1alpha1.BufferingHalfInForce, v1alpha1.BufferingHalfNoGuestTools, v1alpha1.BufferingHalfGuestDeclines
	us := func(n int) time.Duration { return time.Duration(n) * time.Microsecond }
	tap := func(window, tolerated, transmit int) host.BufferSample {
		return host.BufferSample{Window: us(window), Guest: &model.GuestTools{ToleratedMicroseconds: tolerated, TransmitMicroseconds: transmit}}
	}
	for name, test := range map[string]struct {
		taps []host.BufferSample
		want *v1alpha1.BufferingReadBack
	}{
		"no tools":                         {[]host.BufferSample{{Window: us(1000)}}, readBackOf(1000, no)},
		"floods only, no tools":            {[]host.BufferSample{{}}, readBackOf(0, no)},
		"floods only":                      {[]host.BufferSample{tap(0, 1000, 0)}, readBackOf(0, in)},
		"tools":                            {[]host.BufferSample{tap(500, 500, 500)}, readBackOf(500, in)},
		"tools that hold nothing":          {[]host.BufferSample{tap(500, 500, 0)}, readBackOf(500, declines)},
		"a guest that declines":            {[]host.BufferSample{tap(0, 0, 0)}, readBackOf(0, declines)},
		"less than any window":             {[]host.BufferSample{tap(0, 100, 0)}, readBackOf(0, declines)},
		"tools on one of two taps":         {[]host.BufferSample{{Window: us(1000)}, tap(500, 500, 500)}, readBackOf(1000, in)},
		"one of two taps that is declined": {[]host.BufferSample{tap(500, 500, 500), tap(0, 0, 0)}, readBackOf(500, declines)},
	} {
		got := bufferingReadBack(test.taps)
		if diff := cmp.Diff(*test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
