package prometheus

import (
	"context"
	"time"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
)

// mostNamed bounds the series of a query whose labels count.
const mostNamed = 10_000

var _ energy.LabelSource = (*Source)(nil)

// Labels evaluates a query that yields a vector, and returns the labels of each of its series.
// The error wraps an energy.Refusal.
func (s *Source) Labels(ctx context.Context, query string) ([]map[string]string, error) {
	value, err := s.ask(ctx, query, time.Time{})
	if err != nil {
		return nil, err
	}
	vector, ok := value.(model.Vector)
	switch {
	case !ok:
		return nil, wrongType(value, model.ValVector)
	case len(vector) > mostNamed:
		return nil, energy.Refuse(energy.ReasonManySeries, "the query yields %d series, more than %d: let it yield those alone that are to count", len(vector), mostNamed)
	}
	out := make([]map[string]string, 0, len(vector))
	for _, sample := range vector {
		if sample == nil {
			continue
		}
		labels := make(map[string]string, len(sample.Metric))
		for name, value := range sample.Metric {
			labels[string(name)] = string(value)
		}
		out = append(out, labels)
	}
	return out, nil
}
