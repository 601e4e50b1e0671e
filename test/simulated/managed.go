package simulated

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/controllers"
	"github.com/joulevirt/joulevirt/internal/agent"
	"github.com/joulevirt/joulevirt/internal/agent/agenttest"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/disturbance"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/observe/tuning"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/interference"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Managed is a simulated node with its whole agent, and the part of the manager that
// learns the node and plans it. Plans go to the agent as the API holds them.
type Managed struct {
	Host *sim.Host
	// Plan that the node has, as it reads from the API. Nil: none.
	Plan *model.Plan
	// Changes counts plans that did something else than the one before.
	Changes int

	policy model.Policy
	// review is when the next plan looks at all anew.
	review   time.Time
	vms      []model.VM
	models   *learned.Models
	verdicts *disturbance.Store
	tuning   *tuning.Store
	clock    *clocktesting.FakeClock
	cluster  *agenttest.Loopback
	board    *publish.Board
	stop     func() error
	// seconds that passed.
	seconds int
}

// EnforcePolicy lets both levers of affinity act, with the guardrails' defaults. No
// meter is asked for.
func EnforcePolicy() model.Policy {
	const maxUse = 0.85
	return model.Policy{
		Name: "simulated", Mode: model.ModeEnforce, Levers: []model.Lever{model.LeverAffinity, model.LeverSlice},
		AllowModelled: true, MaxCoreUtilization: maxUse, Sharing: model.ShareWithinNamespace,
	}
}

// Manage starts the agent of a host on which all VMs run. dir is for its journal. The
// caller calls Close.
func Manage(h *sim.Host, vms []sim.VM, policy model.Policy, dir string) (*Managed, error) {
	return manage(h, h, vms, policy, dir)
}

// manage does with the host as its agent sees it.
func manage(h *sim.Host, seen host.Host, vms []sim.VM, policy model.Policy, dir string) (*Managed, error) {
	priors, err := prior.Default()
	if err != nil {
		return nil, err
	}
	m := &Managed{
		Host: h, policy: policy, models: learned.New(priors),
		clock: clocktesting.NewFakeClock(h.Now()), board: &publish.Board{},
	}
	m.verdicts = disturbance.NewStore(m.clock, time.Hour, func() disturbance.Detector { return &interference.History{} })
	m.tuning = tuning.NewStore(m.clock, time.Hour)
	inventory := &discover.Inventory{}
	for _, vm := range vms {
		agenttest.AddVM(inventory, vm.PodUID, vm.Namespace, vm.Name)
		m.vms = append(m.vms, model.VM{
			PodUID: vm.PodUID, Namespace: vm.Namespace, Name: vm.Name, Profile: "all",
			Affinity: model.AffinityAuto, NamespaceSelected: true,
		})
	}
	m.cluster = agenttest.NewLoopback(m.clock)
	m.cluster.Runs(inventory)
	j, err := journal.Open(dir, "simulated")
	if err != nil {
		return nil, err
	}
	a, err := agent.New(agent.Options{
		Node: h.Name(), Interval: time.Second, StaleAfter: time.Hour,
		Host: seen, Cluster: m.cluster, Libvirt: agenttest.NoLibvirt{}, Statuses: m.cluster, Board: m.board,
		Prior: priors.Node, Clock: m.clock, Log: logr.Discard(),
	}, j)
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	m.cluster.WaitIdle()
	m.stop = func() error {
		cancel()
		return errors.Join(<-ended, j.Close())
	}
	return m, nil
}

// Profiles changes what the profiles of the VMs say.
func (m *Managed) Profiles(change func(*model.VM)) {
	for i := range m.vms {
		change(&m.vms[i])
	}
}

// Close ends the agent, which puts everything back.
func (m *Managed) Close() error { return m.stop() }

// Second lets one pass. Where packets are held the agent makes a round in each, as it
// extends the lease of that. Otherwise it makes three a pull, at a fraction of the cost: one
// that follows a new plan, and the two between which are the rates that are pulled.
func (m *Managed) Second() {
	m.Host.Advance(time.Second)
	m.seconds++
	const last = int(pull / time.Second)
	of := m.seconds % last
	if of > 1 && of < last-1 && !slices.Contains(m.policy.Levers, model.LeverBuffering) {
		return
	}
	m.clock.SetTime(m.Host.Now())
	m.cluster.WaitIdle()
}

