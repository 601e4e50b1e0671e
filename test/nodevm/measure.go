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
	loadTime   = 2100 * time.Millisecond
	flows      = 4
	smallBytes = 18
	// latest is how much longer than asked for a load may take: a machine that is too
	// busy to send it has not measured it.
	latest = 1.15
)

// ErrTooBusy means that this machine could not make the load in time.
var ErrTooBusy = errors.New("this machine is too busy to emulate a node")

// Measured is what a load caused, per second unless it says otherwise.
type Measured struct {
	// Packets, and of all that were sent: how many were lost, came late or twice.
	Packets                     float64
	Lost, Reordered, Duplicated uint64
	// Interrupts and Kicks of the guest's card.
	Interrupts, Kicks float64
	// Exits of the guest, Switches of all threads of the node, and CPU time of the
	// guest's threads and the kernel's worker for it.
	Exits, Switches, CPU float64
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

// counters of both machines.
type counters struct{ node, guest wire.Counters }

func (n *Node) counters(ctx context.Context) (c counters, err error) {
	err = errors.Join(
		n.Ask(ctx, "Guest.Counters", wire.None{}, &c.guest, pingTimeout),
		n.Call(ctx, "Node.Counters", wire.None{}, &c.node))
	return c, err
}

// Measure sends small packets in a direction for loadTime. With ping it asks the guest's
// echo meanwhile.
func (n *Node) Measure(ctx context.Context, d Direction, perSecond float64, ping bool) (Measured, error) {
	n.runs++
	load := wire.Load{
		Run: n.runs, Address: wire.GuestAddress + ":" + fmt.Sprint(wire.SinkPort),
		Flows: flows, PerSecond: perSecond, Packets: int(perSecond * loadTime.Seconds()), Bytes: smallBytes,
	}
	var m Measured
	var sent wire.Sent
	var before, after counters
	group, both := errgroup.WithContext(ctx)
	group.Go(func() error {
		if d == Receive {
			return n.Call(both, "Node.Send", load, &sent)
		}
		load.Address = wire.SenderAddress + ":" + fmt.Sprint(wire.SinkPort)
		return n.Ask(both, "Guest.Send", load, &sent, 4*loadTime)
	})
	group.Go(func() (err error) {
		if err := Pass(both, settle); err != nil {
			return err
		}
		if before, err = n.counters(both); err != nil {
			return err
		}
		if ping {
			err = n.Call(both, "Node.Ping", wire.Ping{Address: wire.GuestAddress + ":" + fmt.Sprint(wire.EchoPort), Count: pings, Gap: pingGap}, &m.RTT)
		} else {
			err = Pass(both, loadTime-settle-settle/4)
		}
		if err != nil {
			return err
		}
		after, err = n.counters(both)
		return err
	})
	if err := group.Wait(); err != nil {
		return m, err
	}
	tally, err := n.tally(ctx, d, load.Run, sent)
	if err != nil {
		return m, err
	}
	m.fill(before, after)
	m.Packets, m.Reordered, m.Duplicated = float64(total(sent.Packets))/sent.Seconds, tally.Reordered, tally.Duplicated
	m.Lost = total(sent.Packets) - total(tally.Distinct)
	if sent.Seconds > latest*loadTime.Seconds() {
		return m, fmt.Errorf("%w: %.0f packets per second became %.0f", ErrTooBusy, perSecond, m.Packets)
	}
	return m, nil
}

// Under a load an echo is asked for rarely: it is not the load.
const (
	pings   = 80
	pingGap = 8 * time.Millisecond
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
	deadline := time.Now().Add(Slowness * tallyTimeout)
	for {
		if d == Receive {
			err = n.Ask(ctx, "Guest.Tally", run, &tally, pingTimeout)
		} else {
			err = n.Call(ctx, "Node.Tally", run, &tally)
		}
		if err != nil || total(tally.Distinct) == total(sent.Packets) || time.Now().After(deadline) {
			return tally, err
		}
		if err := Pass(ctx, tallyTimeout/10); err != nil {
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

// Pass waits for a time of the node's clock.
func Pass(ctx context.Context, d time.Duration) error { return wait(ctx, Slowness*d) }

// wait for a time of this machine's clock.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
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
