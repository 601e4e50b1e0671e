package prometheus

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
)

// server answers each query by what it contains, and keeps the queries.
type server struct {
	*httptest.Server
	answers map[string]any

	mu      sync.Mutex
	queries []string
}

func serve(t *testing.T, answers map[string]any) *server {
	t.Helper()
	s := &server{answers: answers}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.FormValue("query")
		s.mu.Lock()
		s.queries = append(s.queries, query)
		s.mu.Unlock()
		for part, answer := range s.answers {
			if strings.Contains(query, part) {
				reply(w, answer, nil)
				return
			}
		}
		reply(w, model.Matrix{}, []string{"one store did not answer"})
	}))
	t.Cleanup(s.Close)
	return s
}

// reply writes a value as a Prometheus server does.
func reply(w http.ResponseWriter, value any, warnings []string) {
	kind := "matrix"
	switch value.(type) {
	case model.Vector:
		kind = "vector"
	case *model.Scalar:
		kind = "scalar"
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"status":   "success",
		"data":     map[string]any{"resultType": kind, "result": value},
		"warnings": warnings,
	})
}

func newTestSource(t *testing.T, server energy.Server, token string) *Source {
	t.Helper()
	server.Freshness, server.Timeout = cmp.Or(server.Freshness, 2*time.Minute), cmp.Or(server.Timeout, time.Minute)
	s, err := New(server, energy.Credentials{Token: []byte(token)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWindows(t *testing.T) {
	for freshness, want := range map[time.Duration]string{
		15 * time.Second: "[2m]", 90 * time.Second: "[3m]", time.Hour: "[10m]",
	} {
		s := serve(t, nil)
		source := newTestSource(t, energy.Server{URL: s.URL, Freshness: freshness}, "")
		if _, err := source.Read(t.Context(), cluster()); err != nil {
			t.Fatal(err)
		}
		if got := s.queries[0]; !strings.HasSuffix(got, want) {
			t.Errorf("freshness %s: asked %q, want %s", freshness, got, want)
		}
	}
}

// TestMatchers: a tenant whose exporter is scraped, too, speaks for no node.
func TestMatchers(t *testing.T) {
	s := serve(t, nil)
	source := newTestSource(t, energy.Server{URL: s.URL, Matchers: `job="kepler",namespace="kepler"`}, "")
	if _, err := source.Read(t.Context(), cluster()); err != nil {
		t.Fatal(err)
	}
	if want := `kepler_node_cpu_joules_total{zone=~"psys|package",job="kepler",namespace="kepler"}[4m]`; s.queries[0] != want {
		t.Errorf("asked %s, want %s", s.queries[0], want)
	}
}

func TestReadExplainsWhatIsMissing(t *testing.T) {
	stray := zone(80, "package", "0")
	stray.Metric["node_name"] = "ip-10-0-0-1"
	s := serve(t, map[string]any{"cpu_joules_total": model.Matrix{stray}})
	source := newTestSource(t, energy.Server{URL: s.URL}, "")
	got, err := source.Read(t.Context(), cluster()[:1])
	if err != nil {
		t.Fatal(err)
	}
	refusal := got.Refused["node-a"]
	if refusal == nil || refusal.Reason != energy.ReasonNoSeries || !strings.Contains(refusal.Message, "ip-10-0-0-1") || !strings.Contains(refusal.Message, "node_name") {
		t.Errorf("refusal %v, want the series that may be the node's", refusal)
	}

	source = newTestSource(t, energy.Server{URL: serve(t, nil).URL}, "")
	if got, err = source.Read(t.Context(), cluster()[:1]); err != nil {
		t.Fatal(err)
	}
	if refusal := got.Refused["node-a"]; refusal == nil || !strings.Contains(refusal.Message, "one store did not answer") {
		t.Errorf("refusal %v, want the server's warning", refusal)
	}
}

func TestWrongTypes(t *testing.T) {
	for name, test := range map[string]struct {
		query  string
		answer any
		text   string
	}{
		"vector for series":  {"", model.Vector{}, "a vector where a matrix"},
		"matrix for a query": {"cpu_joules_total[1m]", model.Matrix{}, "a matrix where a vector"},
		"scalar for a query": {"cpu_joules_total", &model.Scalar{}, "a scalar where a vector"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, map[string]any{"cpu_joules_total": test.answer})
			_, err := newTestSource(t, energy.Server{URL: s.URL, Query: test.query}, "").Read(t.Context(), cluster())
			if err == nil || reasonOf(err) != energy.ReasonWrongType || !strings.Contains(err.Error(), test.text) {
				t.Errorf("Read = %v, want %s with %q", err, energy.ReasonWrongType, test.text)
			}
		})
	}
}
