package loop

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/blocks"
	"github.com/joulevirt/joulevirt/internal/observe/disturbance"
	"github.com/joulevirt/joulevirt/internal/observe/guards"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/observe/tuning"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/interference"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/power/whatif"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// node is a simulated node with its agent, and what the manager knows of it.
type node struct {
	spec  spec
	twins *twins
	world *world
	agent *agentOf
	dir   string

	policy model.Policy
	models *learned.Models
	// shared are the schedules that switch the node's group.
	shared   []model.Schedule
	verdicts *disturbance.Store
	tuning   *tuning.Store
	guarded  guarded
	// plan that the node has, planned when, and from when on all is looked at anew.
	plan            *model.Plan
	planned, review time.Time
	potentials      []model.Potential

	record
}

// policy of the loop: what saves has to be proved.
func policyOf() model.Policy {
	const maxUse = 0.85
	return model.Policy{
		Name: "simulated", Mode: model.ModeEnforce, Levers: append(leversOfNodes(), model.LeverTrafficShare),
		MaxCoreUtilization: maxUse, Sharing: model.ShareWithinNamespace,
	}
}

// leversOfNodes act on one node each.
func leversOfNodes() []model.Lever { return []model.Lever{model.LeverAffinity, model.LeverBuffering} }

// newModels that know nothing but priors.
func newModels() (*learned.Models, error) {
	priors, err := prior.Default()
	if err != nil {
		return nil, err
	}
	return learned.New(priors), nil
}

// newNode returns a node from a time on. What happened to it before is left out, but the world
// is as far as if it had. every is true when it has all twins.
func newNode(s spec, from time.Time, every bool) (*node, error) {
	n := &node{spec: s, policy: policyOf(), record: newRecord(s.name, from)}
	if s.Levers != nil {
		n.policy.Levers = s.Levers
	}
	var err error
	if n.twins, err = newTwins(&n.spec, from, every); err != nil {
		return nil, err
	}
	n.world = newWorld(&n.spec)
	n.world.begin()
	for before := start(); before.Before(from); before = before.Add(s.Tick) {
		if _, err := n.world.next(before, nil); err != nil {
			return nil, err
		}
	}
	if err := n.world.run(n.twins.each); err != nil {
		return nil, err
	}
	n.truth.add(n.now, n.twins.joules())
	return n, nil
}

// wake starts the node's agent, of which models learn. The caller calls close.
func (n *node) wake(models *learned.Models) error {
	priors, err := prior.Default()
	if err != nil {
		return err
	}
	if n.dir, err = os.MkdirTemp("", "loop"); err != nil {
		return err
	}
	if n.agent, err = startAgent(n.twins, &n.spec, n.dir, priors.Node); err != nil {
		return errors.Join(err, os.RemoveAll(n.dir))
	}
	n.agent.runs(n.world.slots)
	n.models = models
	n.verdicts = disturbance.NewStore(n.agent.clock, time.Hour, func() disturbance.Detector { return &interference.History{} })
	n.tuning = tuning.NewStore(n.agent.clock, time.Hour)
	if !n.spec.Unguarded {
		n.guarded.store = guards.NewStore(n.agent.clock, time.Hour)
	}
	return nil
}

func (n *node) close() error {
	if n.agent == nil {
		return nil
	}
	return errors.Join(n.agent.stop(), os.RemoveAll(n.dir))
}

// pass lets a tick pass. The agent makes a round at its end and at each time at which a
// schedule wants one, and the manager hears of each.
func (n *node) pass() error {
	moved, err := n.world.next(n.now, n.twins.each)
	if err != nil {
		return err
	}
	if moved {
		n.agent.runs(n.world.slots)
	}
	n.twins.SetFault(n.world.fault)
	end := n.now.Add(n.spec.Tick)
	for n.now.Before(end) {
		next := n.boundary(slices.Concat(n.shared, n.schedules()), end)
		if err := n.twins.advance(next.Sub(n.now)); err != nil {
			return err
		}
		n.now = next
		n.truth.add(n.now, n.twins.joules())
		if err := n.truth.wait(n.now, n.world.slots, n.twins); err != nil {
			return err
		}
		n.agent.round(next)
		if err := n.hear(); err != nil {
			return err
		}
	}
	return n.truth.serve(n.now, n.world.slots, n.twins)
}

// hear lets the manager learn from the agent's last round.
func (n *node) hear() error {
	state := n.agent.board.Latest()
	if state.RoundError != nil && n.world.fault == sim.NoFault {
		return fmt.Errorf("simulated node %s: %w", n.spec.name, state.RoundError)
	}
	rates := state.Rates
	n.verdicts.Add(rates, disturbance.Circumstances{
		MaxSteal: func(pod string) (units.Cores, bool) { vm, is := n.guest(pod); return vm.MaxSteal, is },
	})
	n.tuning.Add(rates, tuning.Circumstances{VM: n.circumstances})
	n.models.Look(n.spec.name, learned.Sight{
		Processor: learned.Processor{Name: state.Topology.CPUModel, Cores: len(state.Topology.Cores)},
		Topology:  func() (model.Topology, error) { return state.Topology, nil },
		Power:     rates.Power, Rates: rates, Received: rates.Time,
	})
	n.guard(rates)
	sight := blocks.Sight{Rates: rates, Received: rates.Time, Power: rates.Power, Schedules: n.schedules()}
	if n.plan != nil {
		sight.Withdrawn = n.plan.Withdrawn
	}
	n.see(sight, n.shared)
	return nil
}

