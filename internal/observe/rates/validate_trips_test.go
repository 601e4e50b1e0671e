package rates

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

func TestValidateTrips(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*model.Trip)
		want   string
	}{
		"good":                  {func(*model.Trip) {}, ""},
		"of all VMs":            {func(t *model.Trip) { t.PodUID, t.Namespace, t.Name = "", "", "" }, ""},
		"of a newer agent":      {func(t *model.Trip) { t.Lever, t.Symptom = "Levitation", "Vertigo" }, ""},
		"a long name":           {func(t *model.Trip) { t.Name = strings.Repeat("x", 254) }, "too long"},
		"no lever":              {func(t *model.Trip) { t.Lever = "" }, "lever"},
		"a symptom in markup":   {func(t *model.Trip) { t.Symptom = "<b>" }, "symptom"},
		"a value of no number":  {func(t *model.Trip) { t.Value = math.NaN() }, "value NaN"},
		"a negative limit":      {func(t *model.Trip) { t.Limit = -1 }, "limit -1"},
		"at no time":            {func(t *model.Trip) { t.Time = time.Time{} }, "time"},
		"of tomorrow":           {func(t *model.Trip) { t.Time = start().Add(24 * time.Hour) }, "after the round"},
		"over before it begins": {func(t *model.Trip) { t.Until = t.Time.Add(-1) }, "until"},
		"for ever":              {func(t *model.Trip) { t.Until = t.Time.Add(math.MaxInt64) }, "until"},
		"never":                 {func(t *model.Trip) { t.Count = 0 }, "count is 0"},
	} {
		r := round(1)
		r.Trips = []model.Trip{{}, {}}
		for i := range r.Trips {
			r.Trips[i] = model.Trip{
				PodUID: "pod", Namespace: "ns", Name: "vm", Lever: model.LeverAffinity, Symptom: model.SymptomRunDelay,
				Value: 40, Limit: 25, Time: start(), Until: start().Add(5 * time.Minute), Count: 1,
			}
		}
		test.change(&r.Trips[1])
		err := Validate(r, "n")
		if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "trips[1]") || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	r := round(1)
	r.Trips = make([]model.Trip, 1025)
	if err := Validate(r, "n"); !errors.Is(err, ErrInvalid) {
		t.Errorf("1025 trips: %v", err)
	}
}
