package controllers

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// savingsCollector shows what policies saved and how their levers stand, from memory, when
// it is asked. A policy that is gone, or whose ledger was not read, has no series.
type savingsCollector struct {
	reader  client.Reader
	sources *savingsSources

	lever, net, proven               boundedDesc
	own, perGB, perGBWithout         *prometheus.Desc
	cost, grams                      *prometheus.Desc
	standings, pairs, refused, store *prometheus.Desc
}

// boundedDesc is an estimate with the ends of its interval.
type boundedDesc struct{ value, low, high *prometheus.Desc }

func describeBounded(name, unit, help string, labels ...string) boundedDesc {
	describe := func(end, help string) *prometheus.Desc {
		return prometheus.NewDesc("joulevirt_policy_"+name+end+"_"+unit, help, labels, nil)
	}
	return boundedDesc{
		value: describe("", help), low: describe("_low", "Low end of the interval of joulevirt_policy_"+name+"_"+unit+"."),
		high: describe("_high", "High end of the interval of joulevirt_policy_"+name+"_"+unit+"."),
	}
}

func (d boundedDesc) all() []*prometheus.Desc { return []*prometheus.Desc{d.value, d.low, d.high} }

func (d boundedDesc) collect(out chan<- prometheus.Metric, r ledger.Range, labels ...string) {
	for i, value := range []float64{r.Value, r.Low, r.High} {
		out <- prometheus.MustNewConstMetric(d.all()[i], prometheus.GaugeValue, value, labels...)
	}
}

func newSavingsCollector(reader client.Reader, sources *savingsSources) *savingsCollector {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("joulevirt_"+name, help, labels, nil)
	}
	return &savingsCollector{
		reader: reader, sources: sources,
		lever: describeBounded("saved", "joules", "Energy that a lever saved since the policy's ledger was begun, by basis: Measured or Modelled. An estimate, which may fall.",
			"policy", "lever", "basis"),
		net: describeBounded("net_saved", "joules", "Energy that all levers saved since the policy's ledger was begun, less what the product itself drew. An estimate, which may fall.",
			"policy", "basis"),
		proven: describeBounded("proven", "watts", "What a lever that was adopted saves of what metered nodes draw, as the policy's status tells it.", "policy", "lever"),
		own:    describe("policy_own_joules", "Energy that the product itself drew since the policy's ledger was begun.", "policy", "basis"),
		perGB: describe("policy_joules_per_gigabyte", "Energy of the policy's nodes for 1e9 bytes of their VMs' traffic, since its ledger was begun.",
			"policy", "basis"),
		perGBWithout: describe("policy_without_joules_per_gigabyte", "What joulevirt_policy_joules_per_gigabyte would have been without the product.", "policy", "basis"),
		cost: describe("policy_saved_cost", "Cost of the net saved energy by the tariff as it is now, in the policy's currency.",
			"policy", "basis", "currency"),
		grams: describe("policy_saved_co2_grams", "CO2 equivalents of the net saved energy by the intensity as it is now.", "policy", "basis"),
		standings: describe("lever_standings", "Classes of nodes, or of groups, by how a lever stands there: Unproven, AwaitingTrial, OnTrial, Adopted, Rejected or Undecided.",
			"policy", "lever", "stance"),
		pairs:   describe("trial_pairs", "Pairs of blocks, on and off, that each unit of the trials under way has done: done, or planned at most.", "policy", "lever", "state"),
		refused: describe("blocks_not_booked_total", "Blocks of time that were not booked, by cause.", "policy", "cause"),
		store:   describe("policy_ledger_stored", "1 while what was booked and decided is read and stored in the policy's EnergyLedger, else 0.", "policy"),
	}
}

// Describe implements prometheus.Collector.
func (c *savingsCollector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range append(slices.Concat(c.lever.all(), c.net.all(), c.proven.all()),
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
		told.standings, told.causes = p.Standings(), l.Causes()
	})
	if !known {
		return
	}
	tariff := c.sources.tariff(policy)
	for i := range told.statements {
		c.collectStatement(out, policy, &told.statements[i], tariff)
	}
	c.collectStandings(out, policy.Name, told.standings)
	for _, saving := range policy.Status.Proven {
		c.proven.collect(out, ledger.Range{
			Value: float64(saving.Milliwatts) / milliwatts, Low: float64(saving.LowMilliwatts) / milliwatts, High: float64(saving.HighMilliwatts) / milliwatts,
		}, policy.Name, string(saving.Lever))
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
	for lever, trial := range trials {
		out <- prometheus.MustNewConstMetric(c.pairs, prometheus.GaugeValue, float64(trial.done), policy, string(lever), "done")
		out <- prometheus.MustNewConstMetric(c.pairs, prometheus.GaugeValue, float64(trial.planned), policy, string(lever), "planned")
	}
}
