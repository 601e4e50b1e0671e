// Package simulated runs the product's own code, the agent's and the manager's,
// on simulated nodes: time, scale and energy that no meter of a test machine
// gives. Whatever comes of it is simulated, and has to be called so.
package simulated

import (
	"errors"
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/metering"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/energy/powercap"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/sim"
)

// Node is a simulated host with what its agent does each round.
type Node struct {
	Host *sim.Host
	// Rates are those of the last round. Nil before.
	Rates *model.NodeRates

	topology  model.Topology
	vms       []sim.VM
	sampler   *sample.Sampler
	inventory *discover.Inventory
	previous  *sample.Round
	account   *metering.Account
}

// newNode returns the node of a host on which all VMs run already.
func newNode(h *sim.Host, vms []sim.VM, inventory *discover.Inventory, prior func(model.Topology) power.NodePrior) (*Node, error) {
	topology, err := h.Topology()
	if err != nil {
		return nil, err
	}
	return &Node{
		Host: h, topology: topology, vms: vms, sampler: sample.New(h, h), inventory: inventory,
		account: metering.New(prior, h.Now()),
	}, nil
}

// Round lets a second pass and does what an agent does in each.
func (n *Node) Round() error {
	n.Host.Advance(time.Second)
	round, err := n.sampler.Read(n.inventory)
	if err != nil {
		return fmt.Errorf("simulated node %s: %w", n.Host.Name(), err)
	}
	counters := powercap.Counters{Time: n.Host.Now()}
	counters.Zones, counters.Err = n.Host.EnergyZones()
	n.Rates = sample.Rates(n.Host.Name(), n.previous, round)
	n.account.Add(n.Rates, counters, n.topology)
	n.previous = round
	return nil
}

// pulled lets the time until a pull pass, in which the agent makes two rounds instead of
// one each second: the rates that are pulled are those between the two, and whether somebody
// looks changes nothing on a simulated host.
func (n *Node) pulled() error {
	n.Host.Advance(pull - 2*time.Second)
	return errors.Join(n.Round(), n.Round())
}

// rounds does so many.
func (n *Node) rounds(count int) error {
	for range count {
		if err := n.Round(); err != nil {
			return err
		}
	}
	return nil
}
