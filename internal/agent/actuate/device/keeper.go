package device

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/host"
)

const (
	// beat is how often the lease is extended, and lifetime by how much: a few beats may come
	// late.
	beat     = time.Second
	lifetime = 5 * beat
	// leastPatience is how long the agent's loop may take for a round, and rounds is how
	// many of its intervals, before it counts as hanging.
	leastPatience = 30 * time.Second
	rounds        = 3
)

// Keeper extends the lease on which the kernel holds packets, for as long as some device is
// the agent's and the agent's loop is alive: one that hangs would undo nothing. Its methods may
// be called from several goroutines.
type Keeper struct {
	host     host.Leaser
	clock    clock.WithTicker
	patience time.Duration

	mu sync.Mutex
	// devices counts those that are the agent's, by lever.
	devices map[string]int
	// alive is when the loop finished its last round.
	alive time.Time
	// extended is when the lease was, and err why it could not be.
	extended time.Time
	err      error
}

// NewKeeper returns a Keeper without any device. interval is the time between two rounds of
// the agent's loop.
func NewKeeper(h host.Leaser, c clock.WithTicker, interval time.Duration) *Keeper {
	return &Keeper{
		host: h, clock: c, patience: max(leastPatience, rounds*interval),
		devices: map[string]int{}, alive: c.Now(),
	}
}

// Run extends the lease until the context ends.
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

// Alive records that the loop finished a round.
func (k *Keeper) Alive() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.alive = k.clock.Now()
}

// Beat extends the lease by some seconds, when that is due.
func (k *Keeper) Beat() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	devices := 0
	for _, n := range k.devices {
		devices += n
	}
	if devices == 0 {
		k.err = nil
		return
	}
	if now.Sub(k.alive) > k.patience || k.err == nil && now.Sub(k.extended) < beat {
		return
	}
	k.extended = now
	if k.err = k.host.ExtendLease(lifetime); k.err != nil {
		k.err = fmt.Errorf("have packets held: %w", k.err)
	}
}

// setDevices records how many devices are the agent's by a lever.
func (k *Keeper) setDevices(lever string, devices int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.devices[lever] = devices
}

// failure says why the lease could not be extended.
func (k *Keeper) failure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}
