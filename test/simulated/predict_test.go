package simulated

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/stat"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/metering"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/energy/powercap"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/power/whatif"
	"github.com/joulevirt/joulevirt/test/agenttest"
)

// fleet manages many nodes, which nothing acts on.
func (s size) fleet(t *testing.T) (nodes []*Managed) {
	t.Helper()
	for i := range s.nodes {
		n, err := s.machine(i).manage(EnforcePolicy(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
		nodes = append(nodes, n)
	}
	return nodes
}

// TestPredict holds the manager's model to what it is for: on simulated nodes, whose power it does
// not know the form of, it is within a few percent after ten minutes, for time that it did not learn
// from, and far better than to know no load: the node draws what it drew on the mean before. Errors
// are |predicted - true| / true of the packages' mean power over each pull of each node. True is what
// the simulated physics drew, not what the simulated meter says.
func TestPredict(t *testing.T) {
	t.Parallel()
	const learn = 10 * time.Minute
	s := size{seed: 7, nodes: 8, vms: 60}
	if *figures {
		s.nodes, s.vms = 100, 100
	}
	var modelled, constant []float64
	for _, n := range s.fleet(t) {
		began := n.Host.Joules()
		if err := n.Pass(learn); err != nil {
			t.Fatal(err)
		}
		mean := float64(n.Host.Joules()-began) / learn.Seconds()
		for range learn / pull {
			before, totals := n.Host.Joules(), n.Rates().Totals
			n.Host.Advance(pull)
			n.Round() // without the manager, which learns no more
			load, _, ok := power.LoadBetween(totals, n.Rates().Totals)
			var predicted power.Estimate
			known := n.Models.WhatIf(n.Host.Name(), func(host whatif.Host) { predicted = host.Model.Predict(load) })
			if !ok || !known {
				t.Fatalf("simulated node %s: the manager learned nothing of it", n.Host.Name())
			}
			truth := float64(n.Host.Joules()-before) / pull.Seconds()
			modelled = append(modelled, math.Abs(float64(predicted.Watts)-truth)/truth)
			constant = append(constant, math.Abs(mean-truth)/truth)
		}
	}
	quantiles := func(of []float64) (median, p95 float64) {
		slices.Sort(of)
		return stat.Quantile(0.5, stat.Empirical, of, nil), stat.Quantile(0.95, stat.Empirical, of, nil)
	}
	median, p95 := quantiles(modelled)
	constantMedian, constantP95 := quantiles(constant)
	t.Logf("figure model_error_median_pct %.4g %%", 100*median)
	t.Logf("figure model_error_p95_pct %.4g %%", 100*p95)
	t.Logf("simulated: off by %.4f (median) and %.4f (p95), without load by %.4f and %.4f", median, p95, constantMedian, constantP95)
	// The product's goals are 5 and 12 %; this fleet shows 0.5 and 2.3 %.
	if median > 0.01 || p95 > 0.04 {
		t.Errorf("off by %.1f %% (median) and %.1f %% (95th percentile)", 100*median, 100*p95)
	}
	if median > constantMedian/2 || p95 > constantP95/2 {
		t.Errorf("hardly better than to know no load: %.4f and %.4f", constantMedian, constantP95)
	}
}

// BenchmarkSpeed times 1,000 nodes of 100 VMs with what agents observe each second.
func BenchmarkSpeed(b *testing.B) {
	const rounds = 20
	priors, err := prior.Default()
	if err != nil {
		b.Fatal(err)
	}
	s := size{seed: 1, nodes: 1000, vms: 100}
	var nodes []func(rounds int) error
	for i := range s.nodes {
		h, vms, err := s.machine(i).start()
		if err != nil {
			b.Fatal(err)
		}
		inventory := &discover.Inventory{}
		for _, vm := range vms {
			agenttest.AddVM(inventory, vm.PodUID, vm.Namespace, vm.Name)
		}
		topology, err := h.Topology()
		if err != nil {
			b.Fatal(err)
		}
		sampler, account := sample.New(h, h), metering.New(priors.Node, h.Now())
		var previous *sample.Round
		nodes = append(nodes, func(rounds int) error {
			for range rounds {
				h.Advance(time.Second)
				round, err := sampler.Read(inventory)
				if err != nil {
					return err
				}
				counters := powercap.Counters{Time: h.Now()}
				counters.Zones, counters.Err = h.EnergyZones()
				account.Add(sample.Rates(h.Name(), previous, round), counters, topology)
				previous = round
			}
			return nil
		})
	}
	run := func(rounds int) {
		var group errgroup.Group
		group.SetLimit(runtime.GOMAXPROCS(0))
		for _, n := range nodes {
			group.Go(func() error { return n(rounds) })
		}
		if err := group.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	run(3) // until all is warm
	for b.Loop() {
		began := time.Now()
		run(rounds)
		b.Logf("figure sim_speed_x %.4g x", rounds/time.Since(began).Seconds())
	}
}
