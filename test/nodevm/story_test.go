package nodevm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/errgroup"

	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

// bpfRoot is where the agent pins.
const bpfRoot = "/sys/fs/bpf/joulevirt"

const (
	// rate of the packets that are held, and the window of that.
	rate   = 5000
	window = 500 * time.Microsecond
	// onPackets is well below: what is tested is not where holding begins.
	onPackets = 2000
	// slow is a rate at which nothing is to be held.
	slowGap, slowCount = 2 * time.Millisecond, 250
	// heldFrom is when packets are held of a load at the latest: they have to come fast for
	// a second, and decisions are an eighth apart.
	heldFrom = 1125 * time.Millisecond
	// toolsSettle is when the guest's tools defer interrupts at the latest: they count each
	// second, and want packets to come fast in a whole one.
	toolsSettle = 2200 * time.Millisecond
	// mostInterrupts and mostKicks are what is left with packets held, as a share of those
	// without.
	mostInterrupts, mostKicks = 0.65, 0.8
)

// TestAgentOnARealNode has the shipped agent hold the packets of a real guest.
func TestAgentOnARealNode(t *testing.T) {
	s := newScene(t)
	s.before = s.device()
	t.Run("Loads", func(t *testing.T) { s.with(t).inTime((*scene).testLoads) })
	t.Run("AgentKilled", func(t *testing.T) { s.with(t).inTime((*scene).testKilled) })
	t.Run("TCP", func(t *testing.T) { s.with(t).inTime((*scene).testTCP) })
	t.Run("AgentEnds", func(t *testing.T) { s.with(t).testEnd() })
	t.Logf("the guest died %d times; the node's clocks run at 1/%d", s.node.Retries, s.node.Slowness())
}

func (s *scene) with(t *testing.T) *scene {
	sub := *s
	sub.T = t
	return &sub
}

// inTime does a part of which all is measured by the same clock. When this machine was too
// busy for one of its loads, the part is done anew on a slower node.
func (s *scene) inTime(part func(*scene) error) {
	s.Helper()
	for {
		err := part(s)
		if err == nil {
			return
		}
		if !errors.Is(err, ErrTooBusy) {
			s.Fatal(err)
		}
		s.forget()
		s.must(s.node.Slower(s.Context(), err))
	}
}

// testLoads compares what loads cause with packets held with what they cause without.
func (s *scene) testLoads() error {
	s.Log("without the agent")
	// First what asks most of the machine: each packet that the guest sends is an exit.
	sent, err := s.unheld(Transmit)
	if err != nil {
		return err
	}
	received, err := s.unheld(Receive)
	if err != nil {
		return err
	}
	s.hold()
	s.Log("with a window of", window)
	s.slowPackets()
	with, err := s.held(Receive)
	if err != nil {
		return err
	}
	s.less("interrupts", with.Interrupts, received.Interrupts, mostInterrupts)
	// Whatever disturbs the machine makes single round trips longer, and none shorter: the
	// shorter ones tell what a window does. It holds a packet for no longer than itself, and
	// packets from the guest are not held without its tools.
	if added := with.RTT.P25 - received.RTT.P25; added > 2*window {
		s.Errorf("round trips take %v longer, which a window of %v cannot explain", added, window)
	}
	s.must(s.startTools())
	*s.toolsRun = true
	sentWith, err := s.held(Transmit)
	if err != nil {
		return err
	}
	s.less("kicks", sentWith.Kicks, sent.Kicks, mostKicks)
	deferred, err := s.heldAfter(toolsSettle, Receive)
	if err != nil {
		return err
	}
	s.less("interrupts with its tools", deferred.Interrupts, with.Interrupts, mostInterrupts)
	*s.toolsRun = false
	s.must(s.node.Ask(s.Context(), "Machine.Signal", wire.Signal{Name: "tools", Signal: int(syscall.SIGTERM), Wait: true}, &wire.None{}, pingTimeout))
	return nil
}

