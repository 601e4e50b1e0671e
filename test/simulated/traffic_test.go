package simulated

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/whatif"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/sim"
)

// split lets the manager learn a host while its VMs' traffic goes up and down, beginning with
// equal shares, plan its split, and learn on, until the plan stays. What may be skewed to which
// limit is learned, too, so that it takes some rounds. In each the group keeps what it demands.
func split(t *testing.T, s machine, total units.BitsPerSecond) traffic.Allocation {
	t.Helper()
	const learn, most, stays, maxStep = 10 * time.Minute, 60, 3, 0.1
	n := manage(t, s, EnforcePolicy(), nil)
	group := traffic.Group{Total: total, MinActive: 2, MinDomains: 2, SpareLargest: true, MinSaving: 0.01}
	for i := range s.named() {
		group.Members = append(group.Members, traffic.Member{Name: n.VMs[i].Name, Domain: s.name, Share: 1 / float64(len(s.vms))})
	}
	var last traffic.Allocation
	for round, same := 0, 0; round < most && same < stays; round++ {
		for i, vm := range n.VMs {
			wave := sim.Programme{Pattern: sim.Diurnal, Period: time.Duration(7+2*i) * time.Minute, Swing: 0.3}
			rate := units.BitsPerSecond(group.Members[i].Share) * total
			if err := n.Host.SetTraffic(vm.PodUID, sim.Traffic{Programme: wave, FromVM: rate}); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.Pass(learn); err != nil {
			t.Fatal(err)
		}
		limit := n.costs(t, &group)
		last = traffic.Allocate(group)
		goals := make([]float64, len(last.Shares))
		for i, share := range last.Shares {
			goals[i] = share.Share
		}
		same++
		moved, active := 0.0, 0
		for i, share := range traffic.Step(group, goals, maxStep) {
			if before := group.Members[i].Share; before != share {
				same, moved = 0, moved+math.Abs(share-before)/2
			}
			if group.Members[i].Share = share; share > 0 {
				active++
			}
			// Plans in force may be somewhat beyond.
			if rate := units.BitsPerSecond(share) * total; rate > 1.05*limit {
				t.Errorf("simulated %s, round %d: %s has %v bit/s, beyond %v", s.name, round, group.Members[i].Name, rate, limit)
			}
		}
		if moved > maxStep+1e-6 || active < 2 || units.BitsPerSecond(active-1)*limit < 0.95*total {
			t.Errorf("simulated %s, round %d: %v moved, %d active with %v bit/s each", s.name, round, moved, active, limit)
		}
	}
	return last
}

// costs gives the group what was learned of the VM with most packets, for all, and returns what
// one may carry.
func (m *Managed) costs(t *testing.T, group *traffic.Group) (limit units.BitsPerSecond) {
	t.Helper()
	busiest := curve.Observation{}
	for i := range m.Rates().VMs {
		if o, is := curve.OfVM(&m.Rates().VMs[i], 0); is && o.Rate.Packets > busiest.Rate.Packets {
			busiest = o
		}
	}
	known := m.Models.WhatIf(m.Host.Name(), func(host whatif.Host) {
		bitsPerPacket := float64(busiest.Rate.Bits) / float64(busiest.Rate.Packets)
		limit = units.BitsPerSecond(float64(host.Curves.Knee(busiest.Key).Rate) * bitsPerPacket)
		table, err := host.CostTable(busiest.Key, bitsPerPacket, group.Total)
		if err != nil {
			t.Fatal(err)
		}
		group.Curves = []traffic.Curve{table.At}
	})
	if !known {
		t.Fatalf("simulated node %s: the manager learned nothing of it", m.Host.Name())
	}
	for i := range group.Members {
		group.Members[i].Limit = limit
	}
	return limit
}

// TestPlannedTrafficSaves: the manager learns a host whose VMs' traffic is
// balanced, and brings it together step by step. What comes of it draws less than
// balanced traffic, and less than what somebody could have made by hand.
func TestPlannedTrafficSaves(t *testing.T) {
	t.Parallel()
	const vms, total = 5, 900 * mbit
	for _, name := range []string{"KVM", "Xen", "server"} {
		s := study(name, vms, total)
		last := split(t, s, total)
		drawn := func(share func(vm int) float64) measured {
			of := study(name, vms, 0)
			for i := range of.vms {
				of.vms[i].Traffic.FromVM = units.BitsPerSecond(share(i)) * total
			}
			return alone(t, of, nil)
		}
		balanced := alone(t, s, nil)
		byHand := drawn(func(vm int) float64 { return []float64{1. / 3, 1. / 3, 1. / 3, 0, 0}[vm] })
		planned := drawn(func(vm int) float64 { return last.Shares[vm].Share })
		t.Logf("simulated %s: balanced %v\nby hand  %v\nplanned  %v\n%.1f %% less of the packages, and of the platform, which has a meter, %.2f W of %.2f W predicted",
			name, balanced, byHand, planned, 100*planned.saved(balanced), balanced.platform-planned.platform, last.Saved)
		if name == "KVM" {
			t.Logf("figure traffic_sim_saving_pct %.4g %%", 100*planned.saved(balanced))
		}
		if last.Reason != v1alpha1.ReasonSkewed || !(last.Saved > 0) {
			t.Errorf("simulated %s: %s: %s", name, last.Reason, last.Message)
		}
		if !(planned.packages < byHand.packages && byHand.packages < balanced.packages) || planned.served < 0.999 {
			t.Errorf("simulated %s: planned %v, by hand %v, balanced %v", name, planned, byHand, balanced)
		}
	}
}
