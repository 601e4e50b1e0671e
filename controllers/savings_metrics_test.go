package controllers

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
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// someSavings shows each metric of savings at least once.
func someSavings(t *testing.T) *savingsCollector {
	t.Helper()
	policy := policyOf("p", 0, "")
	policy.Spec.Tariff = &v1alpha1.Tariff{Currency: "EUR", PricePerKWh: ptr.To(resource.MustParse("0.25"))}
	policy.Status.Proven = []v1alpha1.Saving{{Lever: v1alpha1.LeverBuffering, Milliwatts: 6150, LowMilliwatts: 4500, HighMilliwatts: 7800}}
	other := policyOf("q", 0, "") // of which nothing was read
	other.Status.Proven = policy.Status.Proven
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	memory := provenMemory(t, statusTime())
	sources := &savingsSources{
		memory: memory,
		conditions: func(p *v1alpha1.EnergyPolicy) []metav1.Condition {
			if p.Name != "p" {
				return []metav1.Condition{{Type: v1alpha1.ConditionLedgerReadable, Status: metav1.ConditionFalse}}
			}
			return []metav1.Condition{
				{Type: v1alpha1.ConditionLedgerReadable, Status: metav1.ConditionTrue}, {Type: v1alpha1.ConditionLedgerStored, Status: metav1.ConditionTrue},
			}
		},
		tariff: func(*v1alpha1.EnergyPolicy) knownTariff {
			return knownTariff{price: ptr.To(0.25), grams: ptr.To(100.0)}
		},
	}
	sources.proven.put("p", []provenOfUnit{
		{"a", model.LeverBuffering, ledger.Range{Value: 6, Low: 4, High: 8}}, {"shop/web", model.LeverTrafficShare, ledger.Range{Value: 5, Low: 3, High: 7}},
	})
	sources.proven.put("q", []provenOfUnit{{"b", model.LeverAffinity, ledger.Range{Value: 1, Low: 1, High: 1}}})
	return newSavingsCollector(fake.NewClientBuilder().WithScheme(scheme).WithObjects(&policy, &other).Build(), sources)
}

func TestMetricsOfSavings(t *testing.T) {
	collector := someSavings(t)
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(collector); err != nil {
		t.Fatal(err)
	}
	var statement ledger.Statement
	var node ledger.Range
	collector.sources.memory.View("p", func(_ *proof.Proofs, l *ledger.Ledger) {
		statement, node = l.Statement(ledger.AllTime, false, 0.95), l.Node("a", model.LeverBuffering, false, 0.95)
	})
	if statement.Net.Value < 5e5 {
		t.Fatalf("net saving %g J: the memory has none", statement.Net.Value)
	}
	got := series(t, registry, []string{
		"joulevirt_policy_ledger_stored", "joulevirt_lever_standings", "joulevirt_trial_pairs", "joulevirt_blocks_not_booked_total",
		"joulevirt_policy_joules_per_gigabyte", "joulevirt_policy_own_joules", "joulevirt_policy_proven_watts",
		"joulevirt_policy_proven_low_watts", "joulevirt_policy_proven_high_watts",
		"joulevirt_node_proven_watts", "joulevirt_node_proven_low_watts", "joulevirt_node_proven_high_watts",
	})
	want := `joulevirt_blocks_not_booked_total{cause="Malformed",policy="p"} 1
joulevirt_lever_standings{lever="Affinity",policy="p",stance="OnTrial"} 1
joulevirt_lever_standings{lever="Buffering",policy="p",stance="Adopted"} 1
joulevirt_node_proven_high_watts{lever="Buffering",node="a",policy="p"} 8
joulevirt_node_proven_low_watts{lever="Buffering",node="a",policy="p"} 4
joulevirt_node_proven_watts{lever="Buffering",node="a",policy="p"} 6
joulevirt_policy_joules_per_gigabyte{basis="Measured",policy="p"} 5400
joulevirt_policy_joules_per_gigabyte{basis="Modelled",policy="p"} 3600
joulevirt_policy_ledger_stored{policy="p"} 1
joulevirt_policy_ledger_stored{policy="q"} 0
joulevirt_policy_own_joules{basis="Measured",policy="p"} 60
joulevirt_policy_own_joules{basis="Modelled",policy="p"} 30
joulevirt_policy_proven_high_watts{lever="Buffering",policy="p"} 7.8
joulevirt_policy_proven_low_watts{lever="Buffering",policy="p"} 4.5
joulevirt_policy_proven_watts{lever="Buffering",policy="p"} 6.15
joulevirt_trial_pairs{lever="Affinity",policy="p",state="done"} 0
joulevirt_trial_pairs{lever="Affinity",policy="p",state="planned"} 64`
	if got != want {
		t.Errorf("series\n%s\nwant\n%s", got, want)
	}
	for name, value := range map[string]float64{
		"joulevirt_policy_net_saved_joules": statement.Net.Value, "joulevirt_policy_net_saved_low_joules": statement.Net.Low,
		"joulevirt_policy_net_saved_high_joules": statement.Net.High, "joulevirt_policy_saved_joules": statement.Gross.Value,
		"joulevirt_policy_saved_cost": statement.Net.Value / 3.6e6 * 0.25, "joulevirt_policy_saved_co2_grams": statement.Net.Value / 3.6e6 * 100,
		"joulevirt_node_saved_joules": node.Value, "joulevirt_node_saved_low_joules": node.Low, "joulevirt_node_saved_high_joules": node.High,
	} {
		if got := series(t, registry, []string{name}); !strings.Contains(got, `basis="Measured"`) || !closeTo(t, got, value) {
			t.Errorf("%s, want %g in Measured", got, value)
		}
	}
}

// closeTo tells whether the first of some series has a value.
func closeTo(t *testing.T, series string, want float64) bool {
	t.Helper()
	first, _, _ := strings.Cut(series, "\n")
	got, err := strconv.ParseFloat(first[strings.LastIndex(first, " ")+1:], 64)
	return err == nil && math.Abs(got-want) <= 1e-9*math.Abs(want)
}
