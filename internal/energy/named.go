package energy

import (
	"context"
	"fmt"
)

// LabelSource answers queries of an admin's own of which the labels count.
type LabelSource interface {
	// Labels evaluates a query and returns the labels of each series that it yields. The
	// error wraps a Refusal.
	Labels(ctx context.Context, query string) ([]map[string]string, error)
}

// Labels evaluates a query by a server, as Figure does, and returns the labels of each series
// that it yields; none is no error. The error wraps a Refusal.
func (a Asker) Labels(ctx context.Context, server Server, query string) ([]map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, server.Timeout)
	defer cancel()
	source, err := a.source(ctx, server)
	if err != nil {
		return nil, err
	}
	defer closeSource(source)
	asked, ok := source.(LabelSource)
	if !ok {
		return nil, fmt.Errorf("ask %s: %w", server, Refuse(ReasonQueryFailed, "the server answers no single queries"))
	}
	labels, err := asked.Labels(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", server, err)
	}
	return labels, nil
}
