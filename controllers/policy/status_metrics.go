package policy

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/collect"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/controllers/trials"
	"github.com/joulevirt/joulevirt/internal/observe/leverstate"
)

// statusCollector shows what statuses of policies, plans and groups say, from the cache, when
// it is asked: nothing is kept that could go stale.
type statusCollector struct {
	collect.Set
	reader client.Reader
	// leads is false for a manager beside the leader, whose series would be there twice.
	leads func() bool
}

// NewStatusCollector returns the collector of what statuses say.
func NewStatusCollector(reader client.Reader, leads func() bool) prometheus.Collector {
	set := collect.NewSet("policy_info", "policy_nodes", "policy_hold_back_ratio", "policy_reached_vms", "policy_unreached_vms", "policy_reached_bytes_ratio",
		"policy_potential_watts", "policy_finding_objects", "policy_finding_watts", "nodeplan_applied", "nodeplan_levers", "placement_moves", "placement_planned_saving_watts", "hosts", "hybrid_workload_vms", "group_info",
		"group_predicted_saving_low_watts", "group_predicted_saving_high_watts", "group_share_ratio")
	return &statusCollector{set, reader, leads}
}

// Collect implements prometheus.Collector.
func (c *statusCollector) Collect(out chan<- prometheus.Metric) {
	if !c.leads() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), collect.CollectTimeout)
	defer cancel()
	for _, part := range []struct {
		name    string
		collect func(context.Context, chan<- prometheus.Metric) error
	}{{"policy_info", c.collectPolicies}, {"nodeplan_applied", c.collectPlans}, {"placement_moves", c.collectMoves}, {"hybrid_workload_vms", c.collectHybridWorkloads}, {"group_info", c.collectGroups}} {
		if err := part.collect(ctx, out); err != nil {
			out <- prometheus.NewInvalidMetric(c.Set[part.name], err)
		}
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
		c.Gauge(out, "policy_info", 1, name, mode)
		c.Gauge(out, "policy_hold_back_ratio", trials.HoldBack(policy), name)
		for state, count := range map[string]int32{
			"selected": status.Nodes.Selected, "governed": status.Nodes.Governed, "reporting": status.Nodes.Reporting, "metered": status.Nodes.Metered,
		} {
			c.Gauge(out, "policy_nodes", float64(count), name, state)
		}
		for _, coverage := range status.Coverage {
			lever := string(coverage.Lever)
			c.Gauge(out, "policy_reached_vms", float64(coverage.ReachedVMs), name, lever)
			if coverage.ReachedBytesPercent != nil {
				c.Gauge(out, "policy_reached_bytes_ratio", float64(*coverage.ReachedBytesPercent)/100, name, lever)
			}
			unreached := map[string]float64{}
			for _, reason := range coverage.Reasons {
				unreached[reason.Reason] += float64(reason.Count)
			}
			for reason, count := range unreached {
				c.Gauge(out, "policy_unreached_vms", count, name, lever, reason)
			}
		}
		for _, f := range status.Findings {
			c.Gauge(out, "policy_finding_objects", float64(f.Count), name, f.Reason, string(f.ChangedBy))
			if f.Watts != nil {
				c.Gauge(out, "policy_finding_watts", float64(*f.Watts), name, f.Reason, string(f.Basis))
			}
		}
		for _, saving := range status.Potential {
			c.Gauge(out, "policy_potential_watts", saving.Watts.Value.Float(), name, string(saving.Lever))
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
			c.Gauge(out, "nodeplan_applied", collect.OneIf(leverstate.IsApplied(plan)), plan.Name)
		}
		type outcome struct {
			lever  v1alpha1.Lever
			state  v1alpha1.LeverState
			reason string
		}
		vms := map[outcome]float64{}
		for _, vm := range plan.Status.VMs {
			vms[outcome{vm.Lever, vm.State, vm.Reason}]++
		}
		for o, count := range vms {
			c.Gauge(out, "nodeplan_levers", count, plan.Name, string(o.lever), string(o.state), o.reason)
		}
	}
	return nil
}

// collectHybridWorkloads shows how many VMs their gateways answer for.
func (c *statusCollector) collectHybridWorkloads(ctx context.Context, out chan<- prometheus.Metric) error {
	var list v1alpha1.HybridWorkloadList
	if err := c.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range list.Items {
		of := &list.Items[i]
		c.Gauge(out, "hybrid_workload_vms", float64(of.Status.VMs), of.Namespace, of.Name, "all")
		c.Gauge(out, "hybrid_workload_vms", float64(of.Status.ReadyGateways), of.Namespace, of.Name, "offloaded")
	}
	return nil
}

// collectMoves shows the moves of a day by their phase, those that are planned, and hosts by state.
func (c *statusCollector) collectMoves(ctx context.Context, out chan<- prometheus.Metric) error {
	var plans v1alpha1.PlacementPlanList
	if err := c.reader.List(ctx, &plans, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range plans.Items {
		plan := &plans.Items[i]
		moves := map[v1alpha1.PlacementPhase]float64{
			"Planned": 0, v1alpha1.PlacementPending: 0, v1alpha1.PlacementRunning: 0, v1alpha1.PlacementSucceeded: 0,
			v1alpha1.PlacementFailed: 0, v1alpha1.PlacementWithdrawn: 0,
		}
		begun := 0
		for _, o := range plan.Status.Moves {
			moves[o.Phase]++
			if o.Revision == plan.Spec.Revision {
				begun++
			}
		}
		moves["Planned"] = float64(max(0, len(plan.Spec.Moves)-begun))
		for phase, count := range moves {
			c.Gauge(out, "placement_moves", count, plan.Name, string(phase))
		}
		hosts := map[v1alpha1.HostState]float64{}
		for _, h := range plan.Status.Hosts {
			hosts[h.State]++
		}
		for state, count := range hosts {
			c.Gauge(out, "hosts", count, plan.Name, string(state))
		}
		if before, after := plan.Spec.WattsBefore, plan.Spec.WattsAfter; before != "" && after != "" {
			c.Gauge(out, "placement_planned_saving_watts", before.Float()-after.Float(), plan.Name)
		}
	}
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
	const mille = 1000
	c.Gauge(out, "group_info", 1, namespace, profile, string(traffic.State), traffic.Reason)
	if traffic.Saving != nil {
		saving := statuses.RangeOf(traffic.Saving.Watts)
		c.Gauge(out, "group_predicted_saving_low_watts", saving.Low, namespace, profile)
		c.Gauge(out, "group_predicted_saving_high_watts", saving.High, namespace, profile)
	}
	for _, share := range traffic.Shares {
		c.Gauge(out, "group_share_ratio", float64(share.PerMille)/mille, namespace, profile, share.Name, "Planned")
		if share.MeasuredPerMille != nil {
			c.Gauge(out, "group_share_ratio", float64(*share.MeasuredPerMille)/mille, namespace, profile, share.Name, "Measured")
		}
	}
}
