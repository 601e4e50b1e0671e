package prometheus_test

import (
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/energy"
	source "github.com/joulevirt/joulevirt/internal/energy/prometheus"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

func wantRefusal(t *testing.T, got *energy.Refusal, reason, text string) {
	t.Helper()
	if got == nil || string(got.Reason) != reason || !strings.Contains(got.Message, text) {
		t.Errorf("refusal %v, want %s with %q", got, reason, text)
	}
}

// wantFailure reads, and wants the whole source to fail.
func (s *story) wantFailure(from *source.Source, reason, text string) {
	s.Helper()
	_, err := from.Read(s.Context(), []energy.Node{s.node})
	if err == nil || string(energy.ReasonOf(err)) != reason || !strings.Contains(err.Error(), text) {
		s.Errorf("Read = %v, want %s with %q", err, reason, text)
	}
}

// steady starts a node of 150 W and waits until that is read.
func steady(t *testing.T, server *prometheus.Server, node string) (*story, *source.Source) {
	t.Helper()
	s := newStory(t, server, node, twoSockets()...)
	from := s.source("Kepler")
	s.right(from)
	return s, from
}

// right waits for a full reading and checks it.
func (s *story) right(from *source.Source) {
	s.Helper()
	s.good(s.await("a full reading", from, meanFull, nil))
}

// good checks a reading, however short; other answers are no matter.
func (s *story) good(a answer) {
	s.Helper()
	if a.reading != nil {
		s.within("watts", float64(a.reading.Watts), 150, a.reading.IntervalSeconds)
	}
}

// TestFaults lets one thing after the other go wrong on nodes of one server:
// what is not right is refused, and no reading is ever wrong.
func TestFaults(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	for name, run := range map[string]func(*testing.T, *prometheus.Server){
		"reset": func(t *testing.T, server *prometheus.Server) {
			s, from := steady(t, server, "reset")
			s.exporter.Reset("reset")
			s.await("a start over", from, refusedFor(energy.ReasonAwaiting), s.good)
			s.await("a full reading", from, meanFull, s.good)
			s.right(from)
		},
		"back": func(t *testing.T, server *prometheus.Server) {
			s, from := steady(t, server, "back")
			s.exporter.Jump("back", -400)
			a := s.await("a counter that went back", from, refusedFor(energy.ReasonWentBack), s.good)
			wantRefusal(t, a.refusal, "WentBack", `node_name="back"`)
			s.await("a full reading", from, meanFull, s.good)
			s.right(from)
		},
		"frozen": func(t *testing.T, server *prometheus.Server) {
			s, from := steady(t, server, "frozen")
			s.exporter.Fail("frozen", prometheus.Frozen)
			s.await("a frozen meter", from, refusedFor(energy.ReasonFrozen), nil)
			s.exporter.Fail("frozen", prometheus.Working)
			s.await("a reading", from, anyReading, nil)
		},
		"not-a-number": func(t *testing.T, server *prometheus.Server) {
			s, from := steady(t, server, "not-a-number")
			s.exporter.Fail("not-a-number", prometheus.NotANumber)
			a := s.await("NaN", from, refusedFor(energy.ReasonNotFinite), s.good)
			wantRefusal(t, a.refusal, "NotFinite", `node_name="not-a-number"`)
			s.exporter.Fail("not-a-number", prometheus.Working)
			s.await("a full reading", from, meanFull, s.good)
			s.right(from)
		},
		"twice": func(t *testing.T, server *prometheus.Server) {
			s, from := steady(t, server, "twice")
			s.scrape(s.exporter.Target("another", "twice"))
			a := s.await("two jobs", from, refusedFor(energy.ReasonManySeries), s.good)
			for _, job := range []string{`job="twice"`, `job="another"`, `zone="package"`} {
				wantRefusal(t, a.refusal, "ManySeries", job)
			}
		},
		"new-pod": func(t *testing.T, server *prometheus.Server) {
			s, from := steady(t, server, "new-pod")
			s.relabel(func(target *prometheus.Target) { target.Labels = map[string]string{"pod": "kepler-b"} })
			s.exporter.Reset("new-pod")
			began := time.Now()
			s.await("a reading of the new series", from, func(a answer) bool {
				return meanFull(a) && a.reading.Time.Add(-interval).After(began)
			}, s.good)
			s.right(from)
		},
		"lost-socket": func(t *testing.T, server *prometheus.Server) {
			s, from := steady(t, server, "lost-socket")
			s.exporter.Set("lost-socket", kepler("package", rapl("0"), 80))
			s.await("a part that is missing", from, refusedFor(energy.ReasonAwaiting), s.good)
			if a := s.ask(from); a.reason() != energy.ReasonAwaiting {
				t.Errorf("%v, want the half never to be read as the whole", a)
			}
		},
		"gone":       ages(prometheus.Gone),
		"garbled":    ages(prometheus.Garbled),
		"slow":       ages(prometheus.Slow),
		"other-type": ages(prometheus.OtherType),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, server)
		})
	}
}

// ages is a page that is not to be had any more: the last reading stays as it
// is, with its time, until it is read again.
func ages(fault prometheus.Fault) func(*testing.T, *prometheus.Server) {
	return func(t *testing.T, server *prometheus.Server) {
		node := "page-" + strings.ToLower(string(fault))
		s, from := steady(t, server, node)
		s.exporter.Fail(node, fault)
		old := s.await("a reading that ages", from, func(a answer) bool {
			return a.reading != nil && time.Since(a.reading.Time) > 3*time.Second
		}, s.good)
		s.good(old)
		s.exporter.Fail(node, prometheus.Working)
		s.await("a fresh reading", from, func(a answer) bool {
			return a.reading != nil && a.reading.Time.After(old.reading.Time)
		}, s.good)
		s.right(from)
	}
}

func TestModelledByTheExporter(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	meter := legacy("package", "0", 60)
	meter.Source = "trained_power_model"
	s := newStory(t, server, "modelled", meter)
	a := s.await("a refusal", s.source("Auto"), refusedFor(energy.ReasonNoCounters), nil)
	wantRefusal(t, a.refusal, "NoCounters", "not measured")
}
