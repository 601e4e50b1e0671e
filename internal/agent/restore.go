package agent

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
)

// Restore puts back what an agent that is gone had changed, from its journal
// alone, and returns how many threads it had bound. Called again it does
// nothing.
func Restore(h host.Host, j *journal.Journal) (int, error) {
	entries, err := j.Load()
	if err != nil {
		return 0, fmt.Errorf("what was changed is not known: start the agent, which finds out from the cluster: %w", err)
	}
	return len(entries), affinity.New(h, j, entries).Restore()
}

// Jitter spreads a duration by up to 20 % to both sides, so that the agents of
// a cluster do not act at once. random is from 0 to 1.
func Jitter(base time.Duration, random float64) time.Duration {
	const spread = 0.2
	return time.Duration(float64(base) * (1 - spread + 2*spread*random))
}
