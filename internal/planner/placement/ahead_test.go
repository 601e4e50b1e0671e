package placement

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// A VM uses 1 CPU by night and 3 from 8 to 16 o'clock.
func TestDay(t *testing.T) {
	var day Day
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	if !day.Ended(start) {
		t.Error("the zero value knows something")
	}
	for m := range 24 * 60 {
		at := start.Add(time.Duration(m) * time.Minute)
		used := units.Cores(1)
		if at.Hour() >= 8 && at.Hour() < 16 {
			used = units.Cores(2.5 + float64(m%2)) // 3 on average
		}
		day.Add(at, used)
	}
	for name, test := range map[string]struct {
		at   time.Duration
		want [HoursAhead]units.Cores
	}{
		"in the morning":                    {24*time.Hour + 4*time.Hour + 59*time.Minute, [HoursAhead]units.Cores{1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3, 1}},
		"in the afternoon":                  {24*time.Hour + 13*time.Hour, [HoursAhead]units.Cores{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 7, 7}},
		"where nothing is known, it is now": {40 * time.Hour, [HoursAhead]units.Cores{1, 1, 1, 1, 1, 1, 1, 7, 7, 7, 7, 7}},
		"a day later":                       {72 * time.Hour, [HoursAhead]units.Cores{7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7}},
	} {
		if got := *day.Ahead(start.Add(test.at), 7); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	if day.Ended(start.Add(46*time.Hour)) || !day.Ended(start.Add(48*time.Hour)) {
		t.Error("a day ends another day later")
	}
}
