package agent

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/device"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/slice"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
)

// Restore reverts what an agent that is gone had changed, from its journal
// alone, and returns what that was. Called again it does nothing.
func Restore(h host.Host, j *journal.Journal) (journal.Content, error) {
	was, err := j.Load()
	if err != nil {
		return was, fmt.Errorf("what was changed is not known: start the agent, which finds out from the cluster: %w", err)
	}
	keeper := device.NewKeeper(h, clock.RealClock{}, 0)
	// What fails for one lever is no reason to leave the others in force.
	err = errors.Join(
		affinity.New(h, j.SaveThreads, was.Threads).Restore(),
		slice.New(h, j.SaveSlices, was.Slices).Restore(),
		device.NewShaping(h, keeper, j.SaveUplinks, was.Uplinks).Restore(),
		device.NewBuffering(h, keeper, j.SaveTaps, was.Taps).Restore(),
	)
	return was, err
}

// Jitter spreads a duration by up to 20 % to both sides, so that the agents of
// a cluster do not act at once. random is from 0 to 1.
func Jitter(base time.Duration, random float64) time.Duration {
	const spread = 0.2
	return time.Duration(float64(base) * (1 - spread + 2*spread*random))
}
