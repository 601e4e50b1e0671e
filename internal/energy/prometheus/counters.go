package prometheus

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/units"
)

// sameScrape is how far apart samples of one scrape may be. The server gives
// them one time; only what passes them on may differ a little.
const sameScrape = time.Second

// shortestMean is the least time that the mean of a counter is taken over, when there are
// samples enough. Kepler answers a scrape with figures that are up to 0.5 s old: over this
// time that is an error of at most 5 %.
const shortestMean = 10 * time.Second

// keplerZone is one energy zone of a node that Kepler shows: psys or package. Several
// sockets come as one zone, or as one per path.
type keplerZone struct{ name, path string }

const (
	zonePlatform = "psys"
	zonePackage  = "package"
)

// counters are the joule counters of Kepler 0.10 and newer. Their zones overlap: psys
// holds package, package holds core and uncore.
type counters struct {
	// matchers narrow the counters down, see energy.Server.
	matchers string
	window   time.Duration
}

func (c counters) read(ctx context.Context, ask asker, nodes *index) (found, error) {
	selector := `zone=~"psys|package"`
	if c.matchers != "" {
		selector += "," + c.matchers
	}
	matrix, err := askSeries(ctx, ask, "kepler_node_cpu_joules_total{"+selector+"}", c.window)
	if err != nil {
		return found{}, err
	}
	return c.decode(matrix, nodes), nil
}

// decode turns series into the power of nodes: the counters of a node make its power
// together. A series that cannot be read makes that of its node unknown.
func (counters) decode(matrix model.Matrix, nodes *index) found {
	all := newFound()
	perNode := map[string]zones{}
	for _, stream := range matrix {
		node, ok := all.owner(nodes, stream.Metric)
		if !ok {
			continue
		}
		s, refusal := fromMatrix(stream)
		if refusal != nil {
			all.refuse(node, refusal)
			continue
		}
		if perNode[node] == nil {
			perNode[node] = zones{}
		}
		zone := keplerZone{string(stream.Metric["zone"]), string(stream.Metric["path"])}
		perNode[node][zone] = append(perNode[node][zone], s)
	}
	for node, zones := range perNode {
		if all.has(node) {
			continue
		}
		if reading, refusal := zones.power(); refusal != nil {
			all.refuse(node, refusal)
		} else {
			all.Readings[node] = reading
		}
	}
	return all
}

// zones are a node's counters.
type zones map[keplerZone][]series

// power chooses the counters that measure the node best: psys, of the same target as the packages,
// where it draws no less than they do, and else the packages.
func (z zones) power() (nodePower, *energy.Refusal) {
	if refusal := oneAfterTheOther(z.targets()); refusal != nil {
		return nodePower{}, refusal
	}
	platform, notPlatform := z.sum(zonePlatform)
	packages, notPackages := z.sum(zonePackage)
	// A machine draws no less than its packages: where it seems to, psys is connected
	// to nothing.
	credible := notPackages != nil || platform.Watts >= packages.Watts
	switch {
	case notPlatform != nil && !isAbsent(notPlatform):
		return nodePower{}, notPlatform
	case notPlatform == nil && credible:
		platform.Scope = v1alpha1.PowerScopePlatform
		return platform, nil
	case notPackages != nil:
		return nodePower{}, notPackages
	}
	packages.Scope = v1alpha1.PowerScopePackage
	return packages, nil
}

// targets returns for each target that was scraped the span of its samples, and the labels that
// its series share.
func (z zones) targets() []series {
	byLabels := map[string]*series{}
	for _, all := range z {
		for _, s := range all {
			labels := maps.Clone(s.metric)
			delete(labels, "zone")
			delete(labels, "path")
			key := labels.String()
			span := byLabels[key]
			if span == nil {
				byLabels[key] = &series{metric: labels, samples: []model.SamplePair{s.samples[0], s.samples[len(s.samples)-1]}}
				continue
			}
			if s.first() < span.first() {
				span.samples[0] = s.samples[0]
			}
			if s.last() > span.last() {
				span.samples[1] = s.samples[len(s.samples)-1]
			}
		}
	}
	var targets []series
	for _, span := range byLabels {
		targets = append(targets, *span)
	}
	return targets
}

// isAbsent is true for a zone that has no meter: a counter that stands still is
// connected to nothing.
func isAbsent(refusal *energy.Refusal) bool {
	return refusal.Reason == energy.ReasonNoSeries || refusal.Reason == energy.ReasonFrozen
}

