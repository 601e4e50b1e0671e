package model

import (
	"strings"
	"testing"
	"time"
)

func TestEvidence(t *testing.T) {
	for symptom, want := range map[Symptom][]string{
		SymptomRunDelay: {"43 %", "limit 25 %"}, SymptomQueueDrops: {"dropped 43 of a million", "limit 25"},
		SymptomRingOverrun: {"a million", " 43 ", "limit 25"}, SymptomBacklog: {"43 bytes", "limit 25"}, "Vertigo": {"Vertigo of 43", "limit 25"},
	} {
		trip := Trip{Symptom: symptom, Value: 43.2, Limit: 25}
		for _, words := range want {
			if got := trip.Evidence(); !strings.Contains(got, words) || len(got) > 160 {
				t.Errorf("%s: %q lacks %q, or is too long", symptom, got, words)
			}
		}
	}
}

func TestTripped(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC) }
	r := NodeRates{Trips: []Trip{{Lever: LeverAffinity, Time: at(10), Until: at(15)}, {Lever: LeverBuffering, Time: at(30), Until: at(35)}}}
	for _, test := range []struct {
		lever    Lever
		from, to int
		want     bool
	}{
		{LeverAffinity, 0, 10, false}, {LeverAffinity, 0, 11, true}, {LeverAffinity, 11, 12, true}, {LeverAffinity, 14, 20, true},
		{LeverAffinity, 15, 20, false}, {LeverAffinity, 29, 36, false}, {LeverBuffering, 29, 36, true}, {LeverSlice, 0, 59, false},
	} {
		if got := r.Tripped(test.lever, at(test.from), at(test.to)); got != test.want {
			t.Errorf("%s from %d to %d: %t", test.lever, test.from, test.to, got)
		}
	}
}
