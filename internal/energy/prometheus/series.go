package prometheus

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
	power "github.com/joulevirt/joulevirt/internal/model"
)

// nodePower keeps apart the two packages named model.
type nodePower = power.Power

// series is one series with its samples, oldest first.
type series struct {
	metric  model.Metric
	samples []model.SamplePair
}

func (s series) first() model.Time { return s.samples[0].Timestamp }
func (s series) last() model.Time  { return s.samples[len(s.samples)-1].Timestamp }

// askSeries asks for the samples of series over a time.
func askSeries(ctx context.Context, ask asker, selector string, window time.Duration) (model.Matrix, error) {
	value, err := ask(ctx, selector+"["+model.Duration(window).String()+"]", time.Time{})
	if err != nil {
		return nil, err
	}
	matrix, ok := value.(model.Matrix)
	if !ok {
		return nil, wrongType(value, model.ValMatrix)
	}
	return matrix, nil
}

func wrongType(value model.Value, want model.ValueType) error {
	got := "nothing"
	if value != nil {
		got = "a " + value.Type().String()
	}
	return energy.Refuse(energy.ReasonWrongType, "the server answers with %s where a %s was asked for", got, want)
}

// oneAfterTheOther refuses targets whose series go on side by side: they are several meters, or
// one that is scraped twice, and to add them up, or to choose, would be wrong either way. An
// exporter that restarts as another pod begins new series when the old ones have ended.
func oneAfterTheOther(targets []series) *energy.Refusal {
	slices.SortFunc(targets, func(a, b series) int {
		return cmp.Or(cmp.Compare(a.first(), b.first()), compare(a.metric, b.metric))
	})
	for i := range targets[:len(targets)-1] {
		if a, b := targets[i], targets[i+1]; !a.last().Before(b.first()) {
			one, other := differing(a.metric, b.metric)
			return energy.Refuse(energy.ReasonManySeries, "the counters of the node, %s, come from several targets, %s and %s: name one with matchers, or scrape it by one job only",
				describe(common(a.metric, b.metric)), one, other)
		}
	}
	return nil
}

// compare orders series by their labels.
func compare(a, b model.Metric) int {
	switch {
	case a.Before(b):
		return -1
	case b.Before(a):
		return 1
	}
	return 0
}

// common returns what two series agree on.
func common(a, b model.Metric) model.Metric {
	both := model.Metric{}
	for name, value := range a {
		if b[name] == value {
			both[name] = value
		}
	}
	return both
}

// fromMatrix checks that a stream holds plain samples.
func fromMatrix(stream *model.SampleStream) (series, *energy.Refusal) {
	s := series{metric: stream.Metric, samples: stream.Values}
	if len(stream.Histograms) > 0 || len(stream.Values) == 0 {
		return s, energy.Refuse(energy.ReasonWrongType, "%s holds histograms, and a number is needed: check the exporter", describe(stream.Metric))
	}
	return s, nil
}
