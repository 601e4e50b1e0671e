package cluster

import (
	"context"
	"fmt"
	"time"
)

// Pauses between two looks at a condition: at first short, then longer, for many looks take the
// time of a busy machine from what they wait for.
const firstPause, longestPause = 50 * time.Millisecond, time.Second

// WaitFor polls condition until it returns nil. When timeout passes or ctx
// ends, the error says what was waited for and why it was not so at the last
// look.
func (c *Cluster) WaitFor(ctx context.Context, timeout time.Duration, what string, condition func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not so within %s", timeout))
	defer cancel()
	var last error
	for pause := firstPause; ; pause = min(longestPause, pause*5/4) {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err // an error of the deadline itself would hide the reason
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if last == nil {
				last = err
			}
			return fmt.Errorf("%s: %w: %w", what, context.Cause(ctx), last)
		}
	}
}
