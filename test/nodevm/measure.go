package nodevm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

// Direction of the packets that are measured.
type Direction int

// Towards the guest, and from it.
const (
	Receive Direction = iota
	Transmit
)

// Times of a measurement, by the node's clock: packets are held once they came fast for a second, and no load
// lasts longer than an emulated guest is sure to bear.
const (
	settle     = 1200 * time.Millisecond
	measuring  = 900 * time.Millisecond
	flows      = 4
	smallBytes = 18
	// latest is how much longer than asked for a load may take: a machine that is too
	// busy to send it has not measured it.
	latest = 1.15
	// mostLate is the most of a load's packets that may leave so late that they go in a
	// bunch with the next one: bunches that the sender makes are none that holding makes,
	// and leave 85 % of the wake-ups where holding would save nothing.
	mostLate = 0.15
	// lastLate is the same with the slowest clocks: what a load of which more is late shows is
	// told with it, and has to be as wanted all the same. Bunches that the sender makes are in
	// both sides of a comparison, and bring its ratio nearer to 1.
	lastLate = 0.5
	// ownShare is for how many of its packets a load has to have wake-ups when none is held.
	ownShare = 0.8
)

// Measured is what a load caused, per second unless it says otherwise.
type Measured struct {
	// Packets, and of all that were sent: how many were lost, came late or twice.
	Packets float64
	// Late is the share of packets that left in a bunch with the next one, because their
	// sender was late.
	Late                        float64
	Lost, Reordered, Duplicated uint64
	// Interrupts and Kicks of the guest's card.
	Interrupts, Kicks float64
	// Exits of the guest, Switches of all threads of the node, and CPU time of the
	// guest's threads and the kernel's worker for it.
	Exits, Switches, CPU float64
	// Decided is what became of packets towards the guest on the tap.
	Decided wire.Decided
	// RTT under the load, when it was asked for.
	RTT wire.Pinged
}

// Ratio of one to another; 0 without any.
func Ratio(with, without float64) float64 {
	if without == 0 {
		return 0
	}
	return with / without
}

// KeptUp reports whether the machine kept up with a load of which nothing was held: a guest that
// is too slow for its packets takes them in bunches by itself, and says nothing of what holding
// them does. ErrTooBusy when it did not.
func (m Measured) KeptUp(d Direction) error {
	wakeups, of := m.Interrupts, "interrupts for packets towards the guest"
	if d == Transmit {
		wakeups, of = m.Kicks, "kicks for packets from the guest"
	}
	if wakeups < ownShare*m.Packets {
		return fmt.Errorf("%w: with nothing held there are %.0f %s, of which there are %.0f", ErrTooBusy, wakeups, of, m.Packets)
	}
	return nil
}

// counters of both machines.
type counters struct{ node, guest wire.Counters }

func (n *Node) counters(ctx context.Context) (c counters, err error) {
	err = errors.Join(
		n.Ask(ctx, "Guest.Counters", wire.None{}, &c.guest, pingTimeout),
		n.Call(ctx, "Node.Counters", wire.None{}, &c.node))
	return c, err
}

// Measure sends small packets in a direction, and measures what that causes once the tap has
// settled. With ping it asks the guest's echo meanwhile.
func (n *Node) Measure(ctx context.Context, d Direction, perSecond float64, ping bool) (Measured, error) {
	return n.measureAfter(ctx, settle, d, perSecond, ping)
}

// measureAfter measures what a load causes after a time of it.
func (n *Node) measureAfter(ctx context.Context, settled time.Duration, d Direction, perSecond float64, ping bool) (m Measured, err error) {
	n.runs++
	load := wire.Load{
		Run: n.runs, Address: wire.GuestAddress + ":" + fmt.Sprint(wire.SinkPort),
		Flows: flows, PerSecond: perSecond, Packets: int(perSecond * (settled + measuring).Seconds()), Bytes: smallBytes,
	}
	decided, err := n.decided(ctx)
	if err != nil {
		return m, err
	}
	sent, err := n.during(ctx, d, load, settled, func(ctx context.Context) error {
		before, err := n.counters(ctx)
		if err != nil {
			return err
		}
		if ping {
			err = n.Call(ctx, "Node.Ping", wire.Ping{Address: wire.GuestAddress + ":" + fmt.Sprint(wire.EchoPort), Count: pings, Gap: pingGap}, &m.RTT)
		} else {
			err = n.Pass(ctx, measuring*2/3)
		}
		if err != nil {
			return err
		}
		after, err := n.counters(ctx)
		m.fill(before, after)
		return err
	})
	if err != nil {
		return m, err
	}
	tally, err := n.tally(ctx, d, load.Run, sent)
	if err != nil {
		return m, err
	}
	now, err := n.decided(ctx)
	m.Decided = wire.Decided{Passed: now.Passed - decided.Passed, Held: now.Held - decided.Held}
	m.Packets, m.Reordered, m.Duplicated = float64(total(sent.Packets))/sent.Seconds, tally.Reordered, tally.Duplicated
	m.Lost, m.Late = total(sent.Packets)-total(tally.Distinct), Ratio(float64(sent.Late), float64(total(sent.Packets)))
	return m, err
}

