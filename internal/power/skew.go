package power

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/units"
)

// Sigma and EffectiveTalkers are what people are shown of a plan for traffic, as
// the spread of its group now and as planned. The planner's own measure is the sum
// of the VMs' costs.

// Sigma returns the sample standard deviation of VMs' rates, as the tables of the study have it
// whose indicator it is (Xu 2016, ch. 3): how unevenly traffic is spread. It is 0 of less than two VMs.
func Sigma(rates []units.BitsPerSecond) units.BitsPerSecond {
	if len(rates) < 2 {
		return 0
	}
	n, sum := float64(len(rates)), 0.0
	for _, rate := range rates {
		sum += float64(rate)
	}
	mean, squares := sum/n, 0.0
	for _, rate := range rates {
		deviation := float64(rate) - mean
		squares += deviation * deviation
	}
	return units.BitsPerSecond(math.Sqrt(squares / (n - 1)))
}

// EffectiveTalkers returns (sum r)^2 / sum r^2, the number of VMs that would
// spread the traffic as unevenly if each had the same rate: from 1, one VM has
// all, to the number of VMs. It is 0 without traffic.
func EffectiveTalkers(rates []units.BitsPerSecond) float64 {
	highest := 0.0
	for _, rate := range rates {
		highest = max(highest, float64(rate))
	}
	if highest == 0 {
		return 0
	}
	// In parts of the highest, as squares of the smallest rates are 0.
	sum, squares := 0.0, 0.0
	for _, rate := range rates {
		part := float64(rate) / highest
		sum += part
		squares += part * part
	}
	return sum * sum / squares
}
