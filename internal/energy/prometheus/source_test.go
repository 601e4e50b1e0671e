package prometheus

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
	power "github.com/joulevirt/joulevirt/internal/model"
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

func newTestSource(t *testing.T, config Config) *Source {
	t.Helper()
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNewRefuses(t *testing.T) {
	const good = "https://prometheus.monitoring.svc:9090"
	tests := map[string]struct {
		config Config
		reason energy.Reason
		text   string
	}{
		"no url":            {Config{}, energy.ReasonUnreachable, "url"},
		"another scheme":    {Config{URL: "ftp://prometheus"}, energy.ReasonUnreachable, "url"},
		"no host":           {Config{URL: "https:///api"}, energy.ReasonUnreachable, "url"},
		"no url at all":     {Config{URL: ":"}, energy.ReasonUnreachable, "url"},
		"unknown series":    {Config{URL: good, Series: "Scaphandre"}, energy.ReasonQueryFailed, "Scaphandre"},
		"a query is needed": {Config{URL: good, Series: "Query", Query: " "}, energy.ReasonQueryFailed, "query"},
		"a query too much":  {Config{URL: good, Series: "Kepler", Query: "up"}, energy.ReasonQueryFailed, "query"},
		"token of lines":    {Config{URL: good, Credentials: Credentials{Token: []byte("secret\nand more")}}, energy.ReasonCredentials, "token"},
		"no certificate":    {Config{URL: good, Credentials: Credentials{CA: []byte("secret")}}, energy.ReasonCredentials, "ca.crt"},
		"no key":            {Config{URL: good, Credentials: Credentials{Cert: []byte("secret")}}, energy.ReasonCredentials, "tls.key"},
		"no pair":           {Config{URL: good, Credentials: Credentials{Cert: []byte("secret"), Key: []byte("secret")}}, energy.ReasonCredentials, "tls.crt"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := New(test.config)
			if err == nil || energy.ReasonOf(err) != test.reason || !strings.Contains(err.Error(), test.text) {
				t.Fatalf("New = %v, want %s with %q", err, test.reason, test.text)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}

func TestWindows(t *testing.T) {
	for freshness, want := range map[time.Duration]string{
		0: "[2m]", 15 * time.Second: "[2m]", 90 * time.Second: "[3m]", time.Hour: "[10m]",
	} {
		s := serve(t, nil)
		source := newTestSource(t, Config{URL: s.URL, Series: "Platform", Freshness: freshness})
		if _, err := source.Read(t.Context(), cluster()); err != nil {
			t.Fatal(err)
		}
		if got := s.queries[0]; !strings.HasSuffix(got, want) {
			t.Errorf("freshness %s: asked %q, want %s", freshness, got, want)
		}
	}
}

// TestAuto holds that each node is answered by the first family that has
// anything of it, good or not, and that nothing is asked in vain.
func TestAuto(t *testing.T) {
	of := func(s *model.SampleStream, node string) *model.SampleStream {
		s.Metric["node_name"] = model.LabelValue(node)
		return s
	}
	answers := map[string]any{
		"kepler_platform_watts": model.Matrix{of(gauge(300, "PowerControl", "0"), "node-a"), of(gauge(-1, "PowerControl", "0"), "node-b")},
		"cpu_joules_total": model.Matrix{
			of(zone(80, "package", "0"), "node-a"), of(zone(70, "package", "0"), "node-b"), of(zone(60, "package", "0"), "node-c"),
		},
		"__name__": model.Matrix{of(old(50, "package", "0", "idle", ""), "node-c"), of(old(40, "package", "0", "idle", ""), "node-d")},
	}
	s := serve(t, answers)
	source := newTestSource(t, Config{URL: s.URL, Interval: 10 * time.Second})
	got, err := source.Read(t.Context(), cluster())
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]nodePower{
		"node-a": {Source: power.SourcePrometheus, Scope: power.ScopePlatform, Watts: 300, Time: noon().Add(20 * time.Second)},
		"node-c": reading(power.ScopePackage, 60),
		"node-d": reading(power.ScopePackage, 40),
	}
	if diff := cmp.Diff(read, got.Readings); diff != "" {
		t.Errorf("readings (-want +got):\n%s", diff)
	}
	if refusal := got.Refused["node-b"]; len(got.Refused) != 1 || refusal == nil || refusal.Reason != energy.ReasonImplausible {
		t.Errorf("refused %v, want node-b for its platform", got.Refused)
	}
	if last := source.Last(); last.Queries != 3 || last.Series != 7 || last.Unmatched != 0 {
		t.Errorf("round %+v", last)
	}
	// All that is asked for is known after the first query.
	if _, err := source.Read(t.Context(), cluster()[:2]); err != nil {
		t.Fatal(err)
	}
	if last := source.Last(); last.Queries != 1 {
		t.Errorf("round %+v, want one query", last)
	}
}

func TestReadExplainsWhatIsMissing(t *testing.T) {
	stray := zone(80, "package", "0")
	stray.Metric["node_name"] = "ip-10-0-0-1"
	s := serve(t, map[string]any{"cpu_joules_total": model.Matrix{stray}})
	source := newTestSource(t, Config{URL: s.URL, Series: "Kepler"})
	got, err := source.Read(t.Context(), cluster()[:1])
	if err != nil {
		t.Fatal(err)
	}
	refusal := got.Refused["node-a"]
	if refusal == nil || refusal.Reason != energy.ReasonNoSeries || !strings.Contains(refusal.Message, "ip-10-0-0-1") || !strings.Contains(refusal.Message, "node_name") {
		t.Errorf("refusal %v, want the series that may be the node's", refusal)
	}

	source = newTestSource(t, Config{URL: s.URL, Series: "Platform"})
	if got, err = source.Read(t.Context(), cluster()[:1]); err != nil {
		t.Fatal(err)
	}
	if refusal := got.Refused["node-a"]; refusal == nil || !strings.Contains(refusal.Message, "one store did not answer") {
		t.Errorf("refusal %v, want the server's warning", refusal)
	}
	if last := source.Last(); len(last.Warnings) != 1 {
		t.Errorf("round %+v, want the warning", last)
	}
}

func TestWrongTypes(t *testing.T) {
	for name, test := range map[string]struct {
		series, query string
		answer        any
		text          string
	}{
		"vector for series":  {"Kepler", "", model.Vector{}, "a vector where a matrix"},
		"matrix for a query": {"Query", "cpu_joules_total[1m]", model.Matrix{}, "a matrix where a vector"},
		"scalar for a query": {"Query", "cpu_joules_total", &model.Scalar{}, "a scalar where a vector"},
		"a hole":             {"Kepler", "", model.Matrix{nil}, "holes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, map[string]any{"cpu_joules_total": test.answer})
			_, err := newTestSource(t, Config{URL: s.URL, Series: test.series, Query: test.query}).Read(t.Context(), cluster())
			if err == nil || energy.ReasonOf(err) != energy.ReasonWrongType || !strings.Contains(err.Error(), test.text) {
				t.Errorf("Read = %v, want %s with %q", err, energy.ReasonWrongType, test.text)
			}
		})
	}
}
