package dashboards

import (
	"context"
	"fmt"
	"maps"
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
	"github.com/joulevirt/joulevirt/internal/metricstest"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

const (
	// startTimeout includes a cold build of the control planes.
	startTimeout = 20 * time.Minute
	// settleTimeout is how long what is asked may take to come, while hours of the fleet pass.
	settleTimeout = 4 * time.Minute
)

// empty are panels, by board and title, without series in a fleet where all goes well, and
// why.
func empty() map[string]string {
	const unharmed = "the manager withdraws levers that hurt VMs, and none does"
	return map[string]string{
		"fleet, Withdrawn by the manager, an hour": unharmed,
		"proof, Withdrawn by the manager, an hour": unharmed,
		"node, VMs under flood":                    "no VM is flooded",
	}
}

// holding are alerts whose expression holds in the simulated fleet, and why.
func holding() map[string]string {
	return map[string]string{
		"JoulevirtNodesUnmetered": "a part of the fleet is modelled, to show what is",
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
	checkCLI(ctx, t, scene)
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

// checkPanels wants an answer to each query of each panel, but for those of empty.
func checkPanels(ctx context.Context, t *testing.T, api promapi.API) {
	t.Helper()
	boards, err := ReadBoards("../../config/grafana")
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(settleTimeout)
	asked := map[string]bool{}
	// without is asked when all others had their time.
	var without []func()
	for _, b := range boards {
		choices := choose(ctx, t, api, b, deadline)
		for _, p := range b.Panels {
			where := b.Name + ", " + p.Title
			asked[where] = true
			_, expected := empty()[where]
			for _, query := range p.Queries {
				if expected {
					without = append(without, func() {
						if count := countAny(ctx, t, api, query, choices); count > 0 {
							t.Errorf("%s: %d series of %s, want none", where, count, query.Expr)
						}
					})
					continue
				}
				count := 0
				await(deadline, func() bool { count = countAny(ctx, t, api, query, choices); return count > 0 })
				if count == 0 {
					t.Errorf("%s: no series of %s", where, query.Expr)
				}
			}
		}
	}
	for _, check := range without {
		check()
	}
	for where := range maps.Keys(empty()) {
		if !asked[where] {
			t.Errorf("there is no panel %s", where)
		}
	}
	if len(asked) == 0 {
		t.Error("there are no panels")
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
	program, err := prometheus.Program(ctx, binaries.FromEnvironment(os.Getenv, nil).Cache, os.Stderr)
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
	targets := []prometheus.Target{{Job: "joulevirt-manager-metrics", Address: address, Path: "/manager", HonorLabels: true}}
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

// choose returns what people can choose of a board's variables: all at once of those of which
// several can be, else each.
func choose(ctx context.Context, t *testing.T, api promapi.API, b Board, deadline time.Time) []map[string]string {
	t.Helper()
	const rateInterval = "1m"
	choices := []map[string]string{{"__rate_interval": rateInterval}}
	for _, v := range b.Variables {
		var next []map[string]string
		for _, choice := range choices {
			series, err := Fill(v.Series, choice)
			if err != nil {
				t.Fatal(err)
			}
			var values []string
			await(deadline, func() bool { values = valuesOf(ctx, t, api, series, v.Label); return len(values) > 0 })
			if len(values) == 0 {
				t.Errorf("%s: variable %s has no values with %v", b.Name, v.Name, choice)
			}
			if v.Multi {
				values = []string{".*"}
			}
			for _, value := range values {
				with := maps.Clone(choice)
				with[v.Name] = value
				next = append(next, with)
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

// countAny counts the series that a query yields, with the first choice for which it yields any.
func countAny(ctx context.Context, t *testing.T, api promapi.API, query Query, choices []map[string]string) int {
	t.Helper()
	for _, choice := range choices {
		filled, err := Fill(query.Expr, choice)
		if err != nil {
			t.Fatal(err)
		}
		if count := ask(ctx, t, api, Query{filled, query.Instant}); count > 0 {
			return count
		}
	}
	return 0
}

// ask counts the series that a query yields, now or in all the time of the test.
func ask(ctx context.Context, t *testing.T, api promapi.API, query Query) int {
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
		return len(v)
	case model.Matrix:
		return len(v)
	default:
		t.Errorf("%s yields a %s, want series", query.Expr, value.Type())
		return 0
	}
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
