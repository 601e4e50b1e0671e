package sim

import (
	"math"
	"strings"
	"testing"
	"time"
)

// TestLongSteps: hosts that take longer steps do the same, and draw up to a fiftieth more:
// work that comes in bursts of seconds is spread over a step.
func TestLongSteps(t *testing.T) {
	type did struct{ joules, bytes float64 }
	run := func(step time.Duration) did {
		h := server(t, func(c *Config) { c.Step = step })
		populate(t, h, 20)
		h.Advance(2 * time.Hour)
		d := did{joules: float64(h.Joules())}
		for _, v := range h.vms {
			d.bytes += v.toVM.bytes + v.fromVM.bytes
		}
		return d
	}
	short := run(0)
	if one := run(time.Second); one != short {
		t.Errorf("steps of a second make %+v, without a word %+v", one, short)
	}
	for _, step := range []time.Duration{5 * time.Second, 10 * time.Second, 30 * time.Second} {
		long := run(step)
		t.Logf("simulated: steps of %v make %+.3f %% of joules, %+.3f %% of bytes", step, 100*(long.joules/short.joules-1), 100*(long.bytes/short.bytes-1))
		if math.Abs(long.joules/short.joules-1) > 0.02 || math.Abs(long.bytes/short.bytes-1) > 0.001 {
			t.Errorf("simulated: steps of %v make %+v, of a second %+v", step, long, short)
		}
	}
	for _, step := range []time.Duration{-1, 31 * time.Second} {
		if _, err := NewHost(Config{Name: "a", Step: step}); err == nil || !strings.Contains(err.Error(), "steps of") {
			t.Errorf("%v: %v", step, err)
		}
	}
}