// during sends a load, and has it measured once it has settled. ErrTooBusy when the machine
// could not send it in time, or when it ended before it was measured.
func (n *Node) during(ctx context.Context, d Direction, load wire.Load, settled time.Duration, measure func(context.Context) error) (sent wire.Sent, err error) {
	var ended, measured time.Time
	group, both := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if d == Receive {
			err = n.Call(both, "Node.Send", load, &sent)
		} else {
			load.Address = wire.SenderAddress + ":" + fmt.Sprint(wire.SinkPort)
			err = n.Ask(both, "Guest.Send", load, &sent, 4*(settled+measuring))
		}
		ended = time.Now()
		return err
	})
	group.Go(func() error {
		if err := n.Pass(both, settled); err != nil {
			return err
		}
		err := measure(both)
		measured = time.Now()
		return err
	})
	if err := group.Wait(); err != nil {
		return sent, err
	}
	late := mostLate
	if n.slowest() {
		late = lastLate
	}
	switch all := float64(total(sent.Packets)); {
	case sent.Seconds > latest*(settled+measuring).Seconds():
		err = fmt.Errorf("%w: %.0f packets per second became %.0f", ErrTooBusy, load.PerSecond, all/sent.Seconds)
	case float64(sent.Late) > late*all:
		err = fmt.Errorf("%w: %.0f %% of the packets left late, in bunches", ErrTooBusy, 100*Ratio(float64(sent.Late), all))
	case measured.After(ended):
		err = fmt.Errorf("%w: a load ended before its counters were read", ErrTooBusy)
	}
	return sent, err
}

// decided is what became of packets towards the guest so far.
func (n *Node) decided(ctx context.Context) (d wire.Decided, err error) {
	err = n.Call(ctx, "Node.Decided", wire.None{}, &d)
	return d, err
}

// Under a load an echo is asked for rarely: it is not the load.
const (
	pings   = 80
	pingGap = 8125 * time.Microsecond // each at another place of a window
)

func (m *Measured) fill(before, after counters) {
	guestTime := (after.guest.At - before.guest.At).Seconds()
	m.Interrupts = float64(after.guest.Interrupts["input"]-before.guest.Interrupts["input"]) / guestTime
	m.Kicks = float64(after.guest.Kicks-before.guest.Kicks) / guestTime
	nodeTime := (after.node.At - before.node.At).Seconds()
	m.Exits = float64(after.node.KVM["exits"]-before.node.KVM["exits"]) / nodeTime
	m.Switches = float64(after.node.Switches-before.node.Switches) / nodeTime
	for name, thread := range after.node.Threads {
		m.CPU += (thread.Seconds - before.node.Threads[name].Seconds) / nodeTime
	}
}

// tallyTimeout is how long packets may be on their way.
const tallyTimeout = 1 * time.Second

// tally waits until all that was sent has come, or that long.
func (n *Node) tally(ctx context.Context, d Direction, run uint32, sent wire.Sent) (tally wire.Tally, err error) {
	deadline := time.Now().Add(n.by(tallyTimeout))
	for {
		if d == Receive {
			err = n.Ask(ctx, "Guest.Tally", run, &tally, pingTimeout)
		} else {
			err = n.Call(ctx, "Node.Tally", run, &tally)
		}
		if err != nil || total(tally.Distinct) == total(sent.Packets) || time.Now().After(deadline) {
			return tally, err
		}
		if err := n.Pass(ctx, tallyTimeout/10); err != nil {
			return tally, err
		}
	}
}

func total(all []uint64) (sum uint64) {
	for _, n := range all {
		sum += n
	}
	return sum
}

// Median of some values.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
