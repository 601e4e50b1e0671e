package buffer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/agent/actuate/device"
	"github.com/joulevirt/joulevirt/internal/host"
)

const (
	// beat is how often the host is told that packets may be held.
	beat = time.Second
	// lifetime is for how long it is told so: a few beats may come late.
	lifetime = 5 * beat
	// leastPatience is how long the agent's loop may take for a round, and rounds is how
	// many of its intervals, before it counts as hanging.
	leastPatience = 30 * time.Second
	rounds        = 3
)

// Keeper has packets held for as long as there are taps whose packets are, and the agent's
// loop is alive: one that hangs would undo nothing. Its methods may be called from several
// goroutines.
type Keeper struct {
	host     host.Bufferer
	clock    clock.WithTicker
	patience time.Duration

	mu   sync.Mutex
	taps map[device.Key]bool
	// alive is when the loop gave its last sign of life.
	alive time.Time
	// kept is when the host was told last, and err what it said.
	kept time.Time
	err  error
}

// NewKeeper returns a Keeper without any tap. interval is the time between two rounds of
// the agent's loop.
func NewKeeper(h host.Bufferer, c clock.WithTicker, interval time.Duration) *Keeper {
	return &Keeper{
		host: h, clock: c, patience: max(leastPatience, rounds*interval),
		taps: map[device.Key]bool{}, alive: c.Now(),
	}
}

// Run has packets held until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	ticker := k.clock.NewTicker(beat)
	defer ticker.Stop()
	for {
		k.Beat()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// Alive is the loop's sign of life: a round was finished.
func (k *Keeper) Alive() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.alive = k.clock.Now()
}

// Beat lets packets be held for some seconds more, when that is due.
func (k *Keeper) Beat() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	if len(k.taps) == 0 || now.Sub(k.alive) > k.patience || k.err == nil && now.Sub(k.kept) < beat {
		return
	}
	k.kept = now
	if k.err = k.host.KeepBuffering(lifetime); k.err != nil {
		k.err = fmt.Errorf("have packets held: %w", k.err)
	}
}

func (k *Keeper) add(tap device.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.taps[tap] = true
}

func (k *Keeper) remove(tap device.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.taps, tap)
}

// failure says why the packets of a tap are not held.
func (k *Keeper) failure(tap device.Key) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.taps[tap] {
		return nil
	}
	return k.err
}
