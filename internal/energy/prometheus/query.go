package prometheus

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/units"
)

// ownQuery is the admin's own query. What it covers is the admin's to know; most own
// meters are of the whole machine.
type ownQuery struct{ query string }

func (o ownQuery) read(ctx context.Context, ask asker, nodes *index) (found, error) {
	vector, err := askVector(ctx, ask, o.query, time.Time{})
	if err != nil {
		return found{}, err
	}
	// A result's time is that of its evaluation. PromQL's timestamp() has that
	// of the sample where the query is a plain selector, and else the same again.
	times := model.Vector{}
	if len(vector) > 0 {
		// The line break ends a comment at the query's end.
		times, err = askVector(ctx, ask, "timestamp(\n"+o.query+"\n)", vector[0].Timestamp.Time())
		if err != nil {
			return found{}, err
		}
	}
	return o.decode(vector, times, nodes), nil
}

func askVector(ctx context.Context, ask asker, query string, at time.Time) (model.Vector, error) {
	value, err := ask(ctx, query, at)
	if err != nil {
		return nil, err
	}
	vector, ok := value.(model.Vector)
	if !ok {
		return nil, wrongType(value, model.ValVector)
	}
	return vector, nil
}

func (ownQuery) decode(vector, times model.Vector, nodes *index) found {
	all := newFound()
	at := map[model.LabelValue]time.Time{}
	for _, sample := range times {
		// Milliseconds, as samples have: more digits are the conversion's.
		at[sample.Metric["node"]] = model.TimeFromUnixNano(int64(float64(sample.Value) * 1e9)).Time()
	}
	first := map[string]model.Metric{}
	// A server's order of samples is any; what is refused, and why, is not.
	vector = slices.Clone(vector)
	slices.SortFunc(vector, func(a, b *model.Sample) int { return compare(a.Metric, b.Metric) })
	for _, sample := range vector {
		// Only what the API asks for: other labels are the query's own matter.
		node, ok := all.owner(nodes, model.Metric{"node": sample.Metric["node"]})
		if !ok {
			continue
		}
		s := series{metric: sample.Metric}
		refusal := checkValue(s, model.SamplePair{Value: sample.Value})
		switch before, twice := first[node]; {
		case twice:
			a, b := differing(before, sample.Metric)
			refusal = energy.Refuse(energy.ReasonManySeries, "the query yields several samples of the node, %s and %s: aggregate them, as in sum by (node) (...)", a, b)
		case sample.Histogram != nil:
			refusal = energy.Refuse(energy.ReasonWrongType, "%s is a histogram: let the query yield watts", describe(sample.Metric))
		}
		first[node] = sample.Metric
		if refusal != nil {
			all.refuse(node, refusal)
			continue
		}
		reading := nodePower{Source: v1alpha1.PowerPrometheus, Scope: v1alpha1.PowerScopePlatform, Watts: units.Watts(sample.Value), Time: sample.Timestamp.Time()}
		if time, ok := at[sample.Metric["node"]]; ok && time.Before(reading.Time) {
			reading.Time = time
		}
		all.Readings[node] = reading
	}
	return all
}
