package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/internal/metricstest"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/units"
)

// watchScene has nodes a and b, of a policy that asks one server and then RAPL.
type watchScene struct {
	*testing.T
	watch  *powerWatch
	meters metersByNode
	store  *rates.Store
	clock  *testingclock.FakeClock
	client client.Client
	// told is what was said since the last look.
	told []string
}

func newWatchScene(t *testing.T) *watchScene {
	t.Helper()
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	priors, err := prior.Default()
	if err != nil {
		t.Fatal(err)
	}
	policy := withPrometheus(policyOf("p", 0, "x"))
	s := &watchScene{T: t, meters: metersByNode{}, clock: testingclock.NewFakeClock(statusTime())}
	report := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	report.Status.Topology = v1alpha1.Topology{PhysicalCores: 2, CoreGroups: []v1alpha1.CoreGroup{{Cores: []string{"0", "1"}}}}
	s.client = fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(&policy, report, nodeOf("a", "x"), nodeOf("b", "x"), nodeOf("c", "y")).Build()
	s.store = rates.NewStore(s.clock, time.Minute, time.Minute)
	tell := func(what string) func(context.Context) {
		return func(context.Context) { s.told = append(s.told, what) }
	}
	s.watch = newPowerWatch(powerWatchOptions{
		reader: s.client, powers: &observe.Powers{Rates: s.store, Meters: s.meters, Clock: s.clock},
		models: learned.New(priors), interval: 15 * time.Second, clock: s.clock, log: logr.Discard(),
		replan:  func(_ context.Context, node string) { s.told = append(s.told, "plan "+node) },
		changed: tell("changed"), figures: tell("figures"),
	})
	return s
}

// look returns what the watch says, in order. Planners heed it.
func (s *watchScene) look() string {
	s.Helper()
	s.told = nil
	if err := s.watch.look(s.Context()); err != nil {
		s.Fatal(err)
	}
	slices.Sort(s.told)
	for _, sight := range s.watch.Seen() {
		s.watch.Planned(model.Node{Name: sight.node, Metered: sight.choice.Metered, MeterUnknown: sight.choice.Unknown})
	}
	return strings.Join(s.told, ", ")
}

// meter lets the server know a node since now.
func (s *watchScene) meter(node string, refused *energy.Refusal) {
	s.meters[node] = energy.Candidate{
		Reading: &model.Power{Source: model.SourcePrometheus, Scope: model.ScopePackage, Watts: 100, Time: s.clock.Now(), IntervalSeconds: 15},
		Refused: refused, Since: statusTime(),
	}
}

func TestPowerWatchTells(t *testing.T) {
	s := newWatchScene(t)
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"at first", func() {}, "changed, plan a, plan b"},
		{"nothing new", func() {}, ""},
		{"a is metered", func() { s.meter("a", nil) }, "changed, figures, plan a"},
		{"nothing new of a", func() {}, ""},
		{"a's next figure", func() { s.clock.Step(15 * time.Second); s.meter("a", nil) }, "figures"},
		{"a is refused", func() { s.meter("a", energy.Refuse(energy.ReasonFrozen, "stands")) }, "changed"},
		{"for another reason", func() { s.meter("a", energy.Refuse(energy.ReasonJumped, "jumps")) }, "changed"},
		{"in other words", func() { s.meter("a", energy.Refuse(energy.ReasonJumped, "jumps again")) }, ""},
		{"a's last is old", func() { s.clock.Step(121 * time.Second) }, "changed, figures, plan a"},
		{"b had its time", func() {
			s.meters["b"] = energy.Candidate{Refused: energy.Refuse(energy.ReasonNoSeries, "none"), Since: statusTime().Add(-time.Hour)}
		}, "changed, plan b"},
		{"a's last is too old", func() { s.clock.Step(4 * time.Minute) }, "plan a"},
		{"planned with another word meanwhile", func() { s.watch.Planned(model.Node{Name: "b", Metered: true}) }, "plan b"},
	} {
		step.change()
		if got := s.look(); got != step.want {
			t.Errorf("%s: told %q, want %q", step.name, got, step.want)
		}
	}
	if err := s.client.DeleteAllOf(t.Context(), &v1alpha1.EnergyPolicy{}); err != nil {
		t.Fatal(err)
	}
	if got := s.look(); got != "changed" || len(s.watch.Seen()) != 0 || len(s.watch.planned) != 0 {
		t.Errorf("without policies: told %q, seen %v, planned %v", got, s.watch.Seen(), s.watch.planned)
	}
}

// A plan that cannot be made, as while a policy is not readable, is not asked for
// again and again.
func TestPowerWatchTellsOnce(t *testing.T) {
	s := newWatchScene(t)
	for _, want := range []int{2, 0, 0} {
		told := 0
		s.watch.replan = func(context.Context, string) { told++ }
		if err := s.watch.look(t.Context()); err != nil || told != want {
			t.Errorf("told %d times, want %d: %v", told, want, err)
		}
	}
}

