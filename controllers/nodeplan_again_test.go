package controllers

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// A node is looked at again when its plan may be another, and not much before.
func TestAgain(t *testing.T) {
	now := statusTime()
	in := func(d time.Duration) time.Time { return now.Add(d) }
	for name, tc := range map[string]struct {
		plan model.Plan
		seen observe.Observation
		want time.Duration
	}{
		"nothing waits":     {model.Plan{}, observe.Observation{}, DefaultReview},
		"a window opens":    {model.Plan{}, observe.Observation{Times: observe.ChangeTimes{Again: in(3 * time.Minute)}}, 3 * time.Minute},
		"it opens tomorrow": {model.Plan{}, observe.Observation{Times: observe.ChangeTimes{Again: in(24 * time.Hour)}}, DefaultReview},
		"it just opened":    {model.Plan{}, observe.Observation{Times: observe.ChangeTimes{Again: in(time.Millisecond)}}, time.Second},
		"an hour is full": {model.Plan{Reason: model.ReasonChangeBudgetHour, Changes: []model.Change{
			{Time: in(-2 * time.Hour), VMs: 1}, {Time: in(-55 * time.Minute), VMs: 1}, {Time: in(-time.Minute), VMs: 1}}}, observe.Observation{}, 5 * time.Minute},
		"others are changing": {model.Plan{}, observe.Observation{Node: model.Node{NodesBusy: true}}, changingRetry},
		"a recommendation ends": {model.Plan{RecommendedAt: in(-50 * time.Minute)},
			observe.Observation{Node: model.Node{Policy: model.Policy{RecommendationValidity: time.Hour}}}, 10 * time.Minute},
	} {
		if got := again(tc.plan, tc.seen, now); got != tc.want {
			t.Errorf("%s: in %v, want %v", name, got, tc.want)
		}
	}
}
