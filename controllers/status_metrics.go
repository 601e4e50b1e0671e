package controllers

import (
	"cmp"
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// statusCollector shows what statuses of policies, plans and groups say, from the cache, when
// it is asked: nothing is kept that could go stale.
type statusCollector struct {
	reader client.Reader
	// leads is false for a manager beside the leader, whose series would be there twice.
	leads func() bool
	// words are those that labels may have as reasons.
	words reasonWords

	policy, policyNodes, holdBack *prometheus.Desc
	reached, unreached, bytes     *prometheus.Desc
	potential                     boundedDesc
	// potentials are what levers would save on nodes, and ofNode shows them.
	potentials                   *potentialStore
	ofNode                       boundedDesc
	applied, levers              *prometheus.Desc
	group, sigma, talkers        *prometheus.Desc
	savingLow, savingHigh, share *prometheus.Desc
}

func newStatusCollector(reader client.Reader, potentials *potentialStore, leads func() bool, words reasonWords) *statusCollector {
	table := metrics.Manager()
	describe := func(name string) *prometheus.Desc { return table.Desc("joulevirt_"+name, nil) }
	return &statusCollector{
		reader: reader, potentials: potentials, leads: leads, words: words,
		policy: describe("policy_info"), policyNodes: describe("policy_nodes"), holdBack: describe("policy_hold_back_ratio"),
		reached: describe("policy_reached_vms"), unreached: describe("policy_unreached_vms"), bytes: describe("policy_reached_bytes_ratio"),
		potential: describeBounded("policy_potential", "watts"), ofNode: describeBounded("node_potential", "watts"),
		applied: describe("nodeplan_applied"), levers: describe("nodeplan_levers"),
		group: describe("group_info"), sigma: describe("group_planned_sigma_bytes_per_second"), talkers: describe("group_planned_effective_talkers"),
		savingLow: describe("group_predicted_saving_low_watts"), savingHigh: describe("group_predicted_saving_high_watts"), share: describe("group_share_ratio"),
	}
}

// Describe implements prometheus.Collector.
func (c *statusCollector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range append(slices.Concat(c.potential.all(), c.ofNode.all()), c.policy, c.policyNodes, c.holdBack, c.reached, c.unreached, c.bytes,
		c.applied, c.levers, c.group, c.sigma, c.talkers, c.savingLow, c.savingHigh, c.share) {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *statusCollector) Collect(out chan<- prometheus.Metric) {
	if !c.leads() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	for _, part := range []struct {
		desc    *prometheus.Desc
		collect func(context.Context, chan<- prometheus.Metric) error
	}{{c.policy, c.collectPolicies}, {c.applied, c.collectPlans}, {c.ofNode.value, c.collectPotentials}, {c.group, c.collectGroups}} {
		if err := part.collect(ctx, out); err != nil {
			out <- prometheus.NewInvalidMetric(part.desc, err)
		}
	}
}

func gauge(out chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

// wattsOf a saving as the API tells it.
func wattsOf(saving *v1alpha1.Saving) ledger.Range {
	return ledger.Range{
		Value: float64(saving.Milliwatts) / milliwatts, Low: float64(saving.LowMilliwatts) / milliwatts, High: float64(saving.HighMilliwatts) / milliwatts,
	}
}

func (c *statusCollector) collectPolicies(ctx context.Context, out chan<- prometheus.Metric) error {
	var policies v1alpha1.EnergyPolicyList
	if err := c.reader.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range policies.Items {
		policy := &policies.Items[i]
		name, status := policy.Name, &policy.Status
		mode := string(policy.Spec.Mode)
		if policy.Spec.Paused {
			mode = "Paused"
		}
		gauge(out, c.policy, 1, name, mode)
		gauge(out, c.holdBack, proofSettings(policy).HoldBack, name)
		for state, count := range map[string]int32{
			"selected": status.Nodes.Selected, "governed": status.Nodes.Governed, "reporting": status.Nodes.Reporting, "metered": status.Nodes.Metered,
		} {
			gauge(out, c.policyNodes, float64(count), name, state)
		}
		for _, coverage := range status.Coverage {
			lever := string(coverage.Lever)
			gauge(out, c.reached, float64(coverage.ReachedVMs), name, lever)
			if coverage.ReachedBytesPercent != nil {
				gauge(out, c.bytes, float64(*coverage.ReachedBytesPercent)/100, name, lever)
			}
			unreached := map[string]float64{}
			for _, reason := range coverage.Reasons {
				unreached[c.words.fold(reason.Reason)] += float64(reason.Count)
			}
			for reason, count := range unreached {
				gauge(out, c.unreached, count, name, lever, reason)
			}
		}
		for _, saving := range status.Potential {
			c.potential.collect(out, wattsOf(&saving), name, string(saving.Lever))
		}
	}
	return nil
}

func (c *statusCollector) collectPlans(ctx context.Context, out chan<- prometheus.Metric) error {
	var plans v1alpha1.NodePlanList
	if err := c.reader.List(ctx, &plans, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range plans.Items {
		plan := &plans.Items[i]
		if plan.Spec.Apply {
			condition := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionApplied)
			gauge(out, c.applied, oneIf(condition != nil && condition.Status == "True" && plan.Status.ObservedGeneration == plan.Generation), plan.Name)
		}
		for s, count := range c.words.said(plan.Status.VMs) {
			gauge(out, c.levers, count, plan.Name, string(s.lever), string(s.state), s.reason)
		}
	}
	return nil
}

// collectPotentials shows what levers would save on nodes, with the confidence of the policies
// that govern them.
func (c *statusCollector) collectPotentials(ctx context.Context, out chan<- prometheus.Metric) error {
	var policies v1alpha1.EnergyPolicyList
	if err := c.reader.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	var plans v1alpha1.NodePlanList
	if err := c.reader.List(ctx, &plans, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	of := make(map[string]float64, len(policies.Items))
	for i := range policies.Items {
		of[policies.Items[i].Name] = confidenceOf(&policies.Items[i])
	}
	governs := make(map[string]string, len(plans.Items))
	for i := range plans.Items {
		governs[plans.Items[i].Name] = plans.Items[i].Spec.Policy
	}
	c.potentials.collect(out, c.ofNode, func(node string) float64 { return cmp.Or(of[governs[node]], defaultConfidence/100.) })
	return nil
}

func (c *statusCollector) collectGroups(ctx context.Context, out chan<- prometheus.Metric) error {
	var profiles v1alpha1.VMNetworkProfileList
	if err := c.reader.List(ctx, &profiles, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range profiles.Items {
		if traffic := profiles.Items[i].Status.Traffic; traffic != nil && profiles.Items[i].Spec.Group != nil {
			c.collectGroup(out, traffic, profiles.Items[i].Namespace, profiles.Items[i].Name)
		}
	}
	return nil
}

func (c *statusCollector) collectGroup(out chan<- prometheus.Metric, traffic *v1alpha1.TrafficStatus, namespace, profile string) {
	const bitsPerByte, mille = 8, 1000
	gauge(out, c.group, 1, namespace, profile, string(traffic.State), traffic.Reason)
	if planned := traffic.Planned; planned != nil {
		gauge(out, c.sigma, float64(planned.SigmaBitsPerSecond)/bitsPerByte, namespace, profile)
		gauge(out, c.talkers, planned.EffectiveTalkers.AsApproximateFloat64(), namespace, profile)
	}
	if traffic.Saving != nil {
		saving := wattsOf(traffic.Saving)
		gauge(out, c.savingLow, saving.Low, namespace, profile)
		gauge(out, c.savingHigh, saving.High, namespace, profile)
	}
	for _, share := range traffic.Shares {
		gauge(out, c.share, float64(share.PerMille)/mille, namespace, profile, share.Name, "Planned")
		if share.MeasuredPerMille != nil {
			gauge(out, c.share, float64(*share.MeasuredPerMille)/mille, namespace, profile, share.Name, "Measured")
		}
	}
}
