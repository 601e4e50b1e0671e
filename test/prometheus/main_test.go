//go:build e2e

package prometheus_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
	source "github.com/joulevirt/joulevirt/internal/energy/prometheus"
	power "github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

const (
	// startTimeout includes getting the server's package.
	startTimeout = 5 * time.Minute
	// stepTimeout is how long the effect of a step may take.
	stepTimeout = 2 * time.Minute
	pollEvery   = 200 * time.Millisecond
	// interval of means of counters.
	interval = 10 * time.Second
)

// TestMain runs all tests side by side: they wait for scrapes, whatever the number of processors.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	m.Run()
}

// start runs a server that ends with the test.
func start(t *testing.T, tls *prometheus.TLS) *prometheus.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	program, err := prometheus.Program(ctx, binaries.FromEnvironment(os.Getenv, os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	server, err := prometheus.Start(ctx, prometheus.Options{Program: program, Dir: t.TempDir(), TLS: tls})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// story is one node with an exporter of its own, which a server scrapes with a job of the node's
// name.
type story struct {
	*testing.T
	server   *prometheus.Server
	exporter *prometheus.Exporter
	node     energy.Node
}

func newStory(t *testing.T, server *prometheus.Server, node string, meters ...prometheus.Meter) *story {
	t.Helper()
	s := &story{T: t, server: server, exporter: prometheus.NewExporter(), node: energy.Node{Name: node}}
	t.Cleanup(s.exporter.Close)
	s.exporter.Set(node, meters...)
	s.scrape(s.exporter.Target(node, node))
	return s
}

func (s *story) scrape(targets ...prometheus.Target) {
	s.Helper()
	if err := s.server.Scrape(targets...); err != nil {
		s.Fatal(err)
	}
}

// rescrape replaces the node's target.
func (s *story) rescrape(change func(*prometheus.Target)) {
	s.Helper()
	if err := s.server.Drop(s.node.Name); err != nil {
		s.Fatal(err)
	}
	target := s.exporter.Target(s.node.Name, s.node.Name)
	change(&target)
	s.scrape(target)
}

func newSource(t *testing.T, server energy.Server, credentials energy.Credentials) *source.Source {
	t.Helper()
	server.Freshness, server.Timeout = 2*time.Minute, cmp.Or(server.Timeout, stepTimeout)
	s, err := source.New(server, credentials)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *story) source() *source.Source {
	s.Helper()
	return newSource(s.T, energy.Server{URL: s.server.URL}, energy.Credentials{})
}

func (s *story) query(query string) *source.Source {
	s.Helper()
	return newSource(s.T, energy.Server{URL: s.server.URL, Query: query}, energy.Credentials{})
}

// answer of a source for one node: a reading, a refusal, or neither.
type answer struct {
	reading *power.Power
	refusal *energy.Refusal
}

func (a answer) String() string {
	switch {
	case a.refusal != nil:
		return a.refusal.Error()
	case a.reading != nil:
		return fmt.Sprintf("%+v", *a.reading)
	}
	return "nothing"
}

func (a answer) reason() energy.Reason {
	if a.refusal == nil {
		return ""
	}
	return a.refusal.Reason
}

// read reads once. The whole source must not fail.
func (s *story) read(from *source.Source) answer {
	s.Helper()
	all, err := from.Read(s.Context(), []energy.Node{s.node})
	if err != nil {
		s.Fatal(err)
	}
	a := answer{refusal: all.Refused[s.node.Name]}
	if reading, ok := all.Readings[s.node.Name]; ok {
		a.reading = &reading
	}
	if a.reading != nil && a.refusal != nil {
		s.Fatalf("%+v is both read and refused: %v", *a.reading, a.refusal)
	}
	return a
}

// await reads until an answer is as wanted. each, which may be nil, checks all answers before.
func (s *story) await(what string, from *source.Source, wanted func(answer) bool, each func(answer)) answer {
	s.Helper()
	var last answer
	poll(s.T, what, func() (bool, string) {
		last = s.read(from)
		if wanted(last) {
			return true, ""
		}
		if each != nil {
			each(last)
		}
		return false, last.String()
	})
	return last
}

// poll tries until it succeeds; why says what is missing.
func poll(t *testing.T, what string, try func() (ok bool, why string)) {
	t.Helper()
	deadline := time.Now().Add(stepTimeout)
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		ok, why := try()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s, last: %s", what, stepTimeout, why)
		}
		<-ticker.C
	}
}

func refusedFor(reason energy.Reason) func(answer) bool {
	return func(a answer) bool { return a.reason() == reason }
}

// isFull returns true for a reading over the whole interval.
func isFull(a answer) bool {
	return a.reading != nil && a.reading.IntervalSeconds >= interval.Seconds()
}

func isReading(a answer) bool { return a.reading != nil }

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
	if refusal := energy.RefusalIn(err); refusal == nil || string(refusal.Reason) != reason || !strings.Contains(err.Error(), text) {
		s.Errorf("Read = %v, want %s with %q", err, reason, text)
	}
}

// within compares watts with those of the exporter. A counter is right at the moment its page is
// written, which lies somewhere within the scrape; the server's time is the scrape's beginning,
// moved by up to 2 ms to its grid. So two samples are up to one scrape more or less apart than
// their times.
func (s *story) within(what string, got, want, over float64) {
	s.Helper()
	const grid = 0.002
	tolerance := 1e-9
	if over > 0 {
		tolerance = (s.longestScrape() + 2*grid) / over
	}
	if math.Abs(got-want) > tolerance*want {
		s.Errorf("%s: %v W, want %v W within %.2g %%", what, got, want, 100*tolerance)
	}
}

// longestScrape of the story's job, in seconds, by the server's own count.
func (s *story) longestScrape() float64 {
	s.Helper()
	client, err := s.server.API()
	if err != nil {
		s.Fatal(err)
	}
	query := fmt.Sprintf(`max(max_over_time(scrape_duration_seconds{job=%q}[5m]))`, s.node.Name)
	value, _, _, err := client.Query(s.Context(), query, time.Time{})
	if err != nil {
		s.Fatal(err)
	}
	vector, ok := value.(model.Vector)
	if !ok || len(vector) != 1 {
		s.Fatalf("%s = %v, want one sample", query, value)
	}
	return float64(vector[0].Value)
}
