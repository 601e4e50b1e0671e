package loop

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/blocks"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/observe/proofs"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
	"github.com/joulevirt/joulevirt/test/simulated"
)

// node is a simulated node with its agent, and what the manager knows of it.
type node struct {
	*simulated.Managed
	spec  spec
	twins *twins
	world *world

	// planned is when the node was planned last.
	planned    time.Time
	potentials []model.Potential

	name string
	now  time.Time
	// blocks are measured once more, for truth to be known of each: closed are those that
	// ended.
	blocks *blocks.Store
	closed []blocks.Block
	// sights that the manager's memory did not get yet.
	sights []blocks.Sight
	truth  truth
}

// policyOf is the policy of the loop: what saves has to be proved.
func policyOf() model.Policy {
	policy := simulated.EnforcePolicy(levers()...)
	policy.AllowModelled = false
	return policy
}

// newModels that know nothing but priors.
func newModels() (*learned.Models, error) {
	priors, err := prior.Default()
	if err != nil {
		return nil, err
	}
	return learned.New(priors), nil
}

// newNode returns a node with its VMs and its agent, of which models learn. The caller calls
// close.
func newNode(s spec, models *learned.Models) (*node, error) {
	n := &node{spec: s, name: s.name, now: start(), blocks: blocks.NewStore()}
	var err error
	if n.twins, err = newTwins(&n.spec); err != nil {
		return nil, err
	}
	if n.world, err = newWorld(&n.spec, n.twins.of); err != nil {
		return nil, err
	}
	n.truth.add(n.now, n.twins.joules())
	o := simulated.Options{Host: n.twins.Host, AgentHost: n.twins, Policy: policyOf(), Models: models}
	for i := range n.world.guests {
		o.VMs = append(o.VMs, n.world.guests[i].profile)
	}
	n.Managed, err = simulated.Manage(o)
	return n, err
}

// pass lets a tick pass. The agent makes a round at its end and at each time at which a
// schedule wants one, and the manager learns from each.
func (n *node) pass() error {
	if err := n.world.next(n.now, n.twins.of); err != nil {
		return err
	}
	end := n.now.Add(n.spec.Tick)
	for n.now.Before(end) {
		next := boundary(n.schedules(), n.now, end)
		if err := n.twins.advance(next.Sub(n.now)); err != nil {
			return err
		}
		n.now = next
		n.truth.add(n.now, n.twins.joules())
		n.Round()
		if err := n.Observe(); err != nil {
			return err
		}
		rates := n.Rates()
		n.sights = append(n.sights, blocks.Sight{Sample: stream.Sample{Rates: rates, Received: rates.Time, Power: rates.Power}, Schedules: n.schedules()})
	}
	return n.truth.serve(n.now, n.world.guests, n.twins)
}

// schedules of the node's plan.
func (n *node) schedules() []model.Schedule {
	if n.Plan == nil {
		return nil
	}
	return n.Plan.Schedules
}

// replanning is how often a node is planned whose proofs stay.
const replanning = 5 * time.Minute

// replan makes the node's plan, when it is due, or it was not for long.
func (n *node) replan(stand []model.Proof, awaited, due bool) {
	if !due && n.now.Sub(n.planned) < replanning {
		return
	}
	is := n.Snapshot()
	is.Proofs, is.ProofsAwaited = stand, awaited
	if is.Review {
		// What levers would save is no other in between, and as much work as the plan.
		n.potentials = planner.Potential(is, n.now)
	}
	n.planned = n.now
	n.Follow(is)
}

// class of the node. All nodes run the same mix of VMs, and the kernel is none.
func (n *node) class() verify.Class {
	return verify.Class{CPUModel: "simulated " + n.spec.kind.model, Kernel: "simulated", Idle: "C6", Workload: proofs.WorkloadMixed}
}

// unit is the node as experiments see it.
func (n *node) unit() proof.Unit {
	u := proof.Unit{Name: n.spec.name, Nodes: []string{n.spec.name}, Class: n.class(), Has: n.schedules()}
	power := n.Rates().Power
	metered := power != nil && power.Source.Measures()
	u.MeterLost = !metered
	if u.Ready = metered && n.now.Sub(start()) >= warming; metered {
		u.Meter = verify.Meter{Interval: pull, Freshness: pull}
	}
	for _, p := range n.potentials {
		if p.VMs > 0 && slices.Contains(levers(), p.Lever) {
			u.Candidates = append(u.Candidates, proof.Candidate{Lever: p.Lever, Watts: p.Watts})
		}
	}
	return u
}

// boundary is when a schedule switches next, or what it washes out ends, at most the given
// time.
func boundary(schedules []model.Schedule, now, end time.Time) time.Time {
	for i := range schedules {
		s := &schedules[i]
		next, is := s.Next(now)
		if !is {
			continue
		}
		// Never earlier than the next whole second: rounds are a second apart at least.
		for _, at := range []time.Time{next, next.Add(s.WashOut - s.Block)} {
			if at = at.Add(time.Second - 1).Truncate(time.Second); at.After(now) && at.Before(end) {
				end = at
			}
		}
	}
	return end
}
