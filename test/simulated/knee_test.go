package simulated

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/power/whatif"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// classKnee is what was learned of the knee of one class of a node's VMs, and
// what holds.
type classKnee struct {
	node, class string
	found       curve.Knee
	// lowest and highest of the VMs' true rates at which traffic alone takes 60 %
	// of the first of their threads.
	lowest, highest units.PacketsPerSecond
	// top is the highest rate of a VM of the class now.
	top units.PacketsPerSecond
}

// knees lets the manager learn nodes for some time, and returns what it found.
func knees(t *testing.T, f *Fleet, learn time.Duration) []classKnee {
	t.Helper()
	priors, err := prior.Default()
	if err != nil {
		t.Fatal(err)
	}
	models := learned.New(priors)
	err = f.each(func(n *Node) error {
		for range int(learn / pull) {
			if err := n.pulled(); err != nil {
				return err
			}
			models.Look(n.Host.Name(), n.sight())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []classKnee
	for _, n := range f.Nodes {
		all = append(all, n.knees(t, models)...)
	}
	return all
}

func (n *Node) knees(t *testing.T, models *learned.Models) []classKnee {
	t.Helper()
	var all []classKnee
	at := map[string]int{}
	for i := range n.Rates.VMs {
		vm := &n.Rates.VMs[i]
		o, tells := curve.OfVM(vm, 0)
		truth, err := n.Host.VMTruth(vm.PodUID)
		if err != nil {
			t.Fatal(err)
		}
		if !tells || o.Rate.Packets < 1 {
			continue
		}
		const kneeUse = 0.6
		knee := kneeUse * units.PacketsPerSecond(truth.Knee/o.Rate.Bits) * o.Rate.Packets
		j, known := at[o.Key.Class]
		if !known {
			j = len(all)
			at[o.Key.Class] = j
			all = append(all, classKnee{node: n.Host.Name(), class: o.Key.Class, lowest: knee})
			models.WhatIf(n.Host.Name(), func(host whatif.Host) { all[j].found = host.Curves.Knee(o.Key) })
		}
		all[j].lowest, all[j].highest = min(all[j].lowest, knee), max(all[j].highest, knee)
		all[j].top = max(all[j].top, o.Rate.Packets)
	}
	return all
}

// TestComputingGuestsHaveNoKnee: guests that compute up to a core each, and work
// beside them, on nodes whose VMs' traffic is nowhere near what they could carry.
func TestComputingGuestsHaveNoKnee(t *testing.T) {
	t.Parallel()
	fleet, err := New(Options{Seed: 7, Nodes: 6, VMs: 40})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range knees(t, fleet, 3*time.Hour) {
		if k.top > k.lowest/2 {
			t.Fatalf("%s, %s: up to %.0f packets/s, which is near the true knee of %.0f: nothing is tested", k.node, k.class, k.top, k.lowest)
		}
		if k.found.Known() {
			t.Errorf("simulated: %s, %s: a knee at %.0f packets/s (%s), true ones from %.0f on", k.node, k.class, k.found.Rate, k.found.Cause, k.lowest)
		}
	}
}

// saturating makes a node of VMs with one vCPU, whose traffic swings between
// little and more than they can carry, and whose guests compute.
func saturating(t *testing.T, seed uint64, cores float64) *Fleet {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	o := Options{Seed: seed}
	h, err := sim.NewHost(config(o, 0, random))
	if err != nil {
		t.Fatal(err)
	}
	inventory := &discover.Inventory{Pods: map[string]discover.Pod{}, VMIs: map[string]discover.VMI{}}
	var vms []sim.VM
	for i := range 8 {
		vm := sim.VM{
			Namespace: "simulated", Name: fmt.Sprintf("vm-%d", i), VCPUs: 1, PodUID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i),
			Traffic: sim.Traffic{
				Programme: sim.Programme{Pattern: sim.Diurnal, Period: time.Duration(5+random.IntN(20)) * time.Minute, Swing: 0.9},
				ToVM:      100 * mbit, FromVM: 50 * mbit, PacketBytes: 1000,
			},
			Compute: sim.Compute{Programme: programme(random), Cores: units.Cores(cores)},
		}
		if _, err := h.AddVM(vm); err != nil {
			t.Fatal(err)
		}
		uid := "vmi-" + vm.PodUID
		inventory.Pods[vm.PodUID] = discover.Pod{UID: vm.PodUID, Namespace: vm.Namespace, CreatedBy: uid}
		inventory.VMIs[uid] = discover.VMI{UID: uid, Namespace: vm.Namespace, Name: vm.Name}
		vms = append(vms, vm)
	}
	h.Advance(10 * time.Second)
	for i := range vms {
		truth, err := h.VMTruth(vms[i].PodUID)
		if err != nil {
			t.Fatal(err)
		}
		vms[i].Traffic.ToVM, vms[i].Traffic.FromVM = truth.Knee*0.4, truth.Knee*0.2
		if err := h.SetTraffic(vms[i].PodUID, vms[i].Traffic); err != nil {
			t.Fatal(err)
		}
	}
	priors, err := prior.Default()
	if err != nil {
		t.Fatal(err)
	}
	node, err := newNode(h, vms, inventory, priors.Node)
	if err != nil {
		t.Fatal(err)
	}
	return &Fleet{Nodes: []*Node{node}, workers: 1}
}

// TestSaturatedVMsHaveAKnee: it is found within a quarter of what traffic alone
// makes, whatever the guests compute. Threads that hardly sleep pay for fewer
// wake-ups per packet, so that it is found somewhat late.
func TestSaturatedVMsHaveAKnee(t *testing.T) {
	t.Parallel()
	// The true knees of VMs whose guests compute leave room for that.
	var alone units.PacketsPerSecond
	for _, cores := range []float64{0, 0.3, 0.6} {
		all := knees(t, saturating(t, 3, cores), 2*time.Hour)
		if len(all) != 1 {
			t.Fatalf("%d classes, want one: %+v", len(all), all)
		}
		k := all[0]
		if cores == 0 {
			alone = k.highest
		}
		t.Logf("simulated, %.1f cores of work: a knee at %.0f packets/s (%s), true one %.0f", cores, k.found.Rate, k.found.Cause, alone)
		if ratio := k.found.Rate / alone; !k.found.Known() || ratio < 1/1.25 || ratio > 1.25 {
			t.Errorf("%.1f cores of work: %+v, true knee %.0f packets/s", cores, k.found, alone)
		}
	}
}
