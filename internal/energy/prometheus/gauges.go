package prometheus

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/units"
)

// platform is kepler_platform_watts: the power of the machine by its management
// controller.
type platform struct{ window time.Duration }

func (p platform) read(ctx context.Context, ask asker, nodes *index) (found, error) {
	matrix, err := askSeries(ctx, ask, "kepler_platform_watts", p.window)
	if err != nil {
		return found{}, err
	}
	return p.decode(matrix, nodes), nil
}

// outlet is one reading of a management controller: of a power supply, or of a
// control, which covers the machine or a part of it.
type outlet struct{ bmc, chassis, id, kind string }

func (platform) decode(matrix model.Matrix, nodes *index) found {
	return decode(matrix, nodes, outletOf, platformPower)
}

func outletOf(metric model.Metric) outlet {
	label := func(name model.LabelName) string { return string(metric[name]) }
	return outlet{bmc: label("bmc_id"), chassis: label("chassis_id"), id: label("source_id"), kind: label("source_type")}
}

func (o outlet) compare(other outlet) int {
	return cmp.Or(strings.Compare(o.bmc, other.bmc), strings.Compare(o.chassis, other.chassis),
		strings.Compare(o.id, other.id), strings.Compare(o.kind, other.kind))
}

// platformPower adds up power supplies, which share the load. Controls are not added
// up: a controller has one of the whole machine, and often others of its
// processors and memory beside it, so the largest counts.
func platformPower(outlets map[outlet][]series) (nodePower, *energy.Refusal) {
	var newest model.Time
	latest := map[outlet]series{}
	// In a fixed order: the same samples give the same watts and refusal.
	places := slices.SortedFunc(maps.Keys(outlets), outlet.compare)
	for _, o := range places {
		ordered, refusal := successor(outlets[o])
		if refusal != nil {
			return nodePower{}, refusal
		}
		latest[o] = ordered[len(ordered)-1]
		newest = max(newest, latest[o].last())
	}
	var supplies, control units.Watts
	for _, o := range places {
		s := latest[o]
		// A supply that delivers nothing is not shown: an older sample of it
		// would count its load twice.
		if newest.Sub(s.last()) > sameScrape {
			continue
		}
		sample := s.samples[len(s.samples)-1]
		if refusal := checkValue(s, sample); refusal != nil {
			return nodePower{}, refusal
		}
		if watts := units.Watts(sample.Value); o.kind == "PowerSupply" {
			supplies += watts
		} else {
			control = max(control, watts)
		}
	}
	if control == 0 {
		control = supplies
	}
	return nodePower{
		Source: v1alpha1.PowerPrometheus,
		Scope:  v1alpha1.PowerScopePlatform,
		Watts:  control,
		Time:   newest.Time(),
	}, nil
}

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
	if !ok || slices.Contains(vector, nil) {
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
