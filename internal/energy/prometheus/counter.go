package prometheus

import (
	"math"
	"time"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/units"
)

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
// first that is at least interval before the last, or to the oldest. After a
// counter started over only what follows is used: how much was lost between is
// not known. A counter of the kernel that wraps looks the same from here.
func meanOf(s series, interval time.Duration) (mean, *energy.Refusal) {
	samples := s.samples
	if len(samples) == 0 {
		return mean{}, awaiting(s)
	}
	last := len(samples) - 1
	first := last
	if refusal := checkValue(s, samples[last]); refusal != nil {
		return mean{}, refusal
	}
	for first > 0 && samples[last].Timestamp.Sub(samples[first].Timestamp) < interval {
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

// startedOver tells whether a counter began anew between two samples. Going
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

// checkValue refuses what no meter of energy or power says.
func checkValue(s series, sample model.SamplePair) *energy.Refusal {
	value := float64(sample.Value)
	switch {
	case math.IsNaN(value) || math.IsInf(value, 0):
		return energy.Refuse(energy.ReasonNotFinite, "%s is %v: look at the exporter", describe(s.metric), value)
	case value < 0:
		return energy.Refuse(energy.ReasonImplausible, "%s is negative: look at the exporter", describe(s.metric))
	case value > mostValue:
		return energy.Refuse(energy.ReasonImplausible, "%s is above %g, as no meter is: look at the exporter", describe(s.metric), mostValue)
	}
	return nil
}

func awaiting(s series) *energy.Refusal {
	return energy.Refuse(energy.ReasonAwaiting, "%s has one sample so far: a counter needs two", describe(s.metric))
}
