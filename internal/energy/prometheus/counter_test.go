package prometheus

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
)

// at is a sample a number of seconds after noon.
type at struct{ seconds, value float64 }

func noon() time.Time { return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC) }

func samples(all ...at) []model.SamplePair {
	var pairs []model.SamplePair
	for _, a := range all {
		when := noon().UnixMilli() + int64(math.Round(1000*a.seconds))
		pairs = append(pairs, model.SamplePair{Timestamp: model.Time(when), Value: model.SampleValue(a.value)})
	}
	return pairs
}

func TestMeanOf(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	tests := map[string]struct {
		samples []at
		joules  float64
		seconds float64
		reason  energy.Reason
	}{
		"none":                     {nil, 0, 0, energy.ReasonAwaiting},
		"one":                      {[]at{{0, 100}}, 0, 0, energy.ReasonAwaiting},
		"two":                      {[]at{{0, 100}, {5, 700}}, 600, 5, ""},
		"short of the interval":    {[]at{{0, 100}, {5, 700}, {9, 1100}}, 1000, 9, ""},
		"no longer than needed":    {[]at{{0, 0}, {5, 9}, {10, 20}, {15, 40}, {20, 60}}, 40, 10, ""},
		"a scrape was missed":      {[]at{{0, 0}, {5, 10}, {25, 60}}, 50, 20, ""},
		"started over":             {[]at{{0, 9000}, {5, 9500}, {10, 20}, {13, 380}, {15, 620}}, 600, 5, ""},
		"started over just now":    {[]at{{0, 9000}, {5, 9500}, {10, 20}}, 0, 0, energy.ReasonAwaiting},
		"started over long ago":    {[]at{{0, 9000}, {5, 20}, {10, 100}, {15, 200}}, 180, 10, ""},
		"twice":                    {[]at{{0, 9000}, {2, 20}, {4, 100}, {6, 10}, {8, 30}}, 20, 2, ""},
		"stands still":             {[]at{{0, 100}, {5, 100}, {10, 100}}, 0, 10, ""},
		"goes back a little":       {[]at{{0, 9000}, {5, 8900}, {10, 9400}}, 0, 0, energy.ReasonWentBack},
		"goes back by half":        {[]at{{0, 9000}, {5, 4600}}, 0, 0, energy.ReasonWentBack},
		"goes back to too much":    {[]at{{0, 9e9}, {5, 4e6}, {10, 4e6 + 100}}, 0, 0, energy.ReasonWentBack},
		"went back before":         {[]at{{0, 9000}, {5, 8900}, {10, 9400}, {15, 9900}}, 1000, 10, ""},
		"the last is not a number": {[]at{{0, 1}, {5, nan}}, 0, 0, energy.ReasonNotFinite},
		"the only is not a number": {[]at{{0, nan}}, 0, 0, energy.ReasonNotFinite},
		"infinite":                 {[]at{{0, 1}, {5, inf}}, 0, 0, energy.ReasonNotFinite},
		"infinite within":          {[]at{{0, 1}, {5, inf}, {10, 20}}, 0, 0, energy.ReasonNotFinite},
		"infinite before":          {[]at{{0, inf}, {5, 20}, {10, 30}, {15, 40}}, 20, 10, ""},
		"negative":                 {[]at{{0, -5}, {5, 20}}, 0, 0, energy.ReasonImplausible},
		"beyond all":               {[]at{{0, 5}, {5, 1e16}}, 0, 0, energy.ReasonImplausible},
		"out of order":             {[]at{{5, 10}, {0, 20}}, 0, 0, energy.ReasonWrongType},
		"at one time":              {[]at{{5, 10}, {5, 20}}, 0, 0, energy.ReasonWrongType},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := series{metric: model.Metric{"node": "node-a"}, samples: samples(test.samples...)}
			got, refusal := meanOf(s)
			if test.reason != "" {
				if refusal == nil || refusal.Reason != test.reason || !strings.Contains(refusal.Message, `node="node-a"`) {
					t.Errorf("refusal %v, want %s that names the series", refusal, test.reason)
				}
				return
			}
			if refusal != nil {
				t.Fatal(refusal)
			}
			if seconds := got.to.Sub(got.from).Seconds(); float64(got.joules) != test.joules || seconds != test.seconds {
				t.Errorf("%v J over %v s, want %v J over %v s", got.joules, seconds, test.joules, test.seconds)
			}
		})
	}
}

// TestMeanOfConstantPower holds that whatever the scrapes' times and the starts
// over, a machine of constant power is read as that, or not at all. A counter
// that starts over and then is above what it was before cannot be reported from one
// that went on: exporters do not restart that often.
func TestMeanOfConstantPower(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 1))
	for range 2000 {
		watts := math.Exp(random.Float64()*8 - 1) // 0.4 W to 1,100 W
		var all []at
		seconds, started := 0.0, -random.Float64()*1e6
		for range random.IntN(12) {
			// Milliseconds, as the server's times are.
			step := math.Round(1000*(0.1+random.ExpFloat64()*10)) / 1000
			seconds += step
			if counted := seconds - step - started; random.IntN(6) == 0 && counted > step {
				started = seconds - random.Float64()*step
			}
			all = append(all, at{seconds, watts * (seconds - started)})
		}
		got, refusal := meanOf(series{samples: samples(all...)})
		switch {
		case refusal != nil && refusal.Reason != energy.ReasonAwaiting && refusal.Reason != energy.ReasonWentBack:
			t.Fatalf("%v: %v", all, refusal)
		case refusal == nil && math.Abs(float64(got.watts())-watts) > 1e-6*watts:
			t.Fatalf("%v: %v W, want %v W", all, got.watts(), watts)
		}
	}
}
