package traffic_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/power/whatif"
	"github.com/joulevirt/joulevirt/internal/units"
)

// TestPlanTime measures one plan for a group of 10,000 VMs, with weights and with equal
// shares.
func TestPlanTime(t *testing.T) {
	const plans = 5
	group, err := largeGroup(rand.New(rand.NewPCG(1, 0)))
	if err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for name, granularity := range map[string]traffic.Granularity{"weights": traffic.Weighted, "equal shares": traffic.Equal} {
		group.Granularity = granularity
		var took []time.Duration
		for range plans {
			start := time.Now()
			planned := traffic.Allocate(group)
			if planned.Reason != "Skewed" {
				t.Fatalf("the plan of %d VMs is %s", len(group.Members), planned.Reason)
			}
			traffic.Step(group, sharesOf(planned), 0.25)
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		ms := took[plans/2].Seconds() * 1e3
		t.Logf("a plan of %s for %d VMs takes %.1f ms", name, len(group.Members), ms)
		worst = max(worst, ms)
	}
	t.Logf("figure traffic_plan_10k_ms %.1f ms", worst)
}

// largeGroup returns 10,000 VMs of five classes on 200 nodes, each of which has
// cost curves of its own.
func largeGroup(r *rand.Rand) (traffic.Group, error) {
	const vms, nodes, each = 10_000, 200, 90 * mbit
	group := traffic.Group{
		Total: vms * each, MinActive: 2, MinDomains: 2, SpareLargest: true, MinSaving: 0.01,
	}
	priors, err := prior.Default()
	if err != nil {
		return group, err
	}
	curves := curve.New(priors.Curve)
	var topology model.Topology
	for cpu := range 16 {
		topology.Cores = append(topology.Cores, model.Core{CPUs: units.NewCPUSet(cpu)})
	}
	host := whatif.Host{Model: power.NewNodeModel(priors.Node(topology)), Curves: curves}
	classes := []int{1, 2, 4, 8, 16}
	for range nodes {
		for _, vcpus := range classes {
			// Nodes differ by the size of their packets.
			table, err := host.CostTable(curve.Key{Class: curve.ClassOf(vcpus, true)}, 4000+8000*r.Float64(), 10*each)
			if err != nil {
				return group, err
			}
			group.Curves = append(group.Curves, table.At)
		}
	}
	for i := range vms {
		node := r.IntN(nodes)
		m := traffic.Member{
			Name: fmt.Sprintf("vm-%05d", i), Domain: fmt.Sprintf("zone-%d", node%3), Share: 1.0 / vms,
			Limit: each * units.BitsPerSecond(2+8*r.Float64()), Curve: node*len(classes) + r.IntN(len(classes)),
		}
		if r.IntN(5) == 0 {
			m.Floor = each / 20
		}
		group.Members = append(group.Members, m)
	}
	return group, nil
}
