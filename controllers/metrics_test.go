package controllers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe/proofs"
)

// standby are the collectors of a manager that was set up beside the leader: caches are filled,
// and nothing that only leaders run has run.
func standby(t *testing.T) (*prometheus.Registry, *watchScene) {
	t.Helper()
	s := newWatchScene(t)
	registry := prometheus.NewPedanticRegistry()
	if _, err := NewMetrics(registry); err != nil {
		t.Fatal(err)
	}
	savings := someSavings(t)
	savings.sources.memory = proofs.NewStore()
	savings.sources.conditions = func(*v1alpha1.EnergyPolicy) []metav1.Condition { return nil }
	statuses := someStatuses(t)
	statuses.leads = func() bool { return s.watch.Seen() != nil }
	nobody := func(context.Context) {}
	for _, c := range []prometheus.Collector{
		newPowerCollector(s.watch, fixedAnswers{}), newReportCollector(s.client, s.store, s.watch.Seen),
		vmPower(t, vmsByNode{}, runningVMI("shop", "web", map[types.UID]string{"1": "a"})),
		newTrafficCollector(newTrafficSights(nobody, nobody)), newDisturbanceCollector(func() *disturbanceFacts { return nil }),
		savings, statuses, NewProgramCollector("v1", func() (time.Time, bool) { return time.Time{}, false }),
	} {
		if err := registry.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	return registry, s
}

// Whoever stands by shows nothing of nodes, policies or groups: sums over two managers would
// count it twice, and nodes of which it hears nothing would look lost.
func TestStandbyShowsNothingOfTheCluster(t *testing.T) {
	registry, _ := standby(t)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			own[family.GetName()] = metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount()) + metric.GetGauge().GetValue()
		}
	}
	if diff := cmp.Diff(map[string]float64{
		"joulevirt_manager_build_info": 1, "joulevirt_nodeplans_written_total": 0,
		"joulevirt_rates_pull_seconds": 0, "joulevirt_energy_source_read_seconds": 0,
	}, own); diff != "" {
		t.Errorf("(-want +shown):\n%s", diff)
	}
}

// The leader counts all nodes from its first look on, also without a policy.
func TestMetricsOfReports(t *testing.T) {
	registry, s := standby(t)
	check := func(want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for line := range strings.Lines(series(t, registry, []string{"joulevirt_nodes"})) {
			labels, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			got[labels] = value
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	check(map[string]string{})
	s.run()
	nodes := func(state string) string { return `joulevirt_nodes{state="` + state + `"}` }
	want := map[string]string{nodes("reported"): "1", nodes("rates_fresh"): "1", nodes("governed"): "2", nodes("metered"): "2"}
	check(want)
	s.clock.Step(2 * time.Minute)
	s.look()
	want[nodes("rates_fresh")], want[nodes("metered")] = "0", "1" // the server's figure lasts longer
	check(want)
	if err := s.client.DeleteAllOf(t.Context(), &v1alpha1.EnergyPolicy{}); err != nil {
		t.Fatal(err)
	}
	s.look()
	want[nodes("governed")], want[nodes("metered")] = "0", "0"
	check(want)
}
