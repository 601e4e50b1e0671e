//go:build fq

package device

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// realBench is an actuator on real pods' networks, with a real clock.
type realBench struct {
	t        *testing.T
	outside  *hosttest.Outside
	pods     []*hosttest.Network
	host     *linux.Host
	journal  *journal.Journal
	dir      string
	pins     string
	keeper   *Keeper
	actuator *Actuator[model.Shaping]
	stop     func()
}

func newRealBench(t *testing.T, bindings ...hosttest.Binding) *realBench {
	b := &realBench{t: t, outside: hosttest.NewOutside(t), dir: t.TempDir(), pins: hosttest.NewPinRoot(t)}
	for i, binding := range bindings {
		b.pods = append(b.pods, b.outside.NewVM("shop", string(rune('a'+i)), binding))
	}
	b.start()
	t.Cleanup(func() { b.kill() })
	return b
}

// start is the start of an agent, from what is on disk.
func (b *realBench) start() {
	b.t.Helper()
	h, err := linux.New(linux.Options{ProcRoot: "/proc", SysRoot: "/sys", Datapath: datapath.Options{PinRoot: b.pins}})
	if err != nil {
		b.t.Fatal(err)
	}
	j, err := journal.Open(b.dir, "boot")
	if err != nil {
		b.t.Fatal(err)
	}
	was, err := j.Load()
	if err != nil {
		b.t.Fatal(err)
	}
	b.host, b.journal, b.keeper = h, j, NewKeeper(h, clock.RealClock{}, 0)
	b.actuator = NewShaping(h, b.keeper, j.SaveUplinks, was.Uplinks)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { b.keeper.Run(ctx) })
	b.stop = func() {
		cancel()
		running.Wait()
	}
}

// kill ends an agent without its putting anything back.
func (b *realBench) kill() {
	b.t.Helper()
	if b.stop == nil {
		return
	}
	b.stop()
	b.stop = nil
	if err := b.journal.Close(); err != nil {
		b.t.Error(err)
	}
	if err := b.host.Close(); err != nil {
		b.t.Error(err)
	}
}

func podUID(i int) string { return string(rune('a' + i)) }

// of is a plan from a map.
func of(want map[string]model.Shaping) func(string) (model.Shaping, bool) {
	return func(podUID string) (model.Shaping, bool) {
		shaping, planned := want[podUID]
		return shaping, planned
	}
}

func (b *realBench) apply(want map[string]model.Shaping) {
	b.t.Helper()
	vms := make([]sample.VM, len(b.pods))
	for i, pod := range b.pods {
		vms[i].VM = discover.VM{Process: pod.VM.ID(), PodUID: podUID(i), Namespace: "shop", Name: podUID(i)}
	}
	results, err := b.actuator.Apply(vms, of(want))
	b.keeper.Beat()
	if err != nil {
		b.t.Fatal(err)
	}
	for i, r := range results {
		outcome := actuate.Undone
		if _, planned := want[podUID(i)]; planned {
			outcome = actuate.Applied
		}
		if r.Outcome != outcome {
			b.t.Errorf("VM %s: %s: %s", r.Name, r.Outcome, r.Message)
		}
	}
}

// now is a moment as both clocks have it.
func (b *realBench) now() (time.Time, time.Duration) {
	b.t.Helper()
	monotonic, err := b.host.Monotonic()
	if err != nil {
		b.t.Fatal(err)
	}
	return time.Now(), monotonic
}

func wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("the test ended")
	}
}

// Two VMs that each send 20 Mbit/s all the time have half of a period each.
func TestRealVMsTakeTurns(t *testing.T) { undisturbed(t, measureTurns) }

func measureTurns(t *testing.T) (wrong []string) {
	const (
		period  = 2 * time.Second
		rate    = 20e6
		periods = 5
		// edge is left out around each boundary, where what waited is sent and
		// senders find out.
		edge = 250 * time.Millisecond
	)
	b := newRealBench(t, hosttest.Masquerade, hosttest.Bridge)
	want := map[string]model.Shaping{}
	var streams []*stream
	for i, pod := range b.pods {
		want[podUID(i)] = model.Shaping{Turn: &model.Turn{
			Period: period, Offset: time.Duration(i) * period / 2, Length: period / 2, Trickle: model.LeastRate,
		}}
		streams = append(streams, startStream(t, pod, b.outside, rate))
	}
	wait(t, period/2) // unshaped, until TCP has its pace
	b.apply(want)
	uplinks, err := b.host.Uplinks(b.pods[0].VM.ID())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("turns by %s", uplinks[0].Queue)
	begin, monotonic := b.now()
	wait(t, periods*period)
	end := time.Now()
	for i, s := range streams {
		turn := want[podUID(i)].Turn
		arrivals := s.finish(t)
		for at := begin; at.Before(end); {
			open, next := turn.Phase(monotonic + at.Sub(begin))
			until := begin.Add(next - monotonic)
			if from, to := at.Add(edge), until.Add(-edge); at != begin && until.Before(end) {
				got := megabits(arrivals, from, to)
				t.Logf("VM %d from %v to %v, open %v: %.1f Mbit/s", i, from.Sub(begin).Round(time.Millisecond), to.Sub(begin).Round(time.Millisecond), open, got)
				if open && got < rate/1e6*0.9 || !open && got > 2 {
					wrong = append(wrong, fmt.Sprintf("VM %d sent %.1f Mbit/s with its gate open: %v", i, got, open))
				}
			}
			at = until
		}
		// Whole periods, from the end of a turn to that of another.
		_, close := turn.Phase(monotonic)
		if open, _ := turn.Phase(monotonic); !open {
			_, close = turn.Phase(close)
		}
		from := begin.Add(close - monotonic)
		mean := megabits(arrivals, from, from.Add((periods-1)*period))
		t.Logf("VM %d: %.2f Mbit/s on average, waited for %v at most", i, mean, longest(arrivals))
		if math.Abs(mean/(rate/1e6)-1) > 0.05 {
			wrong = append(wrong, fmt.Sprintf("VM %d sent %.2f Mbit/s on average", i, mean))
		}
		// A hold, and what it takes to send what waited.
		if worst := longest(arrivals); worst > period/2+500*time.Millisecond {
			wrong = append(wrong, fmt.Sprintf("VM %d: %v at most, want little more than a hold", i, worst))
		}
	}
	b.apply(nil)
	return wrong
}

