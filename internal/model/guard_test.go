package model

import (
	"strings"
	"testing"
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
