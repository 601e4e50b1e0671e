package agent

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/internal/agent/agenttest"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// simulated is the agent on a simulated host, whose true power is known.
type simulated struct {
	*testing.T
	host  *sim.Host
	clock *clocktesting.FakeClock
	agent *Agent
	board *publish.Board
	// truth since the agent's second round, from which on energy is metered.
	joules, seconds float64
}

func newSimulated(t *testing.T, config sim.Config) *simulated {
	config.Name, config.Seed, config.Start = "node1", 7, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h, err := sim.NewHost(config)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{synced: true, renewed: h.Now(), inventory: discover.Inventory{Pods: map[string]discover.Pod{}, VMIs: map[string]discover.VMI{}}}
	for i := range 12 {
		vm := sim.VM{
			Namespace: "shop", Name: fmt.Sprintf("vm-%d", i), PodUID: fmt.Sprintf("0f9a3c52-7d1e-4b7a-9c55-%012d", i), VCPUs: 2,
			Traffic: sim.Traffic{
				Programme: sim.Programme{Pattern: sim.Pattern(i % 3), Period: time.Minute},
				ToVM:      units.BitsPerSecond(10e6 * i), FromVM: units.BitsPerSecond(20e6 * i),
			},
			Compute: sim.Compute{Programme: sim.Programme{Pattern: sim.Diurnal, Period: 5 * time.Minute}, Cores: units.Cores(i) / 12},
		}
		if _, err := h.AddVM(vm); err != nil {
			t.Fatal(err)
		}
		c.inventory.Pods[vm.PodUID] = discover.Pod{UID: vm.PodUID, Namespace: vm.Namespace, CreatedBy: vm.Name}
		c.inventory.VMIs[vm.Name] = discover.VMI{UID: vm.Name, Namespace: vm.Namespace, Name: vm.Name}
	}
	priors, err := prior.Default()
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(t.TempDir(), "boot")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	s := &simulated{T: t, host: h, clock: clocktesting.NewFakeClock(h.Now()), board: &publish.Board{}}
	s.agent, err = New(Options{
		Node: "node1", Interval: time.Second, StaleAfter: 100 * time.Hour,
		Host: h, Cluster: c, Libvirt: agenttest.NoLibvirt{}, Statuses: c,
		Prior: priors.Node, Board: s.board, Clock: s.clock, Log: logr.Discard(),
	}, j)
	if err != nil {
		t.Fatal(err)
	}
	s.agent.round(t.Context(), true)
	return s
}

// rounds samples n times, once a second, and returns the last rates.
func (s *simulated) rounds(n int) *model.NodeRates {
	for range n {
		s.host.Advance(time.Second)
		s.clock.SetTime(s.host.Now())
		s.joules += float64(s.host.Truth().Packages)
		s.seconds++
		s.agent.round(s.Context(), true)
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
	if p := rates.Power; p.Scope != model.ScopePackage || p.DRAMWatts == nil || *p.DRAMWatts <= 0 {
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

// Whatever a meter does, what is metered never differs from the truth by more
// than the time that it was refused for.
func TestASimulatedMeterFails(t *testing.T) {
	for name, fault := range map[string]sim.Fault{
		"frozen": sim.MeterFrozen, "backwards": sim.MeterBackwards, "jumps": sim.MeterJumps, "unreadable": sim.MeterUnreadable,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSimulated(t, sim.Config{Meter: sim.Meter{Platform: true}})
			s.rounds(300)
			s.host.SetFault(fault)
			rates := s.rounds(120)
			if p := rates.Power; p == nil || p.Source != model.SourceModel || math.Abs(float64(p.Watts/s.host.Truth().Platform)-1) > 0.25 {
				t.Errorf("power %+v, %q; in truth %v W", p, rates.PowerMessage, s.host.Truth().Platform)
			}
			s.host.SetFault(sim.NoFault)
			rates = s.rounds(30)
			if p := rates.Power; p.Source != model.SourceRAPL || math.Abs(float64(p.Watts/s.host.Truth().Platform)-1) > 0.03 {
				t.Errorf("power %+v, %q; in truth %v W", p, rates.PowerMessage, s.host.Truth().Platform)
			}
		})
	}
}

func TestASimulatedNestedNode(t *testing.T) {
	s := newSimulated(t, sim.Config{Nested: true, Stolen: 0.1})
	rates := s.rounds(60)
	if p := rates.Power; p == nil || p.Source != model.SourceModel || p.StdErrWatts <= 0 || rates.PowerMessage == "" {
		t.Errorf("power %+v, %q", p, rates.PowerMessage)
	}
}
