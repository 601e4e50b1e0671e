package policy

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/collect"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/trials"
)

// savingsCollector shows what policies saved and how their levers stand, from memory, when
// it is asked. A policy that is gone, or whose ledger was not read, has no series.
type savingsCollector struct {
	collect.Set
	reader  client.Reader
	sources *SavingsSources
}

// NewSavingsCollector returns a collector of what policies saved.
func NewSavingsCollector(reader client.Reader, sources *SavingsSources) prometheus.Collector {
	set := collect.NewSet("policy_joules_per_gigabyte", "policy_without_joules_per_gigabyte", "policy_saved_cost", "policy_saved_co2_grams",
		"lever_standings", "trial_pairs", "policy_ledger_stored",
		"policy_saved_joules", "policy_saved_low_joules", "policy_saved_high_joules",
		"policy_total_saved_joules", "policy_total_saved_low_joules", "policy_total_saved_high_joules",
		"policy_proven_watts", "policy_proven_low_watts", "policy_proven_high_watts", "trial_saved_ratio", "trial_saved_low_ratio", "trial_saved_high_ratio")
	return &savingsCollector{set, reader, sources}
}

// Collect implements prometheus.Collector.
func (c *savingsCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collect.CollectTimeout)
	defer cancel()
	var policies v1alpha1.EnergyPolicyList
	if err := c.reader.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(c.Set["policy_total_saved_joules"], err)
		return
	}
	for i := range policies.Items {
		c.collect(out, &policies.Items[i])
	}
}

func (c *savingsCollector) collect(out chan<- prometheus.Metric, policy *v1alpha1.EnergyPolicy) {
	c.collectStored(out, policy)
	var statements []ledger.Statement
	var standings []standing
	known := c.sources.Memory.View(policy.Name, func(t *trials.Trials, l *ledger.Ledger) {
		statements, standings = statementsOf(l, ledger.AllTime), standingsOf(t, nil)
	})
	if !known {
		return
	}
	for i := range statements {
		c.collectStatement(out, policy, &statements[i])
	}
	c.collectStandings(out, policy.Name, standings)
	for _, saving := range policy.Status.Proven {
		c.Bounds(out, "policy_proven", "watts", statuses.RangeOf(saving.Watts), policy.Name, string(saving.Lever))
	}
}

func (c *savingsCollector) collectStored(out chan<- prometheus.Metric, policy *v1alpha1.EnergyPolicy) {
	if stored := meta.FindStatusCondition(c.sources.Conditions(policy), v1alpha1.ConditionLedgerStored); stored != nil {
		c.Gauge(out, "policy_ledger_stored", collect.OneIf(stored.Status == metav1.ConditionTrue), policy.Name)
	}
}

func (c *savingsCollector) collectStatement(out chan<- prometheus.Metric, policy *v1alpha1.EnergyPolicy, s *ledger.Statement) {
	name, basis := policy.Name, string(basisOf(s.Modelled))
	gauge := func(metric string, value float64, labels ...string) {
		c.Gauge(out, metric, value, append([]string{name, basis}, labels...)...)
	}
	for _, line := range s.Lines {
		c.Bounds(out, "policy_saved", "joules", line.Saved, name, string(line.Lever), basis)
	}
	c.Bounds(out, "policy_total_saved", "joules", s.Saved, name, basis)
	if with, without, ok := s.PerGB(); ok {
		gauge("policy_joules_per_gigabyte", with)
		gauge("policy_without_joules_per_gigabyte", without.Value)
	}
	price, grams := tariffOf(policy.Spec.Tariff)
	if price != nil {
		gauge("policy_saved_cost", s.Saved.KWh().Times(*price).Value, policy.Spec.Tariff.Currency)
	}
	if grams != nil {
		gauge("policy_saved_co2_grams", s.Saved.KWh().Times(*grams).Value)
	}
}

func (c *savingsCollector) collectStandings(out chan<- prometheus.Metric, policy string, standings []standing) {
	type place struct {
		lever  v1alpha1.Lever
		stance model.Stance
	}
	counts := map[place]int{}
	type progress struct{ done, planned int }
	trials := map[v1alpha1.Lever]progress{}
	for i := range standings {
		s := &standings[i]
		counts[place{s.Lever, s.stance}]++
		if s.stance == model.StanceOnTrial {
			trial := trials[s.Lever]
			trials[s.Lever] = progress{trial.done + s.pairs(), trial.planned + s.Planned()}
		}
	}
	for at, count := range counts {
		c.Gauge(out, "lever_standings", float64(count), policy, string(at.lever), string(at.stance))
	}
	c.collectTrials(out, policy, standings)
	for lever, trial := range trials {
		c.Gauge(out, "trial_pairs", float64(trial.done), policy, string(lever), "done")
		c.Gauge(out, "trial_pairs", float64(trial.planned), policy, string(lever), "planned")
	}
}

// collectTrials shows what trials found, of as many as statuses tell of. Of two sets whose
// words are cut to the same, the first is shown.
func (c *savingsCollector) collectTrials(out chan<- prometheus.Metric, policy string, standings []standing) {
	type place struct {
		lever v1alpha1.Lever
		class string
	}
	shown := map[place]bool{}
	for _, s := range orderedStandings(standings) {
		at := place{s.Lever, statuses.Cut(s.Set(), mostTrialClass)}
		if s.effect == nil || shown[at] {
			continue
		}
		shown[at] = true
		saved := s.effect.PercentLess()
		c.Bounds(out, "trial_saved", "ratio", saved.Times(0.01),
			policy, string(at.lever), at.class, string(s.stance))
	}
}