// sum adds up the sockets of a zone. They must be of the same scrape: a socket that is
// missing would halve the power. It adds in a fixed order: the same samples give the same
// watts, to the last bit, and the same refusal.
func (z zones) sum(name string) (nodePower, *energy.Refusal) {
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(z)), func(key keplerZone) bool { return key.name != name })
	slices.SortFunc(keys, func(a, b keplerZone) int { return strings.Compare(a.path, b.path) })
	if len(keys) == 0 {
		return nodePower{}, energy.Refuse(energy.ReasonNoSeries, "no series of the node's packages, only of other zones: let the exporter show zone package")
	}
	var watts units.Watts
	var whole mean
	for _, key := range keys {
		one, refusal := newest(z[key])
		shown := z[key][0].metric
		switch {
		case refusal != nil:
			return nodePower{}, refusal
		case one.joules == 0 && one.to.Sub(one.from) < shortestMean:
			return nodePower{}, energy.Refuse(energy.ReasonAwaiting, "%s did not count between its last samples: wait for the next", describe(shown))
		case one.joules == 0:
			return nodePower{}, energy.Refuse(energy.ReasonFrozen, "%s stands still for %s and longer, while it is scraped: check the exporter", describe(shown), shortestMean)
		case !whole.to.IsZero() && one.to.Sub(whole.to).Abs() > sameScrape:
			return nodePower{}, energy.Refuse(energy.ReasonAwaiting, "the node's series beside %s were not scraped together with it: the exporter changed, or lost a socket; "+
				"wait, and check it if this stays", describe(z[keys[0]][0].metric))
		}
		if whole.to.IsZero() || one.to.Before(whole.to) {
			whole = one
		}
		watts += one.watts()
	}
	return nodePower{
		Source:          v1alpha1.PowerPrometheus,
		Watts:           watts,
		Time:            whole.to,
		IntervalSeconds: whole.to.Sub(whole.from).Seconds(),
	}, nil
}

// newest returns the mean of the newest series, or of the one before as long as the
// newest is too young. An exporter that restarts as another pod begins a new series.
func newest(all []series) (mean, *energy.Refusal) {
	ordered := slices.SortedFunc(slices.Values(all), func(a, b series) int { return cmp.Compare(a.first(), b.first()) })
	var refusal *energy.Refusal
	for _, s := range slices.Backward(ordered) {
		var one mean
		if one, refusal = meanOf(s); refusal == nil || refusal.Reason != energy.ReasonAwaiting {
			return one, refusal
		}
	}
	return mean{}, refusal
}

// mostWatts is above every machine. A counter that started over holds no more
// than what that draws since the sample before.
const mostWatts units.Watts = 50_000

// mostValue is above every counter: mostWatts for 600 years.
const mostValue = 1e15

// mean is the mean of a counter of joules over a time. Its energy may be 0.
type mean struct {
	joules   units.Joules
	from, to time.Time
}

func (m mean) watts() units.Watts {
	return units.Watts(float64(m.joules) / m.to.Sub(m.from).Seconds())
}

// meanOf returns the mean over the newest samples of a counter, back to the
// first that is at least shortestMean before the last, or to the oldest. After a
// counter started over only what follows is used: how much was lost between is
// not known. A counter of the kernel that wraps looks the same from here.
func meanOf(s series) (mean, *energy.Refusal) {
	samples := s.samples
	if len(samples) == 0 {
		return mean{}, awaiting(s)
	}
	last := len(samples) - 1
	first := last
	if refusal := checkValue(s, samples[last]); refusal != nil {
		return mean{}, refusal
	}
	for first > 0 && samples[last].Timestamp.Sub(samples[first].Timestamp) < shortestMean {
		started, refusal := startedOver(s, samples[first-1], samples[first])
		if refusal != nil {
			return mean{}, refusal
		}
		if started {
			break
		}
		first--
	}
	if first == last {
		return mean{}, awaiting(s)
	}
	return mean{
		joules: units.Joules(samples[last].Value - samples[first].Value),
		from:   samples[first].Timestamp.Time(),
		to:     samples[last].Timestamp.Time(),
	}, nil
}

// startedOver reports whether a counter began anew between two samples. Going
// back to anything but nearly nothing is no start.
func startedOver(s series, from, to model.SamplePair) (bool, *energy.Refusal) {
	if refusal := checkValue(s, from); refusal != nil {
		return false, refusal
	}
	elapsed := to.Timestamp.Sub(from.Timestamp)
	if elapsed <= 0 {
		return false, energy.Refuse(energy.ReasonWrongType, "the samples of %s are out of order: is the url that of a Prometheus server?", describe(s.metric))
	}
	if to.Value >= from.Value {
		return false, nil
	}
	if most := float64(mostWatts) * elapsed.Seconds(); to.Value > from.Value/2 || float64(to.Value) > most {
		return false, energy.Refuse(energy.ReasonWentBack, "%s went back from %.6g J to %.6g J without starting over: do two exporters write it?",
			describe(s.metric), float64(from.Value), float64(to.Value))
	}
	return true, nil
}

// checkValue refuses what no meter of energy or power shows.
func checkValue(s series, sample model.SamplePair) *energy.Refusal {
	value := float64(sample.Value)
	switch {
	case math.IsNaN(value) || math.IsInf(value, 0):
		return energy.Refuse(energy.ReasonNotFinite, "%s is %v: check the exporter", describe(s.metric), value)
	case value < 0:
		return energy.Refuse(energy.ReasonImplausible, "%s is negative: check the exporter", describe(s.metric))
	case value > mostValue:
		return energy.Refuse(energy.ReasonImplausible, "%s is above %g, as no meter is: check the exporter", describe(s.metric), mostValue)
	}
	return nil
}

func awaiting(s series) *energy.Refusal {
	return energy.Refuse(energy.ReasonAwaiting, "%s has one sample so far: a counter needs two", describe(s.metric))
}
