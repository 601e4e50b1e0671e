package power

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// Demand is what VMs use, or are expected to.
type Demand struct {
	// CPUs is the use at the 95th percentile of 15 minutes, Memory what their pods request.
	CPUs   units.Cores
	Memory units.Bytes
}

func (d Demand) atLeast(other Demand) Demand {
	return Demand{CPUs: max(d.CPUs, other.CPUs), Memory: max(d.Memory, other.Memory)}
}

const (
	step  = 5 * time.Minute
	steps = int64(25 * time.Hour / step)
	// trendSteps is how much of the past a trend is drawn through, and how much has to be known
	// before it is said what comes.
	trendSteps = int64(30 * time.Minute / step)
	day        = 24 * time.Hour
	// ahead is the least time that is predicted.
	ahead = 15 * time.Minute
)

// History is what the VMs of a policy used in the last day, in steps of five minutes. The zero value
// knows nothing.
type History struct{ points [steps]point }

type point struct {
	number int64
	demand Demand
}

// Add adds what the VMs use now. Of a step the most counts.
func (h *History) Add(at time.Time, demand Demand) {
	number := at.UnixNano() / int64(step)
	p := &h.points[number%steps]
	if p.number != number {
		*p = point{number: number}
	}
	p.demand = p.demand.atLeast(demand)
}

func (h *History) at(number int64) (Demand, bool) {
	p := &h.points[(number%steps+steps)%steps]
	return p.demand, p.number == number
}

// Ahead returns how far is predicted: for the time that the slowest host takes to boot, with five minutes
// to spare.
func Ahead(slowest time.Duration) time.Duration { return max(ahead, slowest+step) }

// Forecast returns the most that the VMs may use from now on for a time: what they use now, what
// they used in that time a day ago, or where a line through the last half hour leads. It returns
// false until half an hour is known.
func (h *History) Forecast(now time.Time, within time.Duration) (Demand, bool) {
	last := now.UnixNano() / int64(step)
	out, known := h.at(last)
	if !known {
		return Demand{}, false
	}
	yesterday := last - int64(day/step)
	for number := yesterday; number <= yesterday+int64((within+step-1)/step); number++ {
		if demand, known := h.at(number); known {
			out = out.atLeast(demand)
		}
	}
	var xs, cpus, memory []float64
	for number := last - trendSteps; number <= last; number++ {
		if demand, known := h.at(number); known {
			xs = append(xs, float64(number-last))
			cpus, memory = append(cpus, float64(demand.CPUs)), append(memory, float64(demand.Memory))
		}
	}
	if int64(len(xs)) <= trendSteps {
		return out, false
	}
	then := float64(within) / float64(step)
	return out.atLeast(Demand{CPUs: units.Cores(lineAt(xs, cpus, then)), Memory: units.Bytes(lineAt(xs, memory, then))}), true
}

// lineAt returns where the line of least squares through points leads.
func lineAt(xs, ys []float64, x float64) float64 {
	var meanX, meanY, covariance, variance float64
	for i := range xs {
		meanX += xs[i] / float64(len(xs))
		meanY += ys[i] / float64(len(xs))
	}
	for i := range xs {
		covariance += (xs[i] - meanX) * (ys[i] - meanY)
		variance += (xs[i] - meanX) * (xs[i] - meanX)
	}
	return meanY + covariance/variance*(x-meanX)
}
