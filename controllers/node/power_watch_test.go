package node

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// watchScene has nodes a and b, of a policy that asks one server and then RAPL.
type watchScene struct {
	*testing.T
	watch  *PowerWatch
	meters controllertest.MetersByNode
	store  *rates.Store
	clock  *testingclock.FakeClock
	client client.Client
	// reported is what was said since the last look.
	reported []string
}

func newWatchScene(t *testing.T) *watchScene {
	t.Helper()
	scheme, err := objects.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	priors, err := prior.Default()
	if err != nil {
		t.Fatal(err)
	}
	policy := controllertest.WithPrometheus(controllertest.PolicyOf("p", 0, "x"))
	s := &watchScene{T: t, meters: controllertest.MetersByNode{}, clock: testingclock.NewFakeClock(controllertest.StatusTime())}
	report := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	report.Status.Topology = v1alpha1.Topology{CoreGroups: []v1alpha1.CoreGroup{{Cores: []string{"0", "1"}}}}
	s.client = fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(&policy, report, controllertest.NodeOf("a", "x"), controllertest.NodeOf("b", "x"), controllertest.NodeOf("c", "y")).Build()
	s.store = rates.NewStore(s.clock, time.Minute, time.Minute)
	tell := func(what string) func(context.Context) {
		return func(context.Context) { s.reported = append(s.reported, what) }
	}
	s.watch = NewPowerWatch(PowerWatchOptions{
		Reader: s.client, Powers: &observe.Powers{Rates: s.store, Meters: s.meters, Clock: s.clock},
		Models: learned.New(priors), Clock: s.clock,
		Replan:  func(_ context.Context, node string) { s.reported = append(s.reported, "plan "+node) },
		Changed: tell("changed"), Figures: tell("figures"),
	})
	return s
}

// look returns what the watch says, in order. Planners heed it.
func (s *watchScene) look() string {
	s.Helper()
	s.reported = nil
	if err := s.watch.Look(s.Context()); err != nil {
		s.Fatal(err)
	}
	slices.Sort(s.reported)
	for _, view := range s.watch.Seen() {
		s.watch.Planned(model.Node{Name: view.Node, Metered: view.Choice.Metered, MeterUnknown: view.Choice.Unknown})
	}
	return strings.Join(s.reported, ", ")
}

// meter lets the server know a node since now.
func (s *watchScene) meter(node string, refused *energy.Refusal) {
	s.meters[node] = energy.Candidate{
		Reading: &model.Power{Source: v1alpha1.PowerPrometheus, Scope: v1alpha1.PowerScopePackage, Watts: 100, Time: s.clock.Now(), IntervalSeconds: 15},
		Refused: refused, Since: controllertest.StatusTime(),
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
			s.meters["b"] = energy.Candidate{Refused: energy.Refuse(energy.ReasonNoSeries, "none"), Since: controllertest.StatusTime().Add(-time.Hour)}
		}, "changed, plan b"},
		{"a's last is too old", func() { s.clock.Step(4 * time.Minute) }, "plan a"},
		{"planned with another word meanwhile", func() { s.watch.Planned(model.Node{Name: "b", Metered: true}) }, "plan b"},
	} {
		step.change()
		if got := s.look(); got != step.want {
			t.Errorf("%s: reported %q, want %q", step.name, got, step.want)
		}
	}
	if err := s.client.DeleteAllOf(t.Context(), &v1alpha1.EnergyPolicy{}); err != nil {
		t.Fatal(err)
	}
	if got := s.look(); got != "changed" || len(s.watch.Seen()) != 0 || len(s.watch.planned) != 0 {
		t.Errorf("without policies: reported %q, seen %v, planned %v", got, s.watch.Seen(), s.watch.planned)
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
		s.meters["b"] = energy.Candidate{Refused: energy.Refuse(energy.ReasonNoSeries, "none"), Since: controllertest.StatusTime()}
		counted := float64(15 * i)
		s.store.Put(&model.NodeRates{
			Node: "b", Time: s.clock.Now(),
			Power:  &model.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage, Watts: 50, Time: s.clock.Now(), IntervalSeconds: 1},
			Totals: &model.Totals{Since: controllertest.StatusTime(), Seconds: counted, BusyCoreSeconds: counted, AwakeCoreSeconds: counted, Joules: units.Joules(50 * counted), MeteredSeconds: counted},
		})
		s.look()
	}
}

func TestPowerMetrics(t *testing.T) {
	s := newWatchScene(t)
	server := energy.Server{URL: "https://u:p@p"}
	another := server
	another.Query = "watts"
	answers := fixedAnswers{server: true, another: false}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(NewPowerCollector(s.watch, answers, nil)); err != nil {
		t.Fatal(err)
	}
	s.run()
	s.clock.Step(2 * time.Second)
	names := []string{"joulevirt_node_power_watts", "joulevirt_node_energy_joules_total", "joulevirt_energy_source_up"}
	check := func(want string) {
		t.Helper()
		got := controllertest.Series(t, registry, names)
		if diff := cmp.Diff(strings.TrimSpace(want), got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	check(`
joulevirt_energy_source_up{server="",type="RAPL"} 1
joulevirt_energy_source_up{server="https://u:xxxxx@p",type="Prometheus"} 0
joulevirt_node_energy_joules_total{node="a",source="Prometheus"} 7500
joulevirt_node_energy_joules_total{node="b",source="RAPL"} 3000
joulevirt_node_power_watts{node="a",source="Prometheus"} 100
joulevirt_node_power_watts{node="b",source="RAPL"} 50`)
	if count := testutil.CollectAndCount(NewPowerCollector(s.watch, answers, nil), "joulevirt_power_model_error_ratio"); count != 1 {
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

// The leader counts all nodes from its first look on, also without a policy.
func TestMetricsOfReports(t *testing.T) {
	s := newWatchScene(t)
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(NewReportCollector(s.client, s.store, s.watch.Seen, func() int { return 1 })); err != nil {
		t.Fatal(err)
	}
	check := func(want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for line := range strings.Lines(controllertest.Series(t, registry, []string{"joulevirt_nodes"})) {
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
	want := map[string]string{nodes("reported"): "1", nodes("rates_fresh"): "1", nodes("governed"): "2", nodes("metered"): "2", nodes("planned"): "1"}
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
