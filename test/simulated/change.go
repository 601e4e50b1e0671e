package simulated

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/power/whatif"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Saving is what a change of its VMs saved on one simulated node. It is known,
// because the same node was simulated without the change.
type Saving struct {
	// True is what the simulated physics drew less.
	True units.Watts
	// ByLoad is what the manager's model says, when it is told by how much the
	// node's load fell.
	ByLoad power.Estimate
	// ByTraffic is what the manager foretells when it is told the VMs' traffic
	// only. It knows nothing of other work that changed.
	ByTraffic power.Estimate
}

// Change is done to a VM that runs as specified, the index-th of its host.
type Change func(h *sim.Host, index int, vm sim.VM) error

// Savings lets the manager learn a fleet's nodes for some time, changes all VMs,
// and returns what that saved on each node, and would have been expected to save,
// in as much time after it.
func Savings(o Options, learn time.Duration, change Change) ([]Saving, error) {
	priors, err := prior.Default()
	if err != nil {
		return nil, err
	}
	fleet, err := New(o)
	if err != nil {
		return nil, err
	}
	twins, err := New(o)
	if err != nil {
		return nil, err
	}
	models := learned.New(priors)
	savings := make([]Saving, o.Nodes)
	place := map[*Node]int{}
	for i, n := range fleet.Nodes {
		place[n] = i
	}
	err = fleet.each(func(n *Node) error {
		i := place[n]
		savings[i], err = n.saving(twins.Nodes[i], models, int(learn/pull), change)
		return err
	})
	return savings, err
}

// saving compares a node with its twin, whose VMs are changed.
func (n *Node) saving(twin *Node, models *learned.Models, intervals int, change Change) (Saving, error) {
	for range intervals {
		if err := n.pulled(); err != nil {
			return Saving{}, err
		}
		models.Look(n.Host.Name(), n.sight())
	}
	// Whether somebody looks changes nothing on a simulated host.
	twin.Host.Advance(time.Duration(intervals-1) * pull)
	if err := twin.pulled(); err != nil {
		return Saving{}, err
	}
	for i, vm := range twin.vms {
		if err := change(twin.Host, i, vm); err != nil {
			return Saving{}, err
		}
	}
	before, twinBefore := n.Rates.Totals, twin.Rates.Totals
	joules := twin.Host.Joules() - n.Host.Joules()
	var saving Saving
	for range intervals {
		if err := n.pulled(); err != nil {
			return Saving{}, err
		}
		if err := twin.pulled(); err != nil {
			return Saving{}, err
		}
		estimate, err := byTraffic(models, n, twin)
		if err != nil {
			return Saving{}, err
		}
		// One curve's error is the same in all of them.
		saving.ByTraffic.Watts += estimate.Watts / units.Watts(intervals)
		saving.ByTraffic.StdErr += estimate.StdErr / units.Watts(intervals)
	}
	saving.True = units.Watts(float64(n.Host.Joules()-twin.Host.Joules()+joules) / (float64(intervals) * pull.Seconds()))
	load, _, ok := power.LoadBetween(before, n.Rates.Totals)
	less, _, sane := power.LoadBetween(twinBefore, twin.Rates.Totals)
	known := models.WhatIf(n.Host.Name(), func(host whatif.Host) { saving.ByLoad = host.Model.Change(less, load) })
	if !ok || !sane || !known {
		return Saving{}, fmt.Errorf("simulated node %s: the manager learned nothing of it", n.Host.Name())
	}
	return saving, nil
}

// byTraffic returns what a node's VMs are expected to save when their traffic
// becomes that of the twin's.
func byTraffic(models *learned.Models, n, twin *Node) (power.Estimate, error) {
	var changes []curve.Change
	for i := range n.Rates.VMs {
		from, tells := curve.OfVM(&n.Rates.VMs[i], 0)
		if !tells {
			continue
		}
		changes = append(changes, curve.Change{Key: from.Key, From: from.Rate, To: rateOf(&twin.Rates.VMs[i])})
	}
	var estimate power.Estimate
	var err error
	known := models.WhatIf(n.Host.Name(), func(host whatif.Host) { estimate, err = host.Traffic(changes) })
	if !known {
		err = fmt.Errorf("simulated node %s: the manager learned nothing of it", n.Host.Name())
	}
	return estimate, err
}

func rateOf(vm *model.VMRates) curve.Rate {
	traffic := vm.Traffic()
	return curve.Rate{Packets: traffic.PacketsPerSecond, Bits: traffic.BitsPerSecond}
}