// less holds that a load causes less of something with packets held.
func (s *scene) less(what string, with, without, most float64) {
	s.Helper()
	ratio := Ratio(with, without)
	s.Logf("the guest's %s are %.2f of those without", what, ratio)
	if ratio >= most || with == 0 {
		s.Errorf("the guest's %s are %.2f of those without: they have to be below %.2f", what, ratio, most)
	}
}

// unheld measures a load of which nothing is held, and which the machine has to keep up with.
func (s *scene) unheld(d Direction) (m Measured, err error) {
	s.Helper()
	err = s.twice(func() error {
		if m, err = s.measure(settle, d); err == nil && !s.node.slowest() {
			err = m.KeptUp(d)
		}
		return err
	})
	if err == nil {
		s.whole(m)
	}
	return m, err
}

// held measures a load whose packets towards the guest are held once they came fast.
func (s *scene) held(d Direction) (Measured, error) {
	s.Helper()
	return s.heldAfter(settle, d)
}

// heldAfter measures such a load after a time of it.
func (s *scene) heldAfter(settled time.Duration, d Direction) (m Measured, err error) {
	s.Helper()
	err = s.twice(func() error {
		if m, err = s.measure(settled, d); err == nil {
			err = m.wasHeld(d)
		}
		return err
	})
	if err == nil {
		s.whole(m)
	}
	return m, err
}

// wasHeld reports whether packets of a load towards the guest were held. Holding begins late
// where the machine was late with some of them: ErrTooBusy.
func (m Measured) wasHeld(d Direction) error {
	if least := 0.9 * rate * (settle + measuring - heldFrom).Seconds(); d == Receive && float64(m.Decided.Held) < least {
		return fmt.Errorf("%w: %d packets were held, not %.0f", ErrTooBusy, m.Decided.Held, least)
	}
	return nil
}

// measureTries are made of a load: what disturbs the machine may pass.
const measureTries = 2

// twice measures a load once more when the machine was too busy for it.
func (s *scene) twice(measure func() error) (err error) {
	s.Helper()
	for range measureTries {
		if err = measure(); !errors.Is(err, ErrTooBusy) {
			break
		}
		s.Logf("BUSY: %v", err)
	}
	return err
}

// measure sends at rate.
func (s *scene) measure(settled time.Duration, d Direction) (m Measured, err error) {
	s.Helper()
	err = s.try("a load", func() (err error) {
		m, err = s.node.measureAfter(s.Context(), settled, d, rate, d == Receive)
		return err
	})
	if err == nil {
		s.Logf("%+v", m)
	}
	return m, err
}

// whole holds that nothing is lost.
func (s *scene) whole(m Measured) {
	s.Helper()
	if m.Lost > 0 || m.Reordered > 0 || m.Duplicated > 0 {
		s.Errorf("%d packets lost, %d out of order, %d twice", m.Lost, m.Reordered, m.Duplicated)
	}
}

// slowPackets asks the guest slowly, and holds that none of it waits. Round trips differ by
// more than a window here, so that it is counted.
func (s *scene) slowPackets() {
	s.Helper()
	var pinged wire.Pinged
	var before, after wire.Decided
	s.must(s.try("slow packets", func() (err error) {
		if before, err = s.node.decided(s.Context()); err != nil {
			return err
		}
		err = s.node.Call(s.Context(), "Node.Ping", wire.Ping{
			Address: fmt.Sprintf("%s:%d", wire.GuestAddress, wire.EchoPort), Count: slowCount, Gap: slowGap,
		}, &pinged)
		if err != nil {
			return err
		}
		after, err = s.node.decided(s.Context())
		return err
	}))
	s.Logf("slow: %+v", pinged)
	if passed, held := after.Passed-before.Passed, after.Held-before.Held; held > 0 || passed < slowCount || pinged.Lost > 0 {
		s.Errorf("%d slow packets were held, %d were not, %d lost", held, passed, pinged.Lost)
	}
}

// try does what needs the guest again when the guest died.
func (s *scene) try(what string, part func() error) error {
	return s.node.Try(s.Context(), what, func() error { return s.recovered() }, part)
}

