package cluster

import (
	"context"
	"fmt"
	"time"
)

// pollInterval is how often a condition is looked at: fine enough for tests
// that measure nothing, coarse enough for an API server on two cores.
const pollInterval = 50 * time.Millisecond

// WaitFor polls condition until it returns nil. When timeout passes or ctx
// ends, the error says what was waited for and why it was not so at the last
// look.
func (c *Cluster) WaitFor(ctx context.Context, timeout time.Duration, what string, condition func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not so within %s", timeout))
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err // an error of the deadline itself would hide the reason
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if last == nil {
				last = err
			}
			return fmt.Errorf("%s: %w: %w", what, context.Cause(ctx), last)
		}
	}
}
