package agent

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/agenttest"
	"github.com/joulevirt/joulevirt/test/sim"
)

// simNode is an agent on a simulated host, which can be killed and started again.
type simNode struct {
	*testing.T
	host *sim.Host
	// seen is the host as the agent has it.
	seen host.Host
	// delay of each agent's start.
	delay   time.Duration
	clock   *clocktesting.FakeClock
	cluster *cluster
	dir     string
	journal *journal.Journal
	board   *publish.Board
	agent   *Agent
}

// newSimNode returns a node whose agent was not started.
func newSimNode(t *testing.T, config sim.Config, vms ...sim.VM) *simNode {
	t.Helper()
	config.Name, config.Seed = "node1", 7
	h, err := sim.NewHost(config)
	if err != nil {
		t.Fatal(err)
	}
	n := &simNode{
		T: t, host: h, seen: h, clock: clocktesting.NewFakeClock(h.Now()), dir: t.TempDir(), board: &publish.Board{},
		cluster: &cluster{synced: true, renewed: h.Now(), changes: make(chan struct{}, 1)},
	}
	for _, vm := range vms {
		if _, err := h.AddVM(vm); err != nil {
			t.Fatal(err)
		}
		agenttest.AddVM(&n.cluster.inventory, vm.PodUID, vm.Namespace, vm.Name)
	}
	t.Cleanup(func() { n.journal.Close() })
	return n
}

// start is the start of an agent, from what is on disk and in the cluster.
func (n *simNode) start() {
	n.Helper()
	priors, err := prior.Default()
	if err != nil {
		n.Fatal(err)
	}
	if n.journal, err = journal.Open(n.dir, "boot"); err != nil {
		n.Fatal(err)
	}
	n.agent, err = New(Options{
		Node: "node1", Interval: time.Second, StaleAfter: time.Minute, StartDelay: n.delay, Host: n.seen, Cluster: n.cluster, Statuses: n.cluster,
		Prior: priors.Node, Board: n.board, Clock: n.clock, Log: logr.Discard(),
	}, n.journal)
	if err != nil {
		n.Fatal(err)
	}
}

// crash ends the agent without its reverting anything.
func (n *simNode) crash() {
	n.Helper()
	if err := n.journal.Close(); err != nil {
		n.Fatal(err)
	}
}

// step is a round of the agent, a second later.
func (n *simNode) step() {
	n.Helper()
	n.host.Advance(time.Second)
	n.clock.Step(time.Second)
	n.agent.round(n.Context(), true)
}

func podUID(i int) string { return fmt.Sprintf("0f9a3c52-7d1e-4b7a-9c55-%012d", i) }

// simulated is a node with 12 VMs of different work, whose true power is known.
type simulated struct {
	*simNode
	// truth since the agent's second round, from which on energy is metered.
	joules, seconds float64
}

func newSimulated(t *testing.T, config sim.Config) *simulated {
	t.Helper()
	config.Start = noon()
	vms := make([]sim.VM, 12)
	for i := range vms {
		vms[i] = sim.VM{
			Namespace: "shop", Name: fmt.Sprintf("vm-%d", i), PodUID: podUID(i), VCPUs: 2,
			Traffic: sim.Traffic{
				Programme: sim.Programme{Pattern: sim.Pattern(i % 3), Period: time.Minute},
				ToVM:      units.BitsPerSecond(10e6 * i), FromVM: units.BitsPerSecond(20e6 * i),
			},
			Compute: sim.Compute{Programme: sim.Programme{Pattern: sim.Diurnal, Period: 5 * time.Minute}, Cores: units.Cores(i) / 12},
		}
	}
	s := &simulated{simNode: newSimNode(t, config, vms...)}
	s.start()
	s.agent.round(t.Context(), true)
	return s
}

// rounds samples n times, once a second, and returns the last rates.
func (s *simulated) rounds(n int) *model.NodeRates {
	s.Helper()
	for range n {
		s.cluster.renewed = s.clock.Now()
		s.step()
		s.joules += float64(s.host.Truth().Packages)
		s.seconds++
	}
	return s.board.Latest().Rates
}

// Metered energy is the true one, and no VM is thought to draw more than all of
// what is not idle.
func TestASimulatedNodeIsMetered(t *testing.T) {
	s := newSimulated(t, sim.Config{Meter: sim.Meter{DRAM: true}})
	rates := s.rounds(600)
	totals := rates.Totals
	if miss := float64(totals.Joules)/s.joules - 1; math.Abs(miss) > 0.01 || totals.MeteredSeconds != s.seconds {
		t.Errorf("metered %v J in %v s, in truth %.0f J in %v s", totals.Joules, totals.MeteredSeconds, s.joules, s.seconds)
	}
	if p := rates.Power; p.Scope != v1alpha1.PowerScopePackage {
		t.Errorf("power %+v", p)
	}
	sum, most := units.Watts(0), units.Watts(0)
	for i := range rates.VMs {
		sum += *rates.VMs[i].Watts
		most = max(most, *rates.VMs[i].Watts)
	}
	if sum <= 0 || sum >= rates.Power.Watts || most == sum {
		t.Errorf("VMs have %v W, one of them %v W, of %v W", sum, most, rates.Power.Watts)
	}
	status := s.board.Latest().Energy
	t.Logf("the model's error is %.1f %% of %.1f W", 100*status.Accuracy.MeanRelativeError, float64(rates.Power.Watts))
	if status.Accuracy.Samples < 590 || len(status.Refusals) != 1 {
		t.Errorf("status %+v", status)
	}
}

func turnAction() *v1alpha1.ShapingAction {
	return &v1alpha1.ShapingAction{Turn: &v1alpha1.TurnAction{
		PeriodMilliseconds: 10_000, OffsetMilliseconds: 2000, LengthMilliseconds: 3000,
	}}
}

// The same agent has VMs of a simulated node take turns.
func TestSimulatedVMsTakeTurns(t *testing.T) {
	s := newSimulated(t, sim.Config{Shape: sim.Shape{CoresPerPackage: 32}})
	c := s.cluster
	const vm, want = "0f9a3c52-7d1e-4b7a-9c55-000000000003", 60e6 // constant, from newSimulated
	c.plan = &v1alpha1.NodePlan{Spec: v1alpha1.NodePlanSpec{Apply: true, VMs: []v1alpha1.VMPlan{{
		VMReference: v1alpha1.VMReference{Namespace: "shop", Name: "vm-3", PodUID: vm}, Shaping: turnAction(),
	}}}}
	s.rounds(10)
	var sum, least, most units.BitsPerSecond
	for second := range 40 {
		rates := s.rounds(1)
		for i := range rates.VMs {
			if rates.VMs[i].PodUID != vm {
				continue
			}
			now := rates.VMs[i].Taps[0].FromVM.BitsPerSecond
			if sum += now; second == 0 {
				least, most = now, now
			}
			least, most = min(least, now), max(most, now)
		}
	}
	if mean := float64(sum) / 40; mean < 0.95*want || mean > 1.05*want || least > 300e3 || most < 1.5*want {
		t.Errorf("%.1f Mbit/s on average, from %.2f to %.1f", mean/1e6, float64(least)/1e6, float64(most)/1e6)
	}
	if state := s.board.Latest(); state.InForce[v1alpha1.LeverShaping] != 1 {
		t.Errorf("in force: %v", state.InForce)
	}
}
