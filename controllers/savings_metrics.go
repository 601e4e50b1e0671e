package controllers

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// savingsCollector shows what policies saved and how their levers stand, from memory, when
// it is asked. A policy that is gone, or whose ledger was not read, has no series.
type savingsCollector struct {
	reader  client.Reader
	sources *savingsSources

	lever, node, net, proven, trials boundedDesc
	provenOfNode                     boundedDesc
	own, perGB, perGBWithout         *prometheus.Desc
	cost, grams                      *prometheus.Desc
	standings, pairs, refused, store *prometheus.Desc
}

// boundedDesc is an estimate with the ends of its interval.
type boundedDesc struct{ value, low, high *prometheus.Desc }

// describeBounded finds descriptions by the name without its unit.
func describeBounded(name, unit string) boundedDesc {
	table := metrics.Manager()
	describe := func(end string) *prometheus.Desc { return table.Desc("joulevirt_"+name+end+"_"+unit, nil) }
	return boundedDesc{value: describe(""), low: describe("_low"), high: describe("_high")}
}

func (d boundedDesc) all() []*prometheus.Desc { return []*prometheus.Desc{d.value, d.low, d.high} }

func (d boundedDesc) collect(out chan<- prometheus.Metric, r ledger.Range, labels ...string) {
	for i, value := range []float64{r.Value, r.Low, r.High} {
		out <- prometheus.MustNewConstMetric(d.all()[i], prometheus.GaugeValue, value, labels...)
	}
}

func newSavingsCollector(reader client.Reader, sources *savingsSources) *savingsCollector {
	table := metrics.Manager()
	describe := func(name string) *prometheus.Desc { return table.Desc("joulevirt_"+name, nil) }
	return &savingsCollector{
		reader: reader, sources: sources,
		lever: describeBounded("policy_saved", "joules"), node: describeBounded("node_saved", "joules"), net: describeBounded("policy_net_saved", "joules"), proven: describeBounded("policy_proven", "watts"),
		provenOfNode: describeBounded("node_proven", "watts"), trials: describeBounded("trial_saved", "ratio"), own: describe("policy_own_joules"),
		perGB: describe("policy_joules_per_gigabyte"), perGBWithout: describe("policy_without_joules_per_gigabyte"),
		cost: describe("policy_saved_cost"), grams: describe("policy_saved_co2_grams"),
		standings: describe("lever_standings"), pairs: describe("trial_pairs"), refused: describe("blocks_not_booked_total"), store: describe("policy_ledger_stored"),
	}
}

// Describe implements prometheus.Collector.
func (c *savingsCollector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range append(slices.Concat(c.lever.all(), c.node.all(), c.net.all(), c.proven.all(), c.provenOfNode.all(), c.trials.all()),
		c.own, c.perGB, c.perGBWithout, c.cost, c.grams, c.standings, c.pairs, c.refused, c.store) {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *savingsCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	var policies v1alpha1.EnergyPolicyList
	if err := c.reader.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(c.net.value, err)
		return
	}
	for i := range policies.Items {
		c.collect(out, &policies.Items[i])
	}
}

// toldOfSavings is what is read of a policy's memory at once.
type toldOfSavings struct {
	statements []ledger.Statement
	units      []ledger.UnitSaving
	standings  []proof.Standing
	causes     map[ledger.Cause]int64
}

func (c *savingsCollector) collect(out chan<- prometheus.Metric, policy *v1alpha1.EnergyPolicy) {
	c.collectStored(out, policy)
	var told toldOfSavings
	confidence := confidenceOf(policy)
	known := c.sources.memory.View(policy.Name, func(p *proof.Proofs, l *ledger.Ledger) {
		for _, modelled := range []bool{false, true} {
			if statement := l.Statement(ledger.AllTime, modelled, confidence); isBooked(&statement) {
				told.statements = append(told.statements, statement)
			}
		}
		told.standings, told.causes, told.units = p.Standings(), l.Causes(), l.Units(confidence)
	})
	if !known {
		return
	}
	tariff := c.sources.tariff(policy)
	for i := range told.statements {
		c.collectStatement(out, policy, &told.statements[i], tariff)
	}
	c.collectStandings(out, policy.Name, told.standings)
	for i := range told.units {
		if of := &told.units[i]; !isGroup(of.Unit) {
			c.node.collect(out, of.Saved, policy.Name, of.Unit, string(of.Lever), string(basisOf(of.Modelled)))
		}
	}
	for _, saving := range policy.Status.Proven {
		c.proven.collect(out, wattsOf(&saving), policy.Name, string(saving.Lever))
	}
	for _, of := range c.sources.proven.ofNodes(policy.Name) {
		c.provenOfNode.collect(out, of.watts, policy.Name, of.unit, string(of.lever))
	}
	for cause, count := range told.causes {
		out <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(count), policy.Name, string(cause))
	}
}

