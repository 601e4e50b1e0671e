package energy

import (
	"context"
	"fmt"
	"math"
)

// FigureSource answers queries of an admin's own that yield one sample.
type FigureSource interface {
	// Figure evaluates a query. The error wraps a Refusal.
	Figure(ctx context.Context, query string) (float64, error)
}

// Asker asks Prometheus servers for single figures, such as a price. All fields are
// required.
type Asker struct {
	Secrets Secrets
	// NewSource makes a source for a server, which must be a FigureSource.
	NewSource func(Server, Credentials) (Source, error)
}

// Figure evaluates a query by a server, with the server's credentials as they are now and
// within its timeout. It returns a finite number that is not negative. The error wraps a
// Refusal.
func (a Asker) Figure(ctx context.Context, server Server, query string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, server.Timeout)
	defer cancel()
	source, err := a.source(ctx, server)
	if err != nil {
		return 0, err
	}
	defer closeSource(source)
	asked, ok := source.(FigureSource)
	if !ok {
		return 0, fmt.Errorf("ask %s: %w", server, Refuse(ReasonQueryFailed, "the server answers no single queries"))
	}
	value, err := asked.Figure(ctx, query)
	switch {
	case err != nil:
		return 0, fmt.Errorf("ask %s: %w", server, err)
	case math.IsNaN(value) || math.IsInf(value, 0):
		return 0, Refuse(ReasonNotFinite, "the query yields %g: let it yield a number", value)
	case value < 0:
		return 0, Refuse(ReasonImplausible, "the query yields %g, less than 0: let it yield a mean over some time, such as avg_over_time(price[30d])", value)
	}
	return value, nil
}

func (a Asker) source(ctx context.Context, server Server) (Source, error) {
	now, err := readCredentials(ctx, a.Secrets, server)
	if err != nil {
		return nil, unread(server, err)
	}
	return a.NewSource(server, now)
}
