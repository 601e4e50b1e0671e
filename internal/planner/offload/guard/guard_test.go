package guard

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// spans are so many of the same kind.
func spans(count int, of Span) []Span { return slices.Repeat([]Span{of}, count) }

func TestDecide(t *testing.T) {
	const ms = time.Millisecond
	well := Span{Hits: 90, Answers: 10, FirstByte: 50 * ms, Delay: 5 * ms}
	failing, slow := well, well
	failing.Errors = 2
	slow.Delay = 100 * 20 * ms // 20 ms for each of 100 requests, of which the VM takes 0.5 ms
	with := func(change func(*Span)) Span {
		s := slow
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		observed Observed
		want     v1alpha1.GuardSign
		words    string
	}{
		"nothing known":                     {},
		"well":                              {observed: Observed{Spans: spans(20, well), Failures: 2}},
		"fails again and again":             {observed: Observed{Failures: 3}, want: v1alpha1.GuardReadiness, words: "3 times within 10m0s"},
		"errors":                            {observed: Observed{Spans: spans(20, failing)}, want: v1alpha1.GuardErrors, words: "40 of 2040 requests"},
		"errors alone":                      {observed: Observed{Spans: spans(3, Span{Errors: 2})}, want: v1alpha1.GuardErrors, words: "6 of 6"},
		"a burst of errors":                 {observed: Observed{Spans: append(spans(18, well), spans(2, Span{Errors: 1000})...)}},
		"errors in one of a thousand":       {observed: Observed{Spans: spans(20, Span{Hits: 1000, Errors: 1})}},
		"four errors":                       {observed: Observed{Spans: spans(4, Span{Errors: 1})}},
		"delays":                            {observed: Observed{Spans: spans(20, slow), Target: 10 * ms}, want: v1alpha1.GuardDelay, words: "waited 21ms"},
		"delays that the owner accepts":     {observed: Observed{Spans: spans(20, slow), Target: 50 * ms}},
		"delays of a moment":                {observed: Observed{Spans: spans(7, slow), Target: 10 * ms}},
		"few answers":                       {observed: Observed{Spans: spans(20, with(func(s *Span) { s.Answers = 1 })), Target: 10 * ms}},
		"delays that hits make up for":      {observed: Observed{Spans: spans(20, with(func(s *Span) { s.Hits = 1e5 })), Target: 10 * ms}},
		"the VM itself takes that long":     {observed: Observed{Spans: spans(20, with(func(s *Span) { s.FirstByte = 10 * 100 * ms })), Target: 10 * ms}},
		"nothing is stored, no delays":      {observed: Observed{Spans: spans(20, Span{Answers: 100, FirstByte: 100 * 500 * ms}), Target: 10 * ms}},
		"restarts are said before the rest": {observed: Observed{Spans: spans(20, failing), Failures: 4}, want: v1alpha1.GuardReadiness},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decide(test.observed)
			switch {
			case got == nil && test.want != "", got != nil && got.Sign != test.want:
				t.Errorf("%+v, want %q", got, test.want)
			case got != nil && !strings.Contains(got.Message, test.words):
				t.Errorf("%q lacks %q", got.Message, test.words)
			}
		})
	}
}
