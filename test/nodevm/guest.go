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

// maxRetries of parts that the guest died in.
const maxRetries = 3

// Boot starts the node's guest.
func (n *Node) Boot(ctx context.Context, b wire.Boot) error {
	n.boot = b
	var booted wire.Booted
	if err := n.Call(ctx, "Node.Boot", b, &booted); err != nil {
		if strings.Contains(err.Error(), wire.GuestSilent) {
			return errors.Join(ErrGuestSilent, err)
		}
		return err
	}
	n.log("the guest booted in %.1f s", booted.Seconds)
	return nil
}

// End ends the guest at once.
func (n *Node) End(ctx context.Context) error {
	return n.Call(ctx, "Node.End", wire.None{}, &wire.None{})
}

// pingTimeout is how long a guest has to say that it lives.
const pingTimeout = 10 * time.Second

// died tells why the guest is dead; empty when it lives.
func (n *Node) died(ctx context.Context) (string, error) {
	var state wire.GuestState
	if err := n.Call(ctx, "Node.State", wire.None{}, &state); err != nil {
		return "", err
	}
	if state.Panicked != "" {
		return state.Panicked, nil
	}
	if !state.Running {
		return "", fmt.Errorf("the guest's QEMU ended without a panic; its console: %s", state.Console)
	}
	err := n.Ask(ctx, "Machine.Alive", wire.None{}, &wire.None{}, pingTimeout)
	if errors.Is(err, ErrGuestSilent) {
		return "its QEMU runs, but it does not answer; console: " + state.Console, nil
	}
	return "", err
}

// Try does a part of a test that needs the guest. When the guest died in it, which it does
// at times because its hardware is emulated, the guest is booted anew, prepare is done (nil:
// nothing) and the part is done again; that is told. Any other failure is returned.
func (n *Node) Try(ctx context.Context, what string, prepare, part func() error) error {
	for {
		err := part()
		if err == nil {
			return nil
		}
		why, dead := n.died(ctx)
		if dead != nil {
			return errors.Join(err, dead)
		}
		if why == "" {
			return err
		}
		n.Retries++
		n.log("RETRY %d of %d: the guest died during %s: %s (%v)", n.Retries, maxRetries, what, why, err)
		if n.Retries > maxRetries {
			return fmt.Errorf("the guest died %d times, the last time during %s: %s: %w", n.Retries, what, why, err)
		}
		if err := errors.Join(n.End(ctx), n.Boot(ctx, n.boot)); err != nil {
			return err
		}
		if prepare != nil {
			if err := prepare(); err != nil {
				return err
			}
		}
	}
}
