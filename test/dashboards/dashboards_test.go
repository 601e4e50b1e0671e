//go:build e2e

package dashboards

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	promapi "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/metricstest"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

const (
	// startTimeout includes a cold build of the control planes.
	startTimeout = 20 * time.Minute
	// settleTimeout is how long what is asked may take to come, while hours of the fleet pass.
	settleTimeout = 4 * time.Minute
)

// holding are alerts whose expression holds in the simulated fleet, and why.
func holding() map[string]string {
	return map[string]string{
		"JoulevirtNodesUnmetered": "a part of the fleet is modelled, to show what is",
		"JoulevirtVMUnderFlood":   "a VM is flooded, to show that",
	}
}

// TestPanelsAndAlerts: a real server scrapes a manager and agents at work. Each query of each
// panel has an answer, and no alert's does that has no cause.
func TestPanelsAndAlerts(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	scene := startScene(ctx, t)
	rules, err := prometheus.ReadRules("../../config/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	api := startServer(ctx, t, rules, scene)
	halt := scene.move(ctx)
	checkPanels(ctx, t, api)
	checkAlerts(ctx, t, api, rules)
	halt()
	checkSeries(t, scene)
}

// checkAlerts wants the expressions of alerts to hold that are to, and those of all others not
// to: as a scrape that a busy machine missed, what is over by itself wakes nobody.
func checkAlerts(ctx context.Context, t *testing.T, api promapi.API, rules *prometheus.Rules) {
	t.Helper()
	deadline := time.Now().Add(settleTimeout)
	hold := map[string]string{}
	for rule := range rules.All() {
		why, expected := holding()[rule.Alert]
		count := 0
		await(deadline, func() bool {
			count = ask(ctx, t, api, Query{rule.Expr, true})
			return rule.Alert == "" || (count > 0) == expected
		})
		if rule.Alert != "" && count > 0 {
			hold[rule.Alert] = why
		}
	}
	if diff := cmp.Diff(holding(), hold); diff != "" {
		t.Errorf("alerts whose expressions hold (-expected +there):\n%s", diff)
	}
}

// checkPanels wants an answer to each query of each panel, with at least one choice of the
// board's variables.
func checkPanels(ctx context.Context, t *testing.T, api promapi.API) {
	t.Helper()
	boards, err := ReadBoards("../../config/grafana")
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(settleTimeout)
	asked := 0
	for _, b := range boards {
		choices := choose(ctx, t, api, b, deadline)
		for _, p := range b.Panels {
			for _, query := range p.Queries {
				asked++
				answered := false
				await(deadline, func() bool {
					answered = slices.ContainsFunc(choices, func(c choice) bool {
						return ask(ctx, t, api, Query{c.fill(t, query.Expr), query.Instant}) > 0
					})
					return answered
				})
				if !answered {
					t.Errorf("%s, %s: no series with values of %s", b.Name, p.Title, query.Expr)
				}
			}
		}
	}
	if asked == 0 {
		t.Error("there are no queries")
	}
}

// checkSeries wants no more series of anything than internal/metrics says that there are.
func checkSeries(t *testing.T, s *scene) {
	t.Helper()
	pages, err := s.fleet.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]metrics.Table{"/manager": metrics.Manager()}
	for _, node := range s.fleet.Nodes() {
		tables["/agent/"+node] = metrics.Agent()
	}
	for path, table := range tables {
		recorder := httptest.NewRecorder()
		pages.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(recorder.Body)
		if err != nil || len(families) == 0 {
			t.Errorf("%s: %d metrics, %v", path, len(families), err)
		}
		for _, problem := range metricstest.TooMany(table, slices.Collect(maps.Values(families))) {
			t.Errorf("%s: %s", path, problem)
		}
	}
}

