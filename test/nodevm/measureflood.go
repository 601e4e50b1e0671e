package nodevm

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

// Times of a flood: one is told from a whole second of it that was watched, which begins once
// packets came fast.
const (
	floodSettle = 2500 * time.Millisecond
	floodTime   = 3500 * time.Millisecond
)

// MeasureFlood floods the guest with SYNs of random sources for floodTime. What is lost is
// the ring's to say, and not told.
func (n *Node) MeasureFlood(ctx context.Context, perSecond float64) (Measured, error) {
	flood := wire.Flood{
		Address: fmt.Sprintf("%s:%d", wire.GuestAddress, wire.DrainPort+1), MAC: wire.GuestMAC,
		PerSecond: perSecond, Packets: int(perSecond * floodTime.Seconds()),
	}
	var m Measured
	var sent wire.Sent
	var before, after counters
	group, both := errgroup.WithContext(ctx)
	group.Go(func() error { return n.Call(both, "Node.Flood", flood, &sent) })
	group.Go(func() (err error) {
		if err := n.Pass(both, floodSettle); err != nil {
			return err
		}
		if before, err = n.counters(both); err != nil {
			return err
		}
		if err := n.Pass(both, (floodTime-floodSettle)*3/4); err != nil {
			return err
		}
		after, err = n.counters(both)
		return err
	})
	if err := group.Wait(); err != nil {
		return m, err
	}
	m.fill(before, after)
	m.Packets = float64(total(sent.Packets)) / sent.Seconds
	return m, nil
}
