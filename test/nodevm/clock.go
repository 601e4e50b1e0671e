package nodevm

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// defaultSlowness is how many times slower than this machine's the node's clocks run at
	// first. A guest in an emulated machine takes a third of a millisecond for each exit: by
	// a clock of this machine it is busy all the time with a thousand packets a second.
	defaultSlowness = 10
	// maxSlowness is the most that is of use: a load of two seconds takes 84 then.
	maxSlowness = 40
	// slowClock is what slows QEMU's clocks (package libfaketime).
	slowClock = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
)

// ErrTooBusy means that this machine could not make the load in time. It may, with slower
// clocks.
var ErrTooBusy = errors.New("this machine is too busy to emulate a node")

// Slowness is how many times slower than this machine's the node's clocks run.
func (n *Node) Slowness() int { return n.slowness }

// slowest reports whether clocks can run no slower.
func (n *Node) slowest() bool { return 2*n.slowness > maxSlowness }

// Slower stops the node and boots it anew with clocks that run half as fast, and its guest, as
// after a panic. why is what this machine was too busy for: it is returned when the clocks are
// as slow already as they may be.
func (n *Node) Slower(ctx context.Context, why error) error {
	if n.slowest() {
		return fmt.Errorf("with clocks that run at 1/%d, and do not get slower: %w", n.slowness, why)
	}
	n.slowness *= 2
	n.log("SLOWER: the node's clocks run at 1/%d from here on: %v", n.slowness, why)
	n.process.Kill()
	n.booted, n.retried = false, 0
	return n.Try(ctx, "its boot with slower clocks", nil, func() error {
		if n.booted {
			return nil // by what was done because it died
		}
		return n.revive(ctx, true)
	})
}

// Pass waits for a time of the node's clock.
func (n *Node) Pass(ctx context.Context, d time.Duration) error { return wait(ctx, n.by(d)) }

// by is how long a time of the node's clock is by this machine's.
func (n *Node) by(d time.Duration) time.Duration { return time.Duration(n.slowness) * d }

// wait for a time of this machine's clock.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
