package agent

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/buffer"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/shape"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/slice"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
)

// Restored counts what an agent that is gone had changed.
type Restored struct {
	// Threads that it had bound, Slices of threads that it had set, Uplinks that it had
	// shaped, and Taps whose packets it had held.
	Threads, Slices, Uplinks, Taps int
}

// Restore puts back what an agent that is gone had changed, from its journal
// alone, and returns what that was. Called again it does nothing.
func Restore(h host.Host, j *journal.Journal) (Restored, error) {
	entries, err := j.Load()
	if err != nil {
		return Restored{}, fmt.Errorf("what was changed is not known: start the agent, which finds out from the cluster: %w", err)
	}
	slices, uplinks, taps := j.Slices(), j.Uplinks(), j.Taps()
	// What fails for one lever is no reason to leave the others in force.
	err = errors.Join(
		affinity.New(h, j, entries).Restore(),
		slice.New(h, j, slices).Restore(),
		shape.New(h, j, uplinks, shape.NewTurns(h, clock.RealClock{})).Restore(),
		buffer.New(h, j, taps, buffer.NewKeeper(h, clock.RealClock{}, 0)).Restore(),
	)
	return Restored{Threads: len(entries), Slices: len(slices), Uplinks: len(uplinks), Taps: len(taps)}, err
}

// Jitter spreads a duration by up to 20 % to both sides, so that the agents of
// a cluster do not act at once. random is from 0 to 1.
func Jitter(base time.Duration, random float64) time.Duration {
	const spread = 0.2
	return time.Duration(float64(base) * (1 - spread + 2*spread*random))
}
