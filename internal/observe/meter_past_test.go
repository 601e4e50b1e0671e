package observe

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
)

func TestMeterPast(t *testing.T) {
	now := at(0).Time
	meters := []energy.Setting{{Type: model.SourcePrometheus}, {Type: model.SourceModel}}
	for name, tc := range map[string]struct {
		ago      time.Duration
		settings []energy.Setting
		choice   energy.Choice
		lost     bool
	}{
		"for an hour":                {time.Hour, meters, energy.Choice{}, true},
		"and modelled":               {time.Hour, meters, energy.Choice{Source: model.SourceModel}, true},
		"for almost a day":           {lostFor - time.Second, meters, energy.Choice{}, true},
		"for a day":                  {lostFor, meters, energy.Choice{}, false},
		"never had one":              {-1, meters, energy.Choice{}, false},
		"has one":                    {time.Hour, meters, energy.Choice{Metered: true}, false},
		"too early to tell":          {time.Hour, meters, energy.Choice{Unknown: true}, false},
		"the policy wants no meters": {time.Hour, meters[1:], energy.Choice{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			past := NewMeterPast()
			past.Metered("another", now)
			if tc.ago >= 0 {
				past.Metered("n", now.Add(-tc.ago))
			}
			want := time.Time{}
			if tc.lost {
				want = now.Add(-tc.ago)
			}
			if got := past.Lose("n", tc.settings, &tc.choice, now); !got.Equal(want) {
				t.Errorf("lost since %v, want %v", got, want)
			}
			past.Retain(map[string]bool{"another": true})
			if got := past.Lose("n", tc.settings, &tc.choice, now); !got.IsZero() {
				t.Errorf("a node that is gone lost its meter at %v", got)
			}
		})
	}
	var none *MeterPast
	none.Metered("n", now)
	none.Retain(nil)
	if !none.Lose("n", meters, &energy.Choice{}, now).IsZero() {
		t.Error("without a memory a meter is lost")
	}
}
