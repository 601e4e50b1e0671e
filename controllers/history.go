package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	prommodel "github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/energy/prometheus"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// HistoryQuery is a PromQL query, the span of time over which it is evaluated, and the time
// between two values.
type HistoryQuery struct {
	Query    string
	From, To time.Time
	Step     time.Duration
}

// QueryHistory evaluates a PromQL query over a span of time on the first Prometheus server
// that a policy names as energy source. It returns nil if the policy names none. secrets has
// the server's Secret.
func QueryHistory(ctx context.Context, secrets energy.Secrets, policy *v1alpha1.EnergyPolicy, query HistoryQuery) (matrix prommodel.Matrix, err error) {
	for _, setting := range observe.EnergySettings(policy) {
		if setting.Type != v1alpha1.PowerPrometheus {
			continue
		}
		server := setting.Server
		credentials, err := energy.ReadCredentials(ctx, secrets, server)
		if err != nil {
			return nil, fmt.Errorf("read the credentials of %s: %w", server, err)
		}
		source, err := prometheus.New(server, credentials)
		if err != nil {
			return nil, fmt.Errorf("make a client of %s: %w", server, err)
		}
		matrix, err := source.QueryRange(ctx, query.Query, query.From, query.To, query.Step)
		return matrix, errors.Join(err, source.Close())
	}
	return nil, nil
}
