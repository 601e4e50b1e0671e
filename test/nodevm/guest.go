package nodevm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

// ErrGuestSilent means that the guest does not answer any more.
var ErrGuestSilent = errors.New("the guest does not answer")

// ErrNodeSilent means that the node does not answer any more, though its QEMU runs.
var ErrNodeSilent = errors.New("the node does not answer")

// maxRetries of parts that the guest died in, until clocks are slowed.
const maxRetries = 3

// Boot starts the node's guest.
func (n *Node) Boot(ctx context.Context, b wire.Boot) error {
	n.boot = b
	return n.Try(ctx, "its boot", nil, func() error {
		if n.booted {
			return nil // by what was done because it died
		}
		return n.bootGuest(ctx)
	})
}

func (n *Node) bootGuest(ctx context.Context) error {
	var booted wire.Booted
	if err := n.Call(ctx, "Node.Boot", n.boot, &booted); err != nil {
		return err
	}
	n.booted = true
	n.log("the guest booted in %.1f s", booted.Seconds)
	return nil
}

// End ends the guest at once.
func (n *Node) End(ctx context.Context) error {
	return n.Call(ctx, "Node.End", wire.None{}, &wire.None{})
}

// pingTimeout is how long a guest has to say that it lives, by the node's clock.
const pingTimeout = 5 * time.Second

// silence is how long a node has to say so while it does something else, by its clock.
const silence = 2 * time.Second

// died tells why the guest is dead, and whether the node is too; empty when it lives.
func (n *Node) died(ctx context.Context) (why string, node bool, err error) {
	var state wire.GuestState
	if err := n.Call(ctx, "Node.State", wire.None{}, &state); err != nil {
		return n.nodeDied(ctx, err)
	}
	if state.Panicked != "" {
		return state.Panicked, false, nil
	}
	if !state.Running {
		return "", false, fmt.Errorf("the guest's QEMU ended without a panic; its console: %s", state.Console)
	}
	err = n.Ask(ctx, "Machine.Alive", wire.None{}, &wire.None{}, pingTimeout)
	if errors.Is(err, ErrGuestSilent) {
		return "its QEMU runs, but it does not answer; console: " + state.Console, false, nil
	}
	return "", false, err
}

// nodeDied tells why the node does not answer, when it panicked.
func (n *Node) nodeDied(ctx context.Context, failed error) (why string, node bool, err error) {
	if errors.Is(failed, ErrNodeSilent) {
		n.process.Kill()
		return "the node: its QEMU runs, but it does not answer; console: " + n.console(), true, nil
	}
	// A connection ends before its process does.
	const ending = 5 * time.Second
	select {
	case <-n.process.Done():
	case <-ctx.Done():
		return "", false, failed
	case <-time.After(ending):
		return "", false, failed
	}
	line := panicLine(n.console())
	if line == "" {
		return "", true, fmt.Errorf("the node VM ended without a panic; its console: %s: %w", n.console(), failed)
	}
	return "the node: " + line, true, nil
}

func panicLine(console string) string {
	for line := range strings.Lines(console) {
		if strings.Contains(line, "Kernel panic") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// Try does a part of a test that needs the guest. When the guest or the node died in it,
// which they do at times because their hardware is emulated, what died is booted anew,
// prepare is done (nil: nothing) and the part is done again; that is told. Any other failure
// is returned.
func (n *Node) Try(ctx context.Context, what string, prepare, part func() error) error {
	err := part()
	for err != nil {
		why, node, dead := n.died(ctx)
		if dead != nil {
			return errors.Join(err, dead)
		}
		if why == "" {
			return err
		}
		n.Retries++
		n.retried++
		n.log("RETRY %d of %d: died during %s: %s (%v)", n.retried, maxRetries, what, why, err)
		if n.retried > maxRetries {
			return fmt.Errorf("died %d times, the last time during %s: %s: %w", n.retried, what, why, err)
		}
		if err = n.revive(ctx, node); err == nil && prepare != nil {
			err = prepare()
		}
		if err == nil {
			err = part()
		}
	}
	return nil
}

// revive boots what died.
func (n *Node) revive(ctx context.Context, node bool) error {
	n.booted = false
	if !node {
		if err := n.End(ctx); err != nil {
			return err
		}
		return n.bootGuest(ctx)
	}
	_ = n.client.Close() // its machine is gone
	if err := n.power(ctx); err != nil {
		return err
	}
	if n.options.Restarted != nil {
		if err := n.options.Restarted(ctx); err != nil {
			return err
		}
	}
	return n.bootGuest(ctx)
}