// Watch lets time pass in which the manager learns the node, and plans nothing.
func (m *Managed) Watch(d time.Duration) error {
	for range int(d / pull) {
		for range int(pull / time.Second) {
			m.Second()
		}
		if err := m.look(); err != nil {
			return err
		}
	}
	return nil
}

// Steer lets time pass in which the manager learns the node and plans it after each
// pull. each, if any, is called after each plan.
func (m *Managed) Steer(d time.Duration, each func() error) error {
	for range int(d / pull) {
		if err := m.Watch(pull); err != nil {
			return err
		}
		m.plan()
		if each == nil {
			continue
		}
		if err := each(); err != nil {
			return err
		}
	}
	return nil
}

// look lets the manager learn from a pull. That a round of the agent failed is an
// error: nothing fails on a simulated node.
func (m *Managed) look() error {
	state := m.board.Latest()
	if state.RoundError != nil {
		return fmt.Errorf("simulated node %s: %w", m.Host.Name(), state.RoundError)
	}
	m.verdicts.Add(state.Rates, disturbance.Circumstances{
		Nested: state.Topology.Nested, MaxSteal: func(string) (units.Cores, bool) { return 0, true },
	})
	m.tuning.Add(state.Rates, tuning.Circumstances{VM: m.circumstances})
	m.models.Look(m.Host.Name(), learned.Sight{
		Processor: learned.Processor{Name: state.Topology.CPUModel, Cores: len(state.Topology.Cores)},
		Topology:  func() (model.Topology, error) { return state.Topology, nil },
		Power:     state.Rates.Power, Rates: state.Rates, Received: state.Rates.Time,
	})
	return nil
}

// circumstances are what rates do not tell of a VM whose packets may be held.
func (m *Managed) circumstances(podUID string) (tuning.VM, bool) {
	for i := range m.vms {
		vm := &m.vms[i]
		if vm.PodUID != podUID {
			continue
		}
		verdict := m.verdicts.Of(podUID).Verdict
		return tuning.VM{
			Profile: profileOf(vm), OnPackets: vm.OnPackets, MaxDrops: vm.MaxDrops, KeepThroughput: vm.KeepThroughput,
			Disturbed: verdict == model.InterferenceCoRunner || verdict == model.InterferenceSelf,
		}, true
	}
	return tuning.VM{}, false
}

func profileOf(vm *model.VM) types.NamespacedName {
	return types.NamespacedName{Namespace: vm.Namespace, Name: vm.Profile}
}

// plan makes the node's plan.
func (m *Managed) plan() {
	state := m.board.Latest()
	node := model.Node{
		Name: m.Host.Name(), Policy: m.policy, Reported: true, Topology: state.Topology,
		Slices: m.lacks("SchedSlice") == "", Buffering: m.lacks("Buffering"),
		Costs: m.models.Costs(m.Host.Name(), state.Topology),
		Power: state.Rates.Power, Metered: state.Rates.Power != nil && state.Rates.Power.Source == model.SourceRAPL,
		Rates: state.Rates, Current: m.Plan,
	}
	for _, vm := range m.vms {
		vm.Disturbance = m.verdicts.Of(vm.PodUID)
		vm.Tuning = m.tuning.Of(vm.PodUID, profileOf(&vm))
		node.VMs = append(node.VMs, vm)
	}
	now := m.clock.Now()
	if node.Review = !now.Before(m.review); node.Review {
		m.review = now.Add(controllers.DefaultReview)
	}
	plan := planner.Plan(node, now)
	if m.Plan == nil && plan.HasActions() || m.Plan != nil && plan.Revision != m.Plan.Revision {
		m.Changes++
	}
	m.cluster.Follow(observe.NodePlanSpec(plan))
	m.Plan = observe.Plan(m.cluster.Latest())
}

// lacks says why the host has not a capability. Empty: it has.
func (m *Managed) lacks(capability string) string {
	facts, err := m.Host.Facts()
	if err != nil {
		return err.Error()
	}
	for _, c := range facts.Capabilities {
		if c.Name != capability {
			continue
		}
		if c.Available {
			return ""
		}
		return c.Message
	}
	return "the agent does not name it"
}
