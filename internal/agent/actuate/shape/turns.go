package shape

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// beat is how often the host is told that there is somebody who opens gates.
	beat = time.Second
	// lifetime is for how long it is told so: a few beats may come late.
	lifetime = 5 * beat
)

// Turns opens and holds gates on time. Its methods may be called from several
// goroutines.
type Turns struct {
	host  host.Shaper
	clock clock.WithTicker
	// woken has one element when a gate was added.
	woken chan struct{}

	mu    sync.Mutex
	gates map[key]*gate
	// kept is when the host was told last, and keepErr what it said.
	kept    time.Duration
	keepErr error
	stats   TurnStats
}

// TurnStats are what became of the boundaries of turns.
type TurnStats struct {
	// Gates that there are.
	Gates int
	// Changes counts how often a gate was opened or held, since the start.
	Changes uint64
	// Late is the largest delay of a change behind its boundary since Stats was
	// asked last.
	Late time.Duration
}

// gate is the gate of one uplink.
type gate struct {
	turn model.Turn
	// known is false until the gate was set, and after that failed.
	known, open bool
	// due is when it is to change.
	due time.Duration
	err error
}

// NewTurns returns Turns without any gate.
func NewTurns(h host.Shaper, c clock.WithTicker) *Turns {
	return &Turns{host: h, clock: c, woken: make(chan struct{}, 1), gates: map[key]*gate{}}
}

// Run changes the gates on time until the context ends. It leaves them as they
// are: who put them there removes them.
func (t *Turns) Run(ctx context.Context) {
	for {
		timer := t.clock.NewTimer(t.Beat())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		case <-t.woken:
			timer.Stop()
		}
	}
}

// Beat changes what is due and returns after how long it wants to be called
// again. A call that comes late finds the gates that ought to be open by now,
// whatever was missed.
func (t *Turns) Beat() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.gates) == 0 {
		return beat
	}
	now, err := t.host.Monotonic()
	if err != nil {
		return beat
	}
	// Each time, and before a gate is held: a packet must never wait for an agent
	// that is not there.
	if t.kept == 0 || now-t.kept >= beat {
		t.keepErr = t.host.KeepTurns(lifetime)
		t.kept = now
	}
	wait := beat - (now - t.kept)
	for k, g := range t.gates {
		wait = min(wait, t.change(k, g, now))
	}
	return max(0, wait)
}

// change sets one gate when it is not as it ought to be, and returns in how
// long it changes.
func (t *Turns) change(k key, g *gate, now time.Duration) time.Duration {
	open, next := g.turn.Phase(now)
	if !g.known || open != g.open {
		trickle := g.turn.Trickle
		if open {
			trickle = 0
		}
		if g.err = t.host.SetGate(k.Process, k.Name, trickle); g.err != nil {
			g.known = false
			if errors.Is(g.err, host.ErrGone) {
				delete(t.gates, k)
			}
			return beat
		}
		if g.known {
			t.stats.Late = max(t.stats.Late, now-g.due)
		}
		t.stats.Changes++
		g.known, g.open = true, open
	}
	g.due = next
	return next - now
}

// set gives an uplink turns; nil: none.
func (t *Turns) set(k key, turn *model.Turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if turn == nil {
		delete(t.gates, k)
		return
	}
	t.gates[k] = &gate{turn: *turn}
	select {
	case t.woken <- struct{}{}:
	default:
	}
}

// remove ends the turns of an uplink: from now on its gate is not touched.
func (t *Turns) remove(k key) { t.set(k, nil) }

// failure of the last change of a gate.
func (t *Turns) failure(k key) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, found := t.gates[k]
	if !found {
		return nil
	}
	return errors.Join(g.err, t.keepErr)
}

// Stats since the start.
func (t *Turns) Stats() TurnStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	stats := t.stats
	stats.Gates = len(t.gates)
	t.stats.Late = 0
	return stats
}
