package prometheus_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
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
	// interval that means are taken over: some scrapes, but no long waits.
	interval = 3 * time.Second
)

// TestMain lets all stories run side by side: they wait for scrapes, whatever
// the number of processors.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == runForEver {
		if err := holdServer(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
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
	program, err := prometheus.Program(ctx, binaries.FromEnvironment(os.Getenv, nil).Cache, os.Stderr)
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

// story is one node with an exporter of its own, which a server scrapes as a
// job of the node's name.
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

func newSource(t *testing.T, config source.Config) *source.Source {
	t.Helper()
	config.Interval = interval
	config.Timeout = cmp.Or(config.Timeout, stepTimeout)
	s, err := source.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *story) source(series string) *source.Source {
	s.Helper()
	return newSource(s.T, source.Config{URL: s.server.URL, Series: series})
}

func (s *story) query(query string) *source.Source {
	s.Helper()
	return newSource(s.T, source.Config{URL: s.server.URL, Series: "Query", Query: query})
}

// answer is what a source says of one node: a reading, a refusal, or neither.
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

// ask reads once. The whole source must not fail.
func (s *story) ask(from *source.Source) answer {
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

// await reads until an answer is as wanted. each, which may be nil, sees all
// answers before.
func (s *story) await(what string, from *source.Source, wanted func(answer) bool, each func(answer)) answer {
	s.Helper()
	var last answer
	poll(s.T, what, func() (bool, string) {
		last = s.ask(from)
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

// meanFull is a reading over the whole interval.
func meanFull(a answer) bool {
	return a.reading != nil && a.reading.IntervalSeconds >= interval.Seconds()
}

func anyReading(a answer) bool { return a.reading != nil }

// within checks watts against those that the exporter was told. A counter is
// right at the moment its page is written, which lies somewhere within the
// scrape; the server calls that the scrape's beginning, moved by up to 2 ms to
// its grid. So two samples are apart by up to one scrape more or less than their
// times say.
func (s *story) within(what string, got, want, over float64) {
	s.Helper()
	if tolerance := s.tolerance(over); math.Abs(got-want) > tolerance*want {
		s.Errorf("%s: %v W, want %v W within %.2g %%", what, got, want, 100*tolerance)
	}
}

func (s *story) tolerance(over float64) float64 {
	s.Helper()
	const grid = 0.002
	if over == 0 {
		return 1e-9
	}
	return (s.longestScrape() + 2*grid) / over
}

// longestScrape is how long a scrape of the story's job took at most, in
// seconds, by the server's own count.
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

// write stores a file for a test.
func write(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