// recovered waits until the agent has followed its plan for a new guest, and starts its
// tools.
func (s *scene) recovered() error {
	if *s.planned && *s.agentRuns {
		err := s.poll("the new guest's packets are held", func() error {
			device, err := s.deviceOf()
			if err == nil && len(device.Pins) == 0 {
				err = errors.New("nothing is pinned")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if *s.toolsRun {
		return s.startTools()
	}
	return nil
}

// startTools starts the guest's tools, and waits until the host lets both halves hold.
func (s *scene) startTools() error {
	err := s.node.Ask(s.Context(), "Machine.Start", wire.Program{
		Name: "tools", Path: "/usr/bin/joulevirt-guest", Args: []string{"--state-dir=/tmp/tools"},
	}, &wire.None{}, pingTimeout)
	if err != nil {
		return err
	}
	return s.poll("the guest's tools are at work", func() error {
		var output string
		if err := s.node.Ask(s.Context(), "Machine.Output", "tools", &output, pingTimeout); err != nil {
			return err
		}
		for _, half := range []string{"transmit half", "receive half"} {
			if !strings.Contains(output, fmt.Sprintf("msg=%q card=eth0 state=InForce", half)) {
				return fmt.Errorf("the %s is not in force: the tools said:\n%s", half, output)
			}
		}
		return nil
	})
}

func (s *scene) deviceOf() (device wire.Device, err error) {
	err = s.node.Call(s.Context(), "Node.Device", wire.None{}, &device)
	return device, err
}

func (s *scene) device() wire.Device {
	s.Helper()
	device, err := s.deviceOf()
	s.must(err)
	return device
}

// untouched waits until the tap is as it was before. The lease, which is of no tap, stays
// pinned.
func (s *scene) untouched() {
	s.Helper()
	s.eventually("the tap is as it was", func() error {
		now, err := s.deviceOf()
		if err != nil {
			return err // pins may go while they are listed
		}
		now.Pins = slices.DeleteFunc(now.Pins, func(pin string) bool { return pin == bpfRoot || pin == bpfRoot+"/lease" })
		if diff := cmp.Diff(s.before, now, cmpopts.EquateEmpty()); diff != "" {
			return fmt.Errorf("-before +now:\n%s", diff)
		}
		return nil
	})
}

// testKilled kills the agent while packets are held, and starts the next one.
func (s *scene) testKilled() error {
	s.hold()
	pinned := s.device()
	if len(pinned.Pins) == 0 {
		s.Fatal("nothing is pinned")
	}
	retries := s.node.Retries
	var restarts errgroup.Group
	restarts.Go(func() error {
		if err := s.node.Pass(s.Context(), settle); err != nil {
			return err
		}
		err := s.node.Call(s.Context(), "Machine.Signal", wire.Signal{Name: "agent", Signal: int(syscall.SIGKILL), Wait: true}, &wire.None{})
		return errors.Join(err, s.launchAgent(s.Context()))
	})
	killed, err := s.measure(settle, Receive)
	if err := errors.Join(err, restarts.Wait()); err != nil {
		return err
	}
	s.whole(killed)
	if err := killed.wasHeld(Receive); err != nil {
		return err
	}
	// As with the agent: a load that the machine keeps up with has no fewer without.
	if most := mostInterrupts * ownShare * rate; killed.Interrupts > most {
		s.Errorf("%.0f interrupts while the agent was away, more than %.0f", killed.Interrupts, most)
	}
	s.must(s.applied())
	// A guest that was booted anew has another process.
	if diff := cmp.Diff(pinned, s.device()); diff != "" && s.node.Retries == retries {
		s.Errorf("the next agent did not take over (-before +now):\n%s", diff)
	}
	return nil
}

// testEnd has the agent end in order, and holds that nothing is left of it.
func (s *scene) testEnd() {
	s.hold()
	s.signalAgent(int(syscall.SIGTERM))
	s.untouched()
	if left := s.device().Pins; len(left) > 0 {
		s.Errorf("the agent that ended left %q", left)
	}
}