// fixedAnswers is a meter whose servers answered, or not.
type fixedAnswers map[energy.Server]bool

func (f fixedAnswers) Answers() map[energy.Server]bool { return f }

// run lets a minute pass in which node a is metered by the server and node b by
// its agent.
func (s *watchScene) run() {
	s.Helper()
	for i := range 5 {
		if i > 0 {
			s.clock.Step(15 * time.Second)
		}
		s.meter("a", nil)
		s.meters["b"] = energy.Candidate{Refused: energy.Refuse(energy.ReasonNoSeries, "none"), Since: statusTime()}
		counted := float64(15 * i)
		s.store.Put(&model.NodeRates{
			Node: "b", Time: s.clock.Now(),
			Power:  &model.Power{Source: model.SourceRAPL, Scope: model.ScopePackage, Watts: 50, Time: s.clock.Now(), IntervalSeconds: 1},
			Totals: &model.Totals{Since: statusTime(), Seconds: counted, BusyCoreSeconds: counted, AwakeCoreSeconds: counted, Joules: units.Joules(50 * counted), MeteredSeconds: counted},
		})
		s.look()
	}
}

func TestPowerMetrics(t *testing.T) {
	s := newWatchScene(t)
	server := energy.Server{URL: "https://u:p@p", Series: "Auto"}
	another := server
	another.Series = "Kepler"
	answers := fixedAnswers{server: true, another: false}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(newPowerCollector(s.watch, answers)); err != nil {
		t.Fatal(err)
	}
	s.run()
	s.clock.Step(2 * time.Second)
	names := []string{"joulevirt_node_power_watts", "joulevirt_node_energy_joules_total", "joulevirt_node_power_age_seconds", "joulevirt_energy_source_up"}
	check := func(want string) {
		t.Helper()
		got := series(t, registry, names)
		if diff := cmp.Diff(strings.TrimSpace(want), got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	check(`
joulevirt_energy_source_up{server="",type="RAPL"} 1
joulevirt_energy_source_up{server="https://u:xxxxx@p",type="Prometheus"} 0
joulevirt_node_energy_joules_total{node="a",source="Prometheus"} 7500
joulevirt_node_energy_joules_total{node="b",source="RAPL"} 3000
joulevirt_node_power_age_seconds{node="a"} 2
joulevirt_node_power_age_seconds{node="b"} 2
joulevirt_node_power_watts{node="a",source="Prometheus"} 100
joulevirt_node_power_watts{node="b",source="RAPL"} 50`)
	if count := testutil.CollectAndCount(newPowerCollector(s.watch, answers), "joulevirt_power_model_error_ratio"); count != 1 {
		t.Errorf("%d models with an error, want that of node b, whose load is known", count)
	}

	// What is not known any longer has no series, and no zero.
	s.clock.Step(2 * time.Minute)
	s.look()
	check(`
joulevirt_energy_source_up{server="",type="Model"} 0
joulevirt_energy_source_up{server="",type="RAPL"} 0
joulevirt_energy_source_up{server="https://u:xxxxx@p",type="Prometheus"} 0
joulevirt_node_energy_joules_total{node="a",source="Prometheus"} 7500
joulevirt_node_energy_joules_total{node="b",source="RAPL"} 3000`)
	if err := s.client.DeleteAllOf(t.Context(), &v1alpha1.EnergyPolicy{}); err != nil {
		t.Fatal(err)
	}
	s.look()
	clear(answers)
	check("")
}

// series returns the samples of metrics, one a line.
func series(t *testing.T, gatherer prometheus.Gatherer, names []string) string {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, family := range families {
		if !slices.Contains(names, family.GetName()) {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
			}
			value := metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			lines = append(lines, fmt.Sprintf("%s{%s} %v", family.GetName(), strings.Join(labels, ","), value))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestMetricsAreDocumented(t *testing.T) {
	s := newWatchScene(t)
	registry := prometheus.NewPedanticRegistry()
	counts, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	counts.ObservePull(nil, time.Second)
	counts.ObserveRead(time.Second)
	counts.GuardBreaches.WithLabelValues("Steal", "Affinity").Inc()
	for _, c := range []prometheus.Collector{
		newPowerCollector(s.watch, fixedAnswers{}), newReportCollector(s.client, s.store, s.watch.Seen),
		vmPower(t, vmsByNode{"a": {{UID: "1"}: vmFigure(5, 0)}}, runningVMI("shop", "web", map[types.UID]string{"1": "a"})),
		newTrafficCollector(someSights(t.Context())), newDisturbanceCollector(someDisturbances), someSavings(t),
		someStatuses(t), NewProgramCollector("v1", func() (time.Time, bool) { return statusTime(), true }),
	} {
		if err := registry.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	s.run()
	metricstest.Check(t, metrics.Manager(), registry)
}
