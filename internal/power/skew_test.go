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
// 900 Mbit/s in total), as published, in Mbit/s.
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
		if got := float64(power.Sigma(c.rates)) / 1e6; math.Abs(got-c.published) > 0.005 {
			t.Errorf("sigma of %v is %.4f Mbit/s, published %.2f", c.rates, got, c.published)
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
		"one of two":          {rates(0, 2), math.Sqrt2 * 1e6, 1},
		"two of four":         {rates(0, 2, 0, 2), math.Sqrt(4.0/3) * 1e6, 2},
		"nearly nothing":      {[]units.BitsPerSecond{5e-324, 5e-324}, 0, 2},
		"as much as possible": {[]units.BitsPerSecond{1e15, 1e15, 0, 0}, 1e15 / math.Sqrt(3), 2},
	} {
		if got := float64(power.Sigma(c.rates)); math.Abs(got-c.sigma) > 1e-9*max(1, c.sigma) {
			t.Errorf("%s: sigma %g, want %g", name, got, c.sigma)
		}
		if got := power.EffectiveTalkers(c.rates); math.Abs(got-c.talkers) > 1e-12 {
			t.Errorf("%s: %g effective talkers, want %g", name, got, c.talkers)
		}
	}
}
