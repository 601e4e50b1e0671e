// Package simulated runs the product's own code, the agent's and the manager's,
// on simulated nodes: time, scale and energy that no meter of a test machine
// gives. Whatever comes of it is simulated, and has to be called so.
package simulated

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	nodecontroller "github.com/joulevirt/joulevirt/controllers/node"
	"github.com/joulevirt/joulevirt/internal/agent"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/observe/tuning"
	"github.com/joulevirt/joulevirt/internal/observe/vmstate"
	"github.com/joulevirt/joulevirt/internal/plan"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/symptoms"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/agenttest"
	"github.com/joulevirt/joulevirt/test/sim"
)

// pull is the time between two pulls of an agent's rates by the manager.
const pull = 15 * time.Second

// Options of a managed node.
type Options struct {
	Host *sim.Host
	// AgentHost is the host as its agent sees it. Nil: Host.
	AgentHost host.Host
	// VMs that run on the host, with what their profiles say.
	VMs    []model.VM
	Policy model.Policy
	// Models that learn the node. Nil: new ones.
	Models *learned.Models
}

// Managed is a simulated node with its whole agent, and the part of the manager that
// learns the node and plans it. Plans go to the agent as the API holds them.
type Managed struct {
	Options
	// Plan that the node has, as it reads from the API. Nil: none.
	Plan *model.Plan
	// Changes counts plans that did something else than the one before.
	Changes int
	// Steered is true when Second plans the node after each pull.
	Steered bool

	// review is when the next plan looks at all anew.
	review   time.Time
	verdicts *vmstate.Disturbances
	tuning   *tuning.Store
	clock    *clocktesting.FakeClock
	cluster  *agenttest.Loopback
	board    *publish.Board
	stop     func() error
	// seconds that passed.
	seconds int
}

// EnforcePolicy lets some levers act, with the guardrails' defaults and without trials.
func EnforcePolicy(levers ...v1alpha1.Lever) model.Policy {
	const maxUse = 0.85
	return model.Policy{
		Name: "simulated", Mode: v1alpha1.ModeEnforce, Levers: levers,
		AllowModelled: true, MaxCoreUtilization: maxUse, Sharing: v1alpha1.ShareWithinNamespace,
	}
}

