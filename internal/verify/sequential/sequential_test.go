package sequential_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/joulevirt/joulevirt/internal/verify/sequential"
)

// TestBound compares with what is published for spending as O'Brien and Fleming do, on one
// side, at equal steps: four decimals by the programs of Reboussin, DeMets, Kim and Lan,
// Control Clin Trials 21:190 (2000).
func TestBound(t *testing.T) {
	for _, c := range []struct {
		name string
		want []float64
	}{
		{"one look is a plain test", []float64{1.9600}},
		{"two", []float64{2.9626, 1.9686}},
		{"five", []float64{4.8769, 3.3569, 2.6803, 2.2898, 2.0310}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := sequential.NewBound(0.025)
			for i, want := range c.want {
				got := b.Next(float64(i+1)/float64(len(c.want)), i == len(c.want)-1)
				if math.Abs(got-want) > 1.2e-4 {
					t.Errorf("look %d: bound %.5f, want %.4f", i+1, got, want)
				}
			}
		})
	}
}

// TestOneLook is Student's interval.
func TestOneLook(t *testing.T) {
	// Quantiles of Student's distribution for 0.975.
	for freedom, quantile := range map[float64]float64{3: 3.18245, 10: 2.22814, math.Inf(1): 1.95996} {
		stop := sequential.Stop{Share: 1, Ratio: 1.5, Freedom: freedom}
		for probability, want := range map[float64]float64{0.025: 1.5 - quantile, 0.5: 1.5, 0.975: 1.5 + quantile} {
			if got := stop.Effects(probability)[0]; math.Abs(got-want) > 1e-3 {
				t.Errorf("%v degrees of freedom: effect for %v: %v, want %v", freedom, probability, got, want)
			}
		}
	}
}

// TestStopCovers runs paths with effects until a bound stops them, and asks for the
// interval there.
func TestStopCovers(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 0))
	const looks, paths, reject = 5, 2500, -1.2
	for _, drift := range []float64{0, 1.5, 3, 6} {
		bounds := make([]float64, looks)
		b := sequential.NewBound(0.025)
		for i := range bounds {
			bounds[i] = b.Next(float64(i+1)/looks, i == looks-1)
		}
		covered, above := 0, 0
		for range paths {
			x := 0.0
			stop := sequential.Stop{Freedom: math.Inf(1)}
			for i, bound := range bounds {
				stop.Share = float64(i+1) / looks
				x += drift/looks + math.Sqrt(1.0/looks)*random.NormFloat64()
				if stop.Ratio = x / math.Sqrt(stop.Share); stop.Ratio >= bound || stop.Ratio <= reject {
					break
				}
				if i < looks-1 {
					stop.Passed = append(stop.Passed, sequential.Look{Share: stop.Share, Lower: reject, Upper: bound, Freedom: math.Inf(1)})
				}
			}
			truth := drift * math.Sqrt(stop.Share)
			effects := stop.Effects(0.025, 0.5, 0.975)
			if effects[0] <= truth && truth <= effects[2] {
				covered++
			}
			if effects[1] > truth {
				above++
			}
		}
		// Four standard deviations.
		if share := float64(covered) / paths; math.Abs(share-0.95) > 0.018 {
			t.Errorf("drift %v: the interval covers it in %v", drift, share)
		}
		if share := float64(above) / paths; math.Abs(share-0.5) > 0.04 {
			t.Errorf("drift %v: the estimate is above it in %v", drift, share)
		}
	}
}