func (c *savingsCollector) collectStored(out chan<- prometheus.Metric, policy *v1alpha1.EnergyPolicy) {
	told, stored := false, 1.0
	for _, condition := range c.sources.conditions(policy) {
		if condition.Type == v1alpha1.ConditionLedgerReadable || condition.Type == v1alpha1.ConditionLedgerStored {
			told = true
			if condition.Status != metav1.ConditionTrue {
				stored = 0
			}
		}
	}
	if told {
		out <- prometheus.MustNewConstMetric(c.store, prometheus.GaugeValue, stored, policy.Name)
	}
}

func (c *savingsCollector) collectStatement(out chan<- prometheus.Metric, policy *v1alpha1.EnergyPolicy, s *ledger.Statement, tariff knownTariff) {
	name, basis := policy.Name, string(basisOf(s.Modelled))
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, append([]string{name, basis}, labels...)...)
	}
	for _, line := range s.Lines {
		c.lever.collect(out, line.Saved, name, string(line.Lever), basis)
	}
	c.net.collect(out, s.Net, name, basis)
	gauge(c.own, s.Own.Value)
	if with, without, ok := s.PerGB(); ok {
		gauge(c.perGB, with)
		gauge(c.perGBWithout, without.Value)
	}
	if tariff.price != nil {
		gauge(c.cost, ledger.Tariff{PerKWh: *tariff.price}.Cost(s.Net).Value, policy.Spec.Tariff.Currency)
	}
	if tariff.grams != nil {
		gauge(c.grams, ledger.Tariff{GramsPerKWh: *tariff.grams}.Grams(s.Net).Value)
	}
}

func (c *savingsCollector) collectStandings(out chan<- prometheus.Metric, policy string, standings []proof.Standing) {
	type standing struct {
		lever  model.Lever
		stance model.Stance
	}
	counts := map[standing]int{}
	type progress struct{ done, planned int }
	trials := map[model.Lever]progress{}
	for i := range standings {
		s := &standings[i]
		counts[standing{s.Lever, s.Stance}]++
		if s.Stance == model.StanceOnTrial {
			trial := trials[s.Lever]
			trials[s.Lever] = progress{trial.done + s.Pairs, trial.planned + s.Planned}
		}
	}
	for at, count := range counts {
		out <- prometheus.MustNewConstMetric(c.standings, prometheus.GaugeValue, float64(count), policy, string(at.lever), string(at.stance))
	}
	c.collectTrials(out, policy, standings)
	for lever, trial := range trials {
		out <- prometheus.MustNewConstMetric(c.pairs, prometheus.GaugeValue, float64(trial.done), policy, string(lever), "done")
		out <- prometheus.MustNewConstMetric(c.pairs, prometheus.GaugeValue, float64(trial.planned), policy, string(lever), "planned")
	}
}

// collectTrials shows what trials found, of as many as statuses tell of. Of two classes whose
// words are cut to the same, the first is shown.
func (c *savingsCollector) collectTrials(out chan<- prometheus.Metric, policy string, standings []proof.Standing) {
	type place struct {
		lever model.Lever
		class string
	}
	shown := map[place]bool{}
	for _, s := range orderedStandings(standings) {
		at := place{s.Lever, cut(classWords(&s), mostTrialClass)}
		if !s.Known || shown[at] {
			continue
		}
		shown[at] = true
		saved := savedPercent(&s)
		c.trials.collect(out, ledger.Range{Value: saved.Value / 100, Low: saved.Low / 100, High: saved.High / 100},
			policy, string(at.lever), at.class, string(s.Stance))
	}
}