// schedules of the node's plan.
func (n *node) schedules() []model.Schedule {
	if n.plan == nil {
		return nil
	}
	return n.plan.Schedules
}

func (n *node) guest(pod string) (model.VM, bool) {
	for i := range n.world.slots {
		if s := &n.world.slots[i]; s.vm.PodUID == pod && !s.absent {
			return s.profile, true
		}
	}
	return model.VM{}, false
}

// circumstances are what rates do not tell of a VM whose packets may be held.
func (n *node) circumstances(pod string) (tuning.VM, bool) {
	vm, is := n.guest(pod)
	verdict := n.verdicts.Of(pod).Verdict
	return tuning.VM{
		Profile: profileOf(&vm), OnPackets: vm.OnPackets, MaxDrops: vm.MaxDrops, KeepThroughput: vm.KeepThroughput,
		Disturbed: verdict == model.InterferenceCoRunner || verdict == model.InterferenceSelf,
	}, is
}

func profileOf(vm *model.VM) types.NamespacedName {
	return types.NamespacedName{Namespace: vm.Namespace, Name: vm.Profile}
}

// snapshot is what the planner gets of the node.
func (n *node) snapshot() model.Node {
	state := n.agent.board.Latest()
	power := state.Rates.Power
	is := model.Node{
		Name: n.spec.name, Policy: n.policy, Reported: true, Topology: state.Topology, Slices: true,
		Costs: n.models.Costs(n.spec.name, state.Topology),
		Power: power, Metered: power != nil && power.Source.Measures(), MeterUnknown: power == nil,
		Rates: state.Rates, Current: n.plan,
		Review: !n.now.Before(n.review), Withdrawn: n.withdrawn(),
	}
	for i := range n.world.slots {
		s := &n.world.slots[i]
		if s.absent {
			continue
		}
		vm := s.profile
		vm.Disturbance = n.verdicts.Of(vm.PodUID)
		vm.Tuning = n.tuning.Of(vm.PodUID, profileOf(&vm))
		is.VMs = append(is.VMs, vm)
	}
	return is
}

// replanning is how often a node is planned whose proofs stay, and reviewing how often all
// is looked at anew.
const replanning, reviewing = 5 * time.Minute, 15 * time.Minute

// replan makes the node's plan, when it is due, a lever was withdrawn, or it was not for long.
func (n *node) replan(stand []model.Proof, awaited, due bool) {
	if !due && !n.guarded.news && n.now.Sub(n.planned) < replanning {
		return
	}
	is := n.snapshot()
	is.Proofs, is.ProofsAwaited = stand, awaited
	if is.Review && slices.ContainsFunc(leversOfNodes(), n.policy.Allows) {
		// What levers would save is no other in between, and as much work as the plan.
		n.potentials = planner.Potential(is, n.now)
	}
	n.plans(is)
}

// plainly has levers act by the plan alone, as if nothing had to be proved.
func (n *node) plainly() {
	if n.now.Sub(n.planned) >= replanning {
		n.plans(n.snapshot())
	}
}

// plans the node anew.
func (n *node) plans(is model.Node) {
	n.planned, n.guarded.news = n.now, false
	if is.Review {
		n.review = n.now.Add(reviewing)
	}
	plan := planner.Plan(is, n.now)
	n.agent.Follow(observe.NodePlanSpec(plan))
	n.plan = observe.Plan(n.agent.Latest())
}

// class implements member.
func (n *node) class() verify.Class { return classOf(&n.spec) }

// busyCore implements member.
func (n *node) busyCore() (core power.Estimate) {
	n.models.Basis(n.spec.name, func(host whatif.Host) {
		core = host.Model.Change(power.Load{}, power.Load{BusyCores: 1})
	})
	return core
}

// unit implements member.
func (n *node) unit() proof.Unit {
	u := proof.Unit{Name: n.spec.name, Nodes: []string{n.spec.name}, Class: n.class(), Has: n.schedules()}
	power := n.agent.board.Latest().Rates.Power
	metered := power != nil && power.Source.Measures()
	u.MeterLost = !metered
	if u.Ready = metered && n.now.Sub(start()) >= warming; metered {
		u.Meter = verify.Meter{Interval: pull, Freshness: pull}
	}
	for _, p := range n.potentials {
		if p.VMs > 0 && n.policy.Allows(p.Lever) {
			u.Candidates = append(u.Candidates, proof.Candidate{Lever: p.Lever, Watts: p.Watts})
		}
	}
	return u
}
