package policy

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/trials"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// someSavings shows each metric of savings at least once.
func someSavings(t *testing.T) *savingsCollector {
	t.Helper()
	policy := controllertest.PolicyOf("p", 0, "")
	policy.Spec.Tariff = &v1alpha1.Tariff{Currency: "EUR", PricePerKWh: ptr.To(resource.MustParse("0.25")), GramsCO2PerKWh: ptr.To(resource.MustParse("100"))}
	policy.Status.Proven = []v1alpha1.Saving{{Lever: v1alpha1.LeverBuffering, Watts: v1alpha1.Estimate{Value: "6.15", Low: "4.5", High: "7.8"}}}
	other := controllertest.PolicyOf("q", 0, "") // of which nothing was read
	other.Status.Proven = policy.Status.Proven
	scheme, err := objects.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	memory := provenMemory(t, controllertest.StatusTime())
	sources := &SavingsSources{
		Memory: memory,
		Conditions: func(p *v1alpha1.EnergyPolicy) []metav1.Condition {
			if p.Name != "p" {
				return []metav1.Condition{{Type: v1alpha1.ConditionLedgerStored, Status: metav1.ConditionFalse}}
			}
			return []metav1.Condition{{Type: v1alpha1.ConditionLedgerStored, Status: metav1.ConditionTrue}}
		},
	}
	return NewSavingsCollector(fake.NewClientBuilder().WithScheme(scheme).WithObjects(&policy, &other).Build(), sources).(*savingsCollector)
}

func TestMetricsOfSavings(t *testing.T) {
	collector := someSavings(t)
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(collector); err != nil {
		t.Fatal(err)
	}
	var statement ledger.Statement
	collector.sources.Memory.View("p", func(_ *trials.Trials, l *ledger.Ledger) {
		statement = l.Statement(ledger.AllTime, false)
	})
	if statement.Saved.Value < 5e5 {
		t.Fatalf("net saving %g J: the memory has none", statement.Saved.Value)
	}
	got := controllertest.Series(t, registry, []string{
		"joulevirt_policy_ledger_stored", "joulevirt_lever_standings", "joulevirt_trial_pairs",
		"joulevirt_policy_joules_per_gigabyte", "joulevirt_policy_proven_watts",
		"joulevirt_policy_proven_low_watts", "joulevirt_policy_proven_high_watts",
	})
	want := `joulevirt_lever_standings{lever="Affinity",policy="p",stance="OnTrial"} 1
joulevirt_lever_standings{lever="Buffering",policy="p",stance="Adopted"} 1
joulevirt_policy_joules_per_gigabyte{basis="Measured",policy="p"} 5400
joulevirt_policy_ledger_stored{policy="p"} 1
joulevirt_policy_ledger_stored{policy="q"} 0
joulevirt_policy_proven_high_watts{lever="Buffering",policy="p"} 7.8
joulevirt_policy_proven_low_watts{lever="Buffering",policy="p"} 4.5
joulevirt_policy_proven_watts{lever="Buffering",policy="p"} 6.15
joulevirt_trial_pairs{lever="Affinity",policy="p",state="done"} 0
joulevirt_trial_pairs{lever="Affinity",policy="p",state="planned"} 32`
	if got != want {
		t.Errorf("series\n%s\nwant\n%s", got, want)
	}
	for name, value := range map[string]float64{
		"joulevirt_policy_total_saved_joules": statement.Saved.Value, "joulevirt_policy_total_saved_low_joules": statement.Saved.Low,
		"joulevirt_policy_total_saved_high_joules": statement.Saved.High, "joulevirt_policy_saved_joules": statement.Saved.Value,
		"joulevirt_policy_saved_cost": statement.Saved.Value / 3.6e6 * 0.25, "joulevirt_policy_saved_co2_grams": statement.Saved.Value / 3.6e6 * 100,
	} {
		if got := controllertest.Series(t, registry, []string{name}); !strings.Contains(got, `basis="Measured"`) || !closeTo(t, got, value) {
			t.Errorf("%s, want %g in Measured", got, value)
		}
	}
}

// closeTo reports whether the first of some series has a value.
func closeTo(t *testing.T, series string, want float64) bool {
	t.Helper()
	first, _, _ := strings.Cut(series, "\n")
	got, err := strconv.ParseFloat(first[strings.LastIndex(first, " ")+1:], 64)
	return err == nil && math.Abs(got-want) <= 1e-9*math.Abs(want)
}
