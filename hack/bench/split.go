package main

import (
	"context"

	"github.com/joulevirt/joulevirt/test/bench/trafficsplit"
)

func measureSplit(ctx context.Context, env environment) ([]figure, error) {
	points, err := trafficsplit.MeasureSplit(ctx, trafficsplit.Options{Binaries: env.source, Progress: env.progress})
	if err != nil {
		return nil, err
	}
	return []figure{{"traffic_split_error_points", points, "points"}}, nil
}
