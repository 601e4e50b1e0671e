package simulated

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/power/whatif"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Round is one plan of the loop, and what was known when it was made.
type Round struct {
	// Limit of the VMs, which are all of one class.
	Limit units.BitsPerSecond
	Plan  traffic.Allocation
}

// Loop lets the manager learn the host while its VMs' traffic goes up and down,
// beginning with equal shares, plan its split, and learn on, until the plan stays.
// What may be skewed to which limit is learned, too, so that it takes some rounds.
func (s Senders) Loop(group traffic.Group, learn time.Duration) ([]Round, error) {
	priors, err := prior.Default()
	if err != nil {
		return nil, err
	}
	h, vms, err := s.host()
	if err != nil {
		return nil, err
	}
	inventory := &discover.Inventory{Pods: map[string]discover.Pod{}, VMIs: map[string]discover.VMI{}}
	group.Total, group.Members = s.Total, nil
	for _, vm := range vms {
		uid := "vmi-" + vm.PodUID
		inventory.Pods[vm.PodUID] = discover.Pod{UID: vm.PodUID, Namespace: vm.Namespace, CreatedBy: uid}
		inventory.VMIs[uid] = discover.VMI{UID: uid, Namespace: vm.Namespace, Name: vm.Name}
		group.Members = append(group.Members, traffic.Member{Name: vm.Name, Domain: h.Name(), Share: 1 / float64(len(vms))})
	}
	n, err := newNode(h, vms, inventory, priors.Node)
	if err != nil {
		return nil, err
	}
	models := learned.New(priors)
	var rounds []Round
	const most, stays = 60, 3
	for same := 0; len(rounds) < most && same < stays; {
		if err := n.follow(models, group, learn); err != nil {
			return nil, err
		}
		round, err := n.plan(models, &group)
		if err != nil {
			return nil, err
		}
		same++
		for i, share := range round.Plan.Shares {
			if group.Members[i].Share != share.Share {
				same = 0
			}
			group.Members[i].Share = share.Share
		}
		rounds = append(rounds, round)
	}
	return rounds, nil
}

// follow lets the VMs send their shares for some time, more and less by turns, and
// the manager learn from it.
func (n *Node) follow(models *learned.Models, group traffic.Group, learn time.Duration) error {
	for i, vm := range n.vms {
		wave := sim.Programme{Pattern: sim.Diurnal, Period: time.Duration(7+2*i) * time.Minute, Swing: 0.3}
		rate := units.BitsPerSecond(group.Members[i].Share) * group.Total
		if err := n.Host.SetTraffic(vm.PodUID, sim.Traffic{Programme: wave, FromVM: rate}); err != nil {
			return err
		}
	}
	for range int(learn / pull) {
		if err := n.rounds(int(pull / time.Second)); err != nil {
			return err
		}
		models.Look(n.Host.Name(), n.sight())
	}
	return nil
}

// Outcome is what came of a loop, by the simulated truth.
type Outcome struct {
	Rounds            []Round
	Balanced, Planned Drawn
}

// Last is the plan that stayed.
func (o Outcome) Last() traffic.Allocation { return o.Rounds[len(o.Rounds)-1].Plan }

// Plan lets the manager learn and plan, as Loop does, with the defaults of a
// profile, and compares what came of it with balanced traffic.
func (s Senders) Plan() (Outcome, error) {
	const learn = 10 * time.Minute
	rounds, err := s.Loop(traffic.Group{MinActive: 2, MinDomains: 2, SpareLargest: true, MaxStep: 0.1, MinSaving: 0.01}, learn)
	if err != nil {
		return Outcome{}, err
	}
	o := Outcome{Rounds: rounds}
	balanced, planned := make([]units.BitsPerSecond, s.VMs), make([]units.BitsPerSecond, s.VMs)
	for i, share := range o.Last().Shares {
		balanced[i], planned[i] = s.Total/units.BitsPerSecond(s.VMs), s.Total*units.BitsPerSecond(share.Share)
	}
	if o.Balanced, err = s.Draw(balanced); err != nil {
		return Outcome{}, err
	}
	o.Planned, err = s.Draw(planned)
	return o, err
}

// plan splits the group's traffic by what was learned.
func (n *Node) plan(models *learned.Models, group *traffic.Group) (Round, error) {
	var round Round
	busiest := curve.Observation{}
	for i := range n.Rates.VMs {
		vm := &n.Rates.VMs[i]
		group.Members[i].Rate = vm.Traffic().BitsPerSecond
		if o, tells := curve.OfVM(vm, 0); tells && o.Rate.Packets > busiest.Rate.Packets {
			busiest = o
		}
	}
	var err error
	known := models.WhatIf(n.Host.Name(), func(host whatif.Host) {
		bitsPerPacket := float64(busiest.Rate.Bits) / float64(busiest.Rate.Packets)
		round.Limit = units.BitsPerSecond(float64(host.Curves.Knee(busiest.Key).Rate) * bitsPerPacket)
		var table whatif.CostTable
		table, err = host.CostTable(busiest.Key, bitsPerPacket, group.Total)
		group.Curves = []traffic.Curve{table.At}
	})
	if !known {
		err = fmt.Errorf("simulated node %s: the manager learned nothing of it", n.Host.Name())
	}
	if err != nil {
		return Round{}, err
	}
	for i := range group.Members {
		group.Members[i].Limit = round.Limit
	}
	round.Plan, err = traffic.Allocate(*group)
	return round, err
}
