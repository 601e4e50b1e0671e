package prometheus

import (
	"context"
	"time"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
)

var _ energy.FigureSource = (*Source)(nil)

// Figure evaluates a query that yields a scalar or one sample, and returns its value. The
// error wraps an energy.Refusal.
func (s *Source) Figure(ctx context.Context, query string) (float64, error) {
	value, err := s.ask(ctx, query, time.Time{})
	if err != nil {
		return 0, err
	}
	if scalar, ok := value.(*model.Scalar); ok && scalar != nil {
		return float64(scalar.Value), nil
	}
	vector, ok := value.(model.Vector)
	switch {
	case !ok:
		return 0, wrongType(value, model.ValVector)
	case len(vector) == 0:
		return 0, energy.Refuse(energy.ReasonNoSeries, "the query yields nothing: look whether the exporter runs and is scraped")
	case len(vector) > 1:
		return 0, energy.Refuse(energy.ReasonManySeries, "the query yields %d samples: aggregate them to one, as in avg(...)", len(vector))
	case vector[0] == nil || vector[0].Histogram != nil:
		return 0, energy.Refuse(energy.ReasonWrongType, "the query yields no number: let it yield one")
	}
	return float64(vector[0].Value), nil
}
