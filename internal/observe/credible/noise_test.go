package credible

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/verify"
)

// TestNoise: what a server's figures scatter by is known within an hour, whatever the load and
// levers do meanwhile, as a step that stays; counters have none.
func TestNoise(t *testing.T) {
	for name, tc := range map[string]struct {
		noise  float64
		server time.Duration
		both   bool
		want   []float64
	}{
		"counters":                      {0, 0, false, []float64{0}},
		"a server that tells the truth": {0, 30 * time.Second, false, []float64{0, verify.RoundNoise(0.01), verify.RoundNoise(0.016)}},
		"beside counters":               {0, 30 * time.Second, true, []float64{0}},
		"beside counters, noisy":        {0.02, 30 * time.Second, true, []float64{verify.RoundNoise(0.02)}},
		"noisy":                         {0.03, 30 * time.Second, false, []float64{verify.RoundNoise(0.03), verify.RoundNoise(0.036)}},
		"noisy, of a minute":            {0.05, time.Minute, true, []float64{verify.RoundNoise(0.05), verify.RoundNoise(0.051)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(3)
			w.noise, w.server, w.both, w.effect = tc.noise, tc.server, tc.both, -0.05
			w.draw(8)
			var watch Watch
			steps, last := 0, -1.0
			for w.now.Before(noon().Add(9 * time.Hour)) {
				is := watch.Look(w.pass(), w.now).Noise
				if hour := w.now.Sub(noon()); hour >= 90*time.Minute && is != last {
					steps, last = steps+1, is
				}
			}
			right := false
			for _, want := range tc.want {
				right = right || last == want
			}
			if !right || steps > 3 {
				t.Errorf("simulated: %v after %d steps, want one of %v", last, steps, tc.want)
			}
		})
	}
}