// startServer starts a Prometheus server that scrapes the scene.
func startServer(ctx context.Context, t *testing.T, rules *prometheus.Rules, s *scene) promapi.API {
	t.Helper()
	program, err := prometheus.Program(ctx, binaries.FromEnvironment(os.Getenv, os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	server, err := prometheus.Start(ctx, prometheus.Options{Program: program, Dir: t.TempDir(), Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	pages, err := s.fleet.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(logged(t, pages))
	t.Cleanup(listener.Close)
	address := strings.TrimPrefix(listener.URL, "http://")
	if _, _, err := net.SplitHostPort(address); err != nil {
		t.Fatal(err)
	}
	targets := []prometheus.Target{{Job: "joulevirt-manager-metrics", Address: address, Path: "/manager", HonorLabels: true}, startGateway(ctx, t, s.cluster)}
	for _, node := range s.fleet.Nodes() {
		targets = append(targets, prometheus.Target{
			Job: "joulevirt-agent-metrics", Address: address, Path: "/agent/" + node, HonorLabels: true, Labels: map[string]string{"node": node},
		})
	}
	if err := server.Scrape(targets...); err != nil {
		t.Fatal(err)
	}
	api, err := server.API()
	if err != nil {
		t.Fatal(err)
	}
	s.prometheus = server.URL
	s.flooded(ctx)
	s.goOn(ctx)
	return api
}

// logged fails the test when a page of metrics cannot be made.
func logged(t *testing.T, pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := httptest.NewRecorder()
		pages.ServeHTTP(recorder, r)
		if recorder.Code != http.StatusOK {
			t.Errorf("%s: %d %s", r.URL.Path, recorder.Code, recorder.Body)
		}
		maps.Copy(w.Header(), recorder.Header())
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(recorder.Body.Bytes()) // a server that went needs no answer
	})
}

// choice is what people chose of a board's variables.
type choice struct{ values map[string]string }

// fill puts the choice into a query.
func (c choice) fill(t *testing.T, query string) string {
	t.Helper()
	filled, err := Fill(query, c.values)
	if err != nil {
		t.Fatal(err)
	}
	return filled
}

// every is the choice of all values at once.
const every = ".*"

// choose returns what people can choose of a board's variables: each value, and all at once of
// those of which several can be.
func choose(ctx context.Context, t *testing.T, api promapi.API, b Board, deadline time.Time) []choice {
	t.Helper()
	const rateInterval = "1m"
	choices := []choice{{values: map[string]string{"__rate_interval": rateInterval}}}
	for i, v := range b.Variables {
		var next []choice
		for _, chosen := range choices {
			series := chosen.fill(t, v.Series)
			var values []string
			await(deadline, func() bool { values = valuesOf(ctx, t, api, series, v.Label); return len(values) > 0 })
			if len(values) == 0 {
				t.Errorf("%s: variable %s has no values with %v", b.Name, v.Name, chosen.values)
			}
			if v.Multi {
				values = append(values, every)
			}
			if v.Multi && i < len(b.Variables)-1 {
				values = []string{every} // the next has all that it has with each
			}
			for _, value := range values {
				with := maps.Clone(chosen.values)
				with[v.Name] = value
				next = append(next, choice{with})
			}
		}
		choices = next
	}
	return choices
}

func valuesOf(ctx context.Context, t *testing.T, api promapi.API, series, label string) []string {
	t.Helper()
	value, _, _, err := api.Query(ctx, fmt.Sprintf("group by (%s) (%s)", label, series), time.Time{})
	if err != nil {
		t.Fatalf("%s: %v", series, err)
	}
	var values []string
	for _, sample := range value.(model.Vector) {
		values = append(values, string(sample.Metric[model.LabelName(label)]))
	}
	slices.Sort(values)
	return values
}

// ask counts the series with values that a query yields, now or in all the time of the test:
// one of NaN shows nothing.
func ask(ctx context.Context, t *testing.T, api promapi.API, query Query) (count int) {
	t.Helper()
	const past, step = 10 * time.Minute, 5 * time.Second
	now := time.Now()
	var value model.Value
	var warnings promapi.Warnings
	var err error
	if query.Instant {
		value, warnings, _, err = api.Query(ctx, query.Expr, now)
	} else {
		value, warnings, _, err = api.QueryRange(ctx, query.Expr, promapi.Range{Start: now.Add(-past), End: now, Step: step})
	}
	if err != nil || len(warnings) > 0 {
		t.Errorf("%s: %v %v", query.Expr, err, warnings)
		return 0
	}
	switch v := value.(type) {
	case model.Vector:
		for _, sample := range v {
			if !math.IsNaN(float64(sample.Value)) {
				count++
			}
		}
	case model.Matrix:
		for _, series := range v {
			if slices.ContainsFunc(series.Values, func(p model.SamplePair) bool { return !math.IsNaN(float64(p.Value)) }) {
				count++
			}
		}
	default:
		t.Errorf("%s yields a %s, want series", query.Expr, value.Type())
	}
	return count
}

// await tries until it succeeds or the time is over, at least once.
func await(deadline time.Time, try func() bool) {
	const pollEvery = 250 * time.Millisecond
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for !try() && time.Now().Before(deadline) {
		<-ticker.C
	}
}
