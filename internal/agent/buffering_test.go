package agent

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/sim"
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

func (h *bufferingHost) Taps(host.TaskID) ([]host.Tap, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tap := host.Tap{Name: "tap0", Index: 3, Queue: "fq_codel 0:"}
	if !h.is.IsZero() {
		tap.Owner, tap.Queue, tap.Buffered = host.QueueOurs, "fq 4a56:", true
	}
	return []host.Tap{tap}, nil
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

func (h *bufferingHost) KeepBuffering(time.Duration) error {
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

func (n *meteredNode) Taps(host.TaskID) ([]host.Tap, error)              { return nil, nil }
func (n *meteredNode) Buffered(host.TaskID) ([]host.BufferSample, error) { return nil, nil }

// told reads something of the host's while the agent runs.
func (h *bufferingHost) told() (leases int, is model.Buffering) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leases, h.is
}

// buffered is an agent on such a node.
type buffered struct {
	*testing.T
	host    *bufferingHost
	cluster *cluster
	clock   *clocktesting.FakeClock
	dir     string
	journal *journal.Journal
	board   *publish.Board
	agent   *Agent
}

const bufferedPod = "0f9a3c52-7d1e-4b7a-9c55-000000000001"

func newBuffered(t *testing.T) *buffered {
	h, err := sim.NewHost(sim.Config{Name: "node1", Seed: 7, Start: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.AddVM(sim.VM{Namespace: "shop", Name: "web", PodUID: bufferedPod, VCPUs: 1}); err != nil {
		t.Fatal(err)
	}
	b := &buffered{
		T: t, host: &bufferingHost{Host: h}, clock: clocktesting.NewFakeClock(h.Now()), dir: t.TempDir(), board: &publish.Board{},
		cluster: &cluster{
			synced: true, renewed: h.Now(), changes: make(chan struct{}, 1),
			inventory: discover.Inventory{
				Pods: map[string]discover.Pod{bufferedPod: {UID: bufferedPod, Namespace: "shop", CreatedBy: "v"}},
				VMIs: map[string]discover.VMI{"v": {UID: "v", Namespace: "shop", Name: "web"}},
			},
		},
	}
	b.plan(1000)
	b.start()
	t.Cleanup(func() { b.journal.Close() })
	return b
}

// plan wants a window, and the one of floods.
func (b *buffered) plan(microseconds int32) {
	flood := int32(500)
	b.cluster.plan = &v1alpha1.NodePlan{Spec: v1alpha1.NodePlanSpec{Apply: true, VMs: []v1alpha1.VMPlan{{
		VMReference: v1alpha1.VMReference{Namespace: "shop", Name: "web", PodUID: types.UID(bufferedPod)},
		Buffering: &v1alpha1.BufferingAction{
			WindowMicroseconds: &microseconds, FloodWindowMicroseconds: &flood, OnPacketsPerSecond: 10_000,
		},
	}}}}
}

// start is the start of an agent, from what is on disk.
func (b *buffered) start() {
	b.Helper()
	b.agent, b.journal = startOn(b.T, b.dir, Options{Host: b.host, Cluster: b.cluster, Statuses: b.cluster, Board: b.board, Clock: b.clock})
}

// crash ends the agent without its putting anything back.
func (b *buffered) crash() {
	b.Helper()
	if err := b.journal.Close(); err != nil {
		b.Fatal(err)
	}
}

// round is one of the agent, a second later.
func (b *buffered) round() *v1alpha1.VMApplied {
	b.Helper()
	b.host.Advance(time.Second)
	b.clock.Step(time.Second)
	b.agent.round(b.Context(), true)
	for i := range b.cluster.status.VMs {
		return &b.cluster.status.VMs[i]
	}
	return nil
}

func readBackOf(window int32, receive, transmit v1alpha1.BufferingHalf) *v1alpha1.BufferingReadBack {
	return &v1alpha1.BufferingReadBack{WindowMicroseconds: window, Receive: receive, Transmit: transmit}
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
	b.wantReadBack("in the first round", b.round(), readBackOf(1000, in, no))
	if leases, is := b.host.told(); leases != 1 || is.Window != time.Millisecond || is.FloodWindow != 500*time.Microsecond || is.OnPackets != 10_000 {
		t.Errorf("%d leases, %+v", leases, is)
	}
	b.round()
	b.round() // counters have a rate once they were read twice
	s := b.board.Latest()
	if s.Buffered != 1 || s.BufferingWrites != 1 || s.Rates.VMs[0].Buffering == nil || s.Rates.VMs[0].Buffering.HeldPerSecond == 0 {
		t.Errorf("state %+v, rates %+v", s, s.Rates.VMs[0].Buffering)
	}
	b.plan(500)
	b.wantReadBack("another plan, at once", b.round(), readBackOf(500, in, no))
	if _, is := b.host.told(); is.Window != 500*time.Microsecond {
		t.Errorf("%+v", is)
	}

	b.host.guest = &model.GuestTools{ToleratedMicroseconds: 250, TransmitMicroseconds: 250}
	b.wantReadBack("tools that were just heard of", b.round(), readBackOf(500, in, no))
	for range int(steady / time.Second) {
		b.round()
	}
	b.wantReadBack("tools", b.round(), readBackOf(250, in, in))
	b.host.guest = &model.GuestTools{}
	for range int(steady/time.Second) + 1 {
		b.round()
	}
	b.wantReadBack("a guest that declines", b.round(), readBackOf(0, declines, declines))

	b.cluster.plan = nil
	b.round()
	if _, is := b.host.told(); !is.IsZero() || b.board.Latest().Buffered != 0 {
		t.Errorf("left without a plan: %+v", is)
	}
	b.plan(1000)
	b.round()
	b.cluster.renewed = b.clock.Now().Add(-time.Hour)
	if one := b.round(); one != nil {
		t.Errorf("status of a stale manager: %+v", one)
	}
	if _, is := b.host.told(); !is.IsZero() {
		t.Errorf("left with a stale manager: %+v", is)
	}
	b.cluster.renewed = b.clock.Now()
	b.round()
	if err := b.agent.end(); err != nil {
		t.Error(err)
	}
	if _, is := b.host.told(); !is.IsZero() || len(b.journal.Taps()) != 0 {
		t.Errorf("left at the end: %+v, journal %v", is, b.journal.Taps())
	}
}

// A status is no place for what a guest changes its mind about.
func TestAFickleGuestIsToldOfSeldom(t *testing.T) {
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
	before, _ := b.host.told()
	b.agent.keeper.Beat()
	b.round()
	if leases, is := b.host.told(); leases != before+1 || is.IsZero() {
		t.Errorf("%d leases, %+v before the plan is known", leases-before, is)
	}
	b.cluster.synced = true
	b.wantReadBack("taken over", b.round(), readBackOf(1000, v1alpha1.BufferingHalfInForce, v1alpha1.BufferingHalfNoGuestTools))
	b.crash()
	j, err := journal.Open(b.dir, "boot")
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, want := range []Restored{{Taps: 1}, {}} {
		if got, err := Restore(b.host, j); err != nil || got != want {
			t.Errorf("restored %+v, %v; want %+v", got, err, want)
		}
		if _, is := b.host.told(); !is.IsZero() {
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
		if _, is := b.host.told(); is.IsZero() || b.board.Latest().RoundError != nil {
			t.Fatalf("%+v, %v after %s", is, b.board.Latest().RoundError, b.clock.Now().Sub(b.agent.blindSince))
		}
	}
	b.round()
	if _, is := b.host.told(); !is.IsZero() || len(b.journal.Taps()) != 0 || b.board.Latest().RoundError == nil {
		t.Errorf("left after %s: %+v, journal %v, told %v", longestBlind, is, b.journal.Taps(), b.board.Latest().RoundError)
	}
	b.cluster.synced, b.cluster.renewed = true, b.clock.Now()
	b.wantReadBack("once the plan is known", b.round(), readBackOf(1000, v1alpha1.BufferingHalfInForce, v1alpha1.BufferingHalfNoGuestTools))
	if err := b.board.Latest().RoundError; err != nil {
		t.Errorf("still told: %v", err)
	}
}

func TestALostJournalLeavesNoTapBuffered(t *testing.T) {
	b := newBuffered(t)
	b.round()
	b.crash()
	b.dir = t.TempDir()
	b.cluster.plan = nil
	b.start()
	b.round()
	if _, is := b.host.told(); !is.IsZero() {
		t.Errorf("left: %+v", is)
	}
}

// The loop of an agent that hangs undoes nothing, so packets are no longer held.
func TestAnAgentThatHangsHoldsNothing(t *testing.T) {
	b := newBuffered(t)
	b.round()
	pass := func(seconds int) int {
		before, _ := b.host.told()
		for range seconds {
			b.clock.Step(time.Second)
			b.agent.keeper.Beat()
		}
		after, _ := b.host.told()
		return after - before
	}
	if told := pass(100); told != 30 {
		t.Errorf("a hanging agent had packets held for %d s", told)
	}
	b.cluster.renewed = b.clock.Now()
	b.round()
	if told := pass(1); told != 1 {
		t.Error("an agent that works again does not have packets held")
	}
	b.cluster.plan = nil
	b.round()
	if told := pass(10); told != 0 {
		t.Errorf("told %d times without a plan", told)
	}
}

func TestNothingIsHeldAfterTheEnd(t *testing.T) {
	b := newBuffered(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.agent.Run(ctx) }()
	hosttest.Eventually(t, "the buffering", func() bool { _, is := b.host.told(); return !is.IsZero() })
	before, _ := b.host.told()
	hosttest.Eventually(t, "the keeper", func() bool {
		b.clock.Step(time.Second)
		now, _ := b.host.told()
		return now > before+3
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	leases, is := b.host.told()
	if !is.IsZero() {
		t.Errorf("left at the end: %+v", is)
	}
	b.clock.Step(time.Minute)
	if later, _ := b.host.told(); later != leases {
		t.Error("packets are held on after the end")
	}
}
