package actuate

import (
	"testing"
	"time"
)

func TestContestForgetsAfterAnHour(t *testing.T) {
	var c Contest
	for _, step := range []struct {
		at    time.Duration
		added bool
		lost  bool
	}{
		{at: 0, added: true},
		{at: 61 * time.Minute, added: true}, // the first one no longer counts
		{at: 90 * time.Minute, added: true, lost: true},
		{at: 120 * time.Minute, lost: true},
		{at: 121 * time.Minute}, // one is left
		{at: 122 * time.Minute, added: true, lost: true},
		{at: 5 * time.Hour},
	} {
		if step.added {
			c.Add(step.at)
		}
		if got := c.Lost(step.at); got != step.lost {
			t.Errorf("after %v: lost %v, want %v", step.at, got, step.lost)
		}
	}
}