func TestRealCeiling(t *testing.T) { undisturbed(t, measureCeiling) }

func measureCeiling(t *testing.T) (wrong []string) {
	const ceiling = 10e6
	b := newRealBench(t, hosttest.Masquerade)
	b.apply(map[string]model.Shaping{podUID(0): {Ceiling: ceiling}})
	s := startStream(t, b.pods[0], b.outside, 30e6)
	wait(t, time.Second)
	begin := time.Now()
	wait(t, 3*time.Second)
	end := time.Now()
	b.apply(nil)
	arrivals := s.finish(t)
	got := megabits(arrivals, begin, end)
	t.Logf("%.2f Mbit/s", got)
	if got > ceiling/1e6 || got < 0.9*ceiling/1e6 {
		wrong = append(wrong, fmt.Sprintf("%.2f Mbit/s below a ceiling of %v", got, units.BitsPerSecond(ceiling)))
	}
	return wrong
}

// An agent that is gone holds nothing new, and the next one finds its way.
func TestRealShapingAgentIsKilledInAHold(t *testing.T) { undisturbed(t, measureKill) }

func measureKill(t *testing.T) (wrong []string) {
	b := newRealBench(t, hosttest.Masquerade)
	s := startStream(t, b.pods[0], b.outside, 20e6)
	_, monotonic := b.now()
	// A turn that is over soon and does not come again, and begins late enough to be
	// seen by a busy machine.
	held := &model.Turn{Period: time.Hour, Length: 500 * time.Millisecond, Trickle: model.LeastRate}
	held.Offset = (monotonic + time.Second) % held.Period
	b.apply(map[string]model.Shaping{podUID(0): {Turn: held}})
	wait(t, 1500*time.Millisecond) // to the end of the turn
	hosttest.Eventually(t, "the hold", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.arrivals) > 0 && megabits(s.arrivals, time.Now().Add(-500*time.Millisecond), time.Now()) < 2
	})
	passes := startEcho(t, b.pods[0], b.outside)
	if !passes(64) {
		wrong = append(wrong, "a small datagram did not pass in the hold")
	}
	b.kill()
	killed := time.Now()
	if passes(1000) {
		wrong = append(wrong, "a large datagram passed in the hold")
	}
	hosttest.Eventually(t, "new traffic to pass", func() bool { return passes(1000) })
	passed := time.Since(killed)
	if passed > lifetime+time.Second {
		wrong = append(wrong, fmt.Sprintf("new traffic passed after %v", passed))
	}
	b.start()
	b.apply(nil)
	if uplinks, err := b.host.Uplinks(b.pods[0].VM.ID()); err != nil || uplinks[0].Queue != "noqueue 0:" {
		t.Errorf("%+v, %v", uplinks, err)
	}
	undone := time.Now()
	s.finish(t)
	t.Logf("new traffic passed %v after the kill; the rest came within %v of the undoing", passed, time.Since(undone))
	return wrong
}

// Who removes the agent's queueing discipline twice is left in peace.
func TestRealContested(t *testing.T) {
	b := newRealBench(t, hosttest.Bridge)
	pod := b.pods[0]
	want := map[string]model.Shaping{podUID(0): {Ceiling: 1e9}}
	vm := discover.VM{Process: pod.VM.ID(), PodUID: podUID(0), Namespace: "shop", Name: podUID(0)}
	for _, outcome := range []actuate.Outcome{actuate.Applied, actuate.Applied, actuate.Contested, actuate.Contested} {
		results, err := b.actuator.Apply([]sample.VM{{VM: vm}}, of(want))
		if err != nil || results[0].Outcome != outcome {
			t.Errorf("%+v, %v; want %s", results, err, outcome)
		}
		pod.Pod(func() error {
			link, err := netlink.LinkByName(pod.Uplink)
			if err != nil {
				return err
			}
			qdiscs, err := netlink.QdiscList(link)
			for _, qdisc := range qdiscs {
				if qdisc.Attrs().Parent == netlink.HANDLE_ROOT && qdisc.Attrs().Handle != 0 {
					err = errors.Join(err, netlink.QdiscDel(qdisc))
				}
			}
			return err
		})
	}
	if n := len(b.actuator.Pods()); n != 0 {
		t.Errorf("%d VMs count as shaped", n)
	}
}
