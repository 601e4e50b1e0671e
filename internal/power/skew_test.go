package power_test

import (
	"math"
	"testing"

	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

func rates(mbps ...float64) []units.BitsPerSecond {
	var r []units.BitsPerSecond
	for _, v := range mbps {
		r = append(r, units.BitsPerSecond(v*1e6))
	}
	return r
}

// TestSigmaOfTheStudy compares with the study's own figures (Xu 2016, 5 VMs with
// 900 Mbit/s in total), as published, in Mbit/s. They are sample standard
// deviations, which divide by 4 instead of 5.
func TestSigmaOfTheStudy(t *testing.T) {
	for _, c := range []struct {
		rates     []units.BitsPerSecond
		published float64
	}{
		{rates(180, 180, 180, 180, 180), 0},
		{rates(150, 150, 200, 200, 200), 27.39},
		{rates(100, 100, 200, 200, 300), 83.67},
		{rates(50, 50, 200, 300, 300), 125.50},
		{rates(50, 50, 50, 50, 700), 290.69},
		{rates(10, 10, 10, 10, 860), 380.13},
		{rates(0.5, 0.5, 0.5, 0.5, 898), 401.37},
	} {
		if got := float64(power.Sigma(c.rates)) / 1e6 * math.Sqrt(5.0/4); math.Abs(got-c.published) > 0.005 {
			t.Errorf("the sample sigma of %v is %.4f Mbit/s, published %.2f", c.rates, got, c.published)
		}
	}
}

func TestSkew(t *testing.T) {
	for name, c := range map[string]struct {
		rates   []units.BitsPerSecond
		sigma   float64
		talkers float64
	}{
		"no VMs":              {nil, 0, 0},
		"no traffic":          {rates(0, 0, 0), 0, 0},
		"one VM":              {rates(7), 0, 1},
		"balanced":            {rates(5, 5, 5, 5), 0, 4},
		"one of two":          {rates(0, 2), 1e6, 1},
		"two of four":         {rates(0, 2, 0, 2), 1e6, 2},
		"nonsense counts 0":   {rates(math.NaN(), 2, math.Inf(1), 2, -3, math.Inf(-1)), 1e6 * math.Sqrt(8.0/9), 2},
		"only nonsense":       {rates(math.NaN(), -1, math.Inf(1)), 0, 0},
		"nearly nothing":      {[]units.BitsPerSecond{5e-324, 5e-324}, 0, 2},
		"as much as possible": {[]units.BitsPerSecond{1e15, 1e15, 0, 0}, 5e14, 2},
	} {
		if got := float64(power.Sigma(c.rates)); math.Abs(got-c.sigma) > 1e-9*max(1, c.sigma) {
			t.Errorf("%s: sigma %g, want %g", name, got, c.sigma)
		}
		if got := power.EffectiveTalkers(c.rates); math.Abs(got-c.talkers) > 1e-12 {
			t.Errorf("%s: %g effective talkers, want %g", name, got, c.talkers)
		}
	}
}

// FuzzSkew: for any rates sigma and the talkers are finite, the talkers do not
// depend on the unit, and both agree by N = n / (1 + CV^2).
func FuzzSkew(f *testing.F) {
	f.Add(1.0, 2.0, 3.0)
	f.Add(0.0, 0.0, 0.0)
	f.Add(math.Inf(1), math.NaN(), -1.0)
	f.Add(1e15, 1e-300, 0.0)
	f.Fuzz(func(t *testing.T, a, b, c float64) {
		r := []units.BitsPerSecond{units.BitsPerSecond(a), units.BitsPerSecond(b), units.BitsPerSecond(c)}
		sigma, talkers := float64(power.Sigma(r)), power.EffectiveTalkers(r)
		if !(sigma >= 0) || math.IsInf(sigma, 0) || !(talkers >= 0 && talkers <= 3+1e-9) || (talkers > 0 && talkers < 1-1e-9) {
			t.Fatalf("sigma %g, %g talkers of %v", sigma, talkers, r)
		}
		sum := 0.0
		for _, v := range r {
			if v > 1e-100 && v <= 1e15 {
				sum += float64(v)
			} else if v != 0 {
				return
			}
		}
		if sum == 0 {
			return
		}
		variation := sigma / (sum / 3)
		if want := 3 / (1 + variation*variation); math.Abs(talkers-want) > 1e-9 {
			t.Errorf("%g talkers of %v, want %g by their variation", talkers, r, want)
		}
	})
}
