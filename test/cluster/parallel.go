package cluster

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// parallel calls do for 0..n-1 from some goroutines and returns the first
// error, which ends the rest early.
func parallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return do(ctx, i)
		})
	}
	return group.Wait()
}