// Manage starts the agent of a host. The caller calls Close.
func Manage(o Options) (*Managed, error) {
	priors, err := prior.Default()
	if err != nil {
		return nil, err
	}
	if o.Models == nil {
		o.Models = learned.New(priors)
	}
	if o.AgentHost == nil {
		o.AgentHost = o.Host
	}
	m := &Managed{Options: o, clock: clocktesting.NewFakeClock(o.Host.Now()), board: &publish.Board{}}
	m.verdicts = vmstate.NewDisturbances(m.clock, time.Hour, func() vmstate.Detector { return &symptoms.History{} })
	m.tuning = tuning.NewStore(m.clock, time.Hour)
	m.cluster = agenttest.NewLoopback(m.clock)
	inventory := &discover.Inventory{}
	for i := range o.VMs {
		agenttest.AddVM(inventory, o.VMs[i].PodUID, o.VMs[i].Namespace, o.VMs[i].Name)
	}
	m.cluster.Runs(inventory)
	dir, err := os.MkdirTemp("", "simulated")
	if err != nil {
		return nil, err
	}
	j, err := journal.Open(dir, "simulated")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	a, err := agent.New(agent.Options{
		Node: o.Host.Name(), Interval: time.Second, StaleAfter: time.Hour,
		Host: o.AgentHost, Cluster: m.cluster, Statuses: m.cluster, Board: m.board,
		Prior: priors.Node, Clock: m.clock, Log: logr.Discard(),
	}, j)
	if err != nil {
		return nil, errors.Join(err, j.Close(), os.RemoveAll(dir))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	m.cluster.WaitIdle()
	m.stop = func() error {
		cancel()
		return errors.Join(<-ended, j.Close(), os.RemoveAll(dir))
	}
	return m, nil
}

// Close ends the agent, which reverts what it did.
func (m *Managed) Close() error { return m.stop() }

// Rates of the agent's last round.
func (m *Managed) Rates() *model.NodeRates { return m.board.Latest().Rates }

// Round lets the agent make one, a second at least after the last.
func (m *Managed) Round() {
	m.clock.SetTime(m.Host.Now())
	m.cluster.WaitIdle()
}

// Second lets one pass, at the end of a pull the manager learn, and plan where it steers. Where
// packets are held the agent makes a round in each, as it extends the lease of that. Otherwise it
// makes three a pull, at a fraction of the cost: one that follows a new plan, and the two between
// which are the rates that are pulled.
func (m *Managed) Second() error {
	m.Host.Advance(time.Second)
	m.seconds++
	const last = int(pull / time.Second)
	of := m.seconds % last
	if of > 1 && of < last-1 && !slices.Contains(m.Policy.Levers, v1alpha1.LeverBuffering) {
		return nil
	}
	m.Round()
	if of != 0 {
		return nil
	}
	if err := m.Observe(); err != nil {
		return err
	}
	if m.Steered {
		m.Follow(m.Snapshot())
	}
	return nil
}

// Pass lets time pass by seconds.
func (m *Managed) Pass(d time.Duration) error {
	for range int(d / time.Second) {
		if err := m.Second(); err != nil {
			return err
		}
	}
	return nil
}

// Steer lets time pass in which the manager plans the node after each pull.
func (m *Managed) Steer(d time.Duration) error {
	m.Steered = true
	return m.Pass(d)
}

// Observe lets the manager learn from the agent's last round. That a round failed is an
// error: nothing fails on a simulated node.
func (m *Managed) Observe() error {
	state := m.board.Latest()
	if state.RoundError != nil {
		return fmt.Errorf("simulated node %s: %w", m.Host.Name(), state.RoundError)
	}
	m.verdicts.Record(state.Rates, vmstate.NodeFacts{
		Nested: state.Topology.Nested, MaxSteal: func(pod string) (units.Cores, bool) { vm, is := m.vm(pod); return vm.MaxSteal, is },
	})
	m.tuning.Add(state.Rates, tuning.Circumstances{VM: m.circumstances})
	m.Models.Observe(m.Host.Name(), learned.Sample{
		Processor: learned.Processor{Name: state.Topology.CPUModel, Cores: len(state.Topology.Cores)},
		Topology:  func() (model.Topology, error) { return state.Topology, nil },
		Sample:    stream.Sample{Power: state.Rates.Power, Rates: state.Rates, Received: state.Rates.Time, Now: state.Rates.Time},
	})
	return nil
}

func (m *Managed) vm(podUID string) (model.VM, bool) {
	for i := range m.VMs {
		if m.VMs[i].PodUID == podUID {
			return m.VMs[i], true
		}
	}
	return model.VM{}, false
}

// circumstances are what rates do not report of a VM whose packets may be held.
func (m *Managed) circumstances(podUID string) (tuning.VM, bool) {
	vm, is := m.vm(podUID)
	verdict := m.verdicts.Of(podUID).Verdict
	return tuning.VM{
		LeastRate: buffering.LeastRate(&vm), MaxDrops: vm.MaxDrops, KeepThroughput: vm.KeepThroughput,
		Disturbed: verdict.Disturbs(),
	}, is
}

// Snapshot is what the planner gets of the node.
func (m *Managed) Snapshot() model.Node {
	state := m.board.Latest()
	power := state.Rates.Power
	node := model.Node{
		Name: m.Host.Name(), Policy: m.Policy, Reported: true, Topology: state.Topology,
		Slices: m.lacks("SchedSlice") == "", Buffering: m.lacks("Buffering"),
		Costs: m.Models.Costs(m.Host.Name(), state.Topology),
		Power: power, Metered: power != nil && power.Source.Measures(), MeterUnknown: power == nil,
		Rates: state.Rates, Current: m.Plan, Review: !m.clock.Now().Before(m.review),
	}
	for _, vm := range m.VMs {
		vm.Disturbance = m.verdicts.Of(vm.PodUID)
		vm.Tuning = m.tuning.Of(vm.PodUID)
		node.VMs = append(node.VMs, vm)
	}
	return node
}

// Follow plans the node, and lets the agent follow the plan in its next round.
func (m *Managed) Follow(node model.Node) {
	now := m.clock.Now()
	if node.Review {
		m.review = now.Add(nodecontroller.DefaultReview)
	}
	planned := planner.Plan(node, now)
	if m.Plan == nil && planned.HasActions() || m.Plan != nil && planned.Revision != m.Plan.Revision {
		m.Changes++
	}
	m.cluster.Follow(plan.Encode(&planned))
	m.Plan, _ = plan.Decode(&m.cluster.Latest().Spec)
}

// lacks is why the host lacks a capability. Empty: it has it.
func (m *Managed) lacks(capability string) string {
	facts, err := m.Host.Facts()
	if err != nil {
		return err.Error()
	}
	for _, c := range facts.Capabilities {
		if c.Name == capability && c.Available {
			return ""
		}
		if c.Name == capability {
			return c.Message
		}
	}
	return "the agent does not name it"
}
