package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/agenttest"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	observed "github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	wrapAt    = 262143328850 // microjoules
	podUID    = "0f9a3c52-7d1e-4b7a-9c55-0123456789ab"
	perSocket = 50.0 // watts
)

// meteredNode is a node of two packages with a VM, whose counters can be spoiled.
type meteredNode struct {
	host.Host
	packages int
	nested   bool
	hidden   bool    // its topology cannot be read
	seconds  float64 // since it was made
	used     [3]uint64
	spoil    func([]host.EnergyZone) ([]host.EnergyZone, error)
}

func (n *meteredNode) pass(seconds float64) {
	n.seconds += seconds
	for i := range n.used {
		// No meter says the same to the last bit each second.
		watts := perSocket + 0.01*math.Mod(n.seconds, 7)
		n.used[i] = (n.used[i] + uint64(watts*seconds*1e6)) % wrapAt
	}
}

func (n *meteredNode) Topology() (model.Topology, error) {
	if n.hidden {
		return model.Topology{}, errors.New("CPU 1 is going")
	}
	topology := model.Topology{Nested: n.nested}
	for i := range n.packages {
		topology.Cores = append(topology.Cores, model.Core{CPUs: units.NewCPUSet(i), Package: i})
	}
	return topology, nil
}

func (n *meteredNode) Actors() ([]host.Actor, error)              { return nil, nil }
func (n *meteredNode) Uplinks(host.TaskID) ([]host.Uplink, error) { return nil, nil }
func (n *meteredNode) Monotonic() (time.Duration, error)          { return 0, nil }

func (n *meteredNode) busy() time.Duration {
	return time.Duration(n.seconds * 0.5 * float64(time.Second))
}

func (n *meteredNode) CPUTimes() ([]host.CPUTimes, error) {
	var times []host.CPUTimes
	for i := range n.packages {
		times = append(times, host.CPUTimes{CPU: i, Busy: n.busy()})
	}
	return times, nil
}

func (n *meteredNode) EnergyZones() ([]host.EnergyZone, error) {
	var zones []host.EnergyZone
	for i := range n.packages {
		zones = append(zones, host.EnergyZone{
			ID: fmt.Sprintf("intel-rapl:%d", i), Name: fmt.Sprintf("package-%d", i), Microjoules: n.used[i], Range: wrapAt,
		})
	}
	if n.spoil != nil {
		return n.spoil(zones)
	}
	return zones, nil
}

func (n *meteredNode) Processes() ([]host.Process, error) {
	return []host.Process{{
		ID: host.TaskID{PID: 100, TID: 100, Start: 1}, Args: []string{"q", "-name", "guest=shop_web"},
		Cgroups: "0::/kubepods/pod" + podUID + "/x\n",
	}}, nil
}

func (n *meteredNode) Sample(process host.TaskID) (host.ProcessSample, error) {
	return host.ProcessSample{Threads: []host.ThreadSample{{Thread: host.Thread{ID: process, Name: "qemu-kvm"}, Run: n.busy(), CPUs: units.NewCPUSet(0, 1)}}}, nil
}

func (n *meteredNode) Uptime() (uint64, error) { return uint64(n.seconds * host.TicksPerSecond), nil }

func (n *meteredNode) Cgroup(host.TaskID) (host.CgroupFacts, error) { return host.CgroupFacts{}, nil }
func (n *meteredNode) Cpuset(host.TaskID) (units.CPUSet, error)     { return units.NewCPUSet(0, 1), nil }

// meteredAgent is an agent on a meteredNode, round by round.
type meteredAgent struct {
	*testing.T
	node   *meteredNode
	clock  *clocktesting.FakeClock
	agent  *Agent
	finder *publish.Finder
	board  *publish.Board
	seen   map[energy.Reason]bool
	totals *model.Totals
}

func newMeteredAgent(t *testing.T) *meteredAgent {
	priors, err := prior.Default()
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(t.TempDir(), "boot")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	m := &meteredAgent{
		T: t, node: &meteredNode{packages: 2}, board: &publish.Board{}, seen: map[energy.Reason]bool{},
		clock: clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
	}
	m.finder = publish.NewFinder(m.board, publish.Findings{})
	c := &cluster{synced: true, renewed: m.clock.Now(), inventory: discover.Inventory{
		Pods: map[string]discover.Pod{podUID: {UID: podUID, Namespace: "shop", CreatedBy: "v"}},
		VMIs: map[string]discover.VMI{"v": {UID: "v", Namespace: "shop", Name: "web"}},
	}}
	m.agent, err = New(Options{
		Node: "node1", Interval: time.Second, StaleAfter: 100 * time.Hour,
		Host: m.node, Cluster: c, Libvirt: agenttest.NoLibvirt{}, Statuses: c,
		Prior: priors.Node, Board: m.board, Clock: m.clock, Log: logr.Discard(),
	}, j)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *meteredAgent) rates() *model.NodeRates { return m.board.Latest().Rates }

// rounds samples once a second.
func (m *meteredAgent) rounds(n int) {
	m.Helper()
	for range n {
		m.round(1)
	}
}

// round lets time pass, samples, and looks at what must always hold.
func (m *meteredAgent) round(seconds float64) {
	m.Helper()
	m.node.pass(seconds)
	m.clock.Step(time.Duration(seconds * float64(time.Second)))
	m.agent.round(m.Context(), true)
	rates := m.rates()
	if _, err := json.Marshal(rates); err != nil {
		m.Fatalf("rates cannot be sent: %v", err)
	}
	if err := observed.Validate(rates, "node1"); err != nil && rates.IntervalSeconds > 0 && seconds < 3600 {
		m.Fatalf("the manager refuses the rates: %v", err)
	}
	if p := rates.Power; p != nil && !(p.Watts > 0 && p.Watts < 500) {
		m.Fatalf("power %+v", p)
	}
	was, is := m.totals, rates.Totals
	if is.Joules < 0 || (was != nil && was.Since.Equal(is.Since) && is.Joules < was.Joules) {
		m.Fatalf("totals went from %+v to %+v", was, is)
	}
	if most := 500 * max(1, is.MeteredSeconds); float64(is.Joules) > most {
		m.Fatalf("totals %+v", is)
	}
	m.totals = is
	if refusal := m.board.Latest().Energy.Refusal; refusal != nil {
		m.seen[refusal.Reason] = true
	}
}

func (m *meteredAgent) condition() metav1.Condition {
	m.Helper()
	findings, ok := m.finder.Find()
	if !ok {
		m.Fatal("nothing to report")
	}
	status := publish.Report(findings, nil, m.clock.Now())
	return *meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionMeterAvailable)
}

func (m *meteredAgent) wantMeasured(watts float64) {
	m.Helper()
	rates := m.rates()
	if p := rates.Power; p == nil || p.Source != model.SourceRAPL || math.Abs(float64(p.Watts)-watts) > 1 || rates.PowerMessage != "" ||
		!p.Time.Equal(m.clock.Now()) {
		m.Fatalf("power %+v, %q; want %v W", rates.Power, rates.PowerMessage, watts)
	}
	if c := m.condition(); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonMeterFound {
		m.Errorf("condition %+v", c)
	}
}

// A meter that goes wrong once: the reading is refused, the last good one
// stands, and the next ones are used again.
func TestAReadingThatIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		spoil  func(*meteredNode)
		reason energy.Reason
		rounds int // until all is well
	}{
		"a counter goes back":            {func(n *meteredNode) { n.used[1] -= 600e6 }, energy.ReasonWentBack, 4},
		"a counter starts over":          {func(n *meteredNode) { n.used[1] = 0 }, energy.ReasonWentBack, 4},
		"a counter jumps, and stays":     {func(n *meteredNode) { n.used[1] += 50e9 }, energy.ReasonJumped, 4},
		"a counter jumps, and goes back": {func(n *meteredNode) { once(n, func(z []host.EnergyZone) { z[1].Microjoules += 50e9 }) }, energy.ReasonJumped, 5},
		"a counter reads 0 once":         {func(n *meteredNode) { once(n, func(z []host.EnergyZone) { z[1].Microjoules = 0 }) }, energy.ReasonWentBack, 4},
		"a counter is unreadable once": {
			func(n *meteredNode) {
				once(n, func(z []host.EnergyZone) { z[1].Err = errors.New("input/output error") })
			}, energy.ReasonUnreachable, 1,
		},
		"a counter changes its name": {func(n *meteredNode) { once(n, func(z []host.EnergyZone) { z[1].Name = "package-7" }) }, energy.ReasonAwaiting, 2},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMeteredAgent(t)
			m.rounds(20)
			m.wantMeasured(2 * perSocket)
			good := m.rates().Power
			test.spoil(m.node)
			m.rounds(1)
			rates := m.rates()
			if rates.Power != good || (test.reason != energy.ReasonAwaiting && !strings.HasPrefix(rates.PowerMessage, string(test.reason)+": ")) {
				t.Fatalf("power %+v, %q; want that of before, and %s", rates.Power, rates.PowerMessage, test.reason)
			}
			if n := m.board.Latest().Energy.Refusals[test.reason]; n == 0 {
				t.Errorf("refusals %v", m.board.Latest().Energy.Refusals)
			}
			if c := m.condition(); c.Status != metav1.ConditionTrue {
				t.Errorf("condition %+v: one reading is no reason", c)
			}
			m.rounds(test.rounds)
			m.wantMeasured(2 * perSocket)
		})
	}
}

// once spoils one reading.
func once(n *meteredNode, spoil func([]host.EnergyZone)) {
	n.spoil = func(zones []host.EnergyZone) ([]host.EnergyZone, error) {
		n.spoil = nil
		spoil(zones)
		return zones, nil
	}
}

// A meter that stays wrong: its last figure ages out, the model takes over and
// says so, and the condition says why.
func TestAMeterThatIsLost(t *testing.T) {
	for name, test := range map[string]struct {
		spoil  func([]host.EnergyZone) ([]host.EnergyZone, error)
		reason string
		words  string
	}{
		"a counter freezes": {func(z []host.EnergyZone) ([]host.EnergyZone, error) {
			z[0].Microjoules = 77
			return z, nil
		}, "Frozen", "intel-rapl:0 (package-0) stands still"},
		"a counter is unreadable": {func(z []host.EnergyZone) ([]host.EnergyZone, error) {
			z[0].Err = fs.ErrPermission
			return z, nil
		}, "PermissionDenied", "the agent must be root"},
		"a package vanishes": {func(z []host.EnergyZone) ([]host.EnergyZone, error) { return z[:1], nil }, "NoMeter", "1 of 2 packages"},
		"all counters vanish": {func([]host.EnergyZone) ([]host.EnergyZone, error) {
			return nil, fmt.Errorf("no energy counters: %w", host.ErrUnsupported)
		}, "NoMeter", "no energy counters"},
		"a counter runs a thousand times too fast": {func(z []host.EnergyZone) ([]host.EnergyZone, error) {
			z[0].Microjoules = z[0].Microjoules * 1000 % wrapAt
			return z, nil
		}, "Jumped", "which no processor uses"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMeteredAgent(t)
			m.rounds(60)
			good := m.rates().Power
			m.node.spoil = test.spoil
			m.rounds(60)
			if rates := m.rates(); rates.Power != good || rates.PowerMessage == "" {
				t.Fatalf("after a minute: power %+v, %q", rates.Power, rates.PowerMessage)
			}
			m.rounds(30)
			rates := m.rates()
			if p := rates.Power; p == nil || p.Source != model.SourceModel || math.Abs(float64(p.Watts)-2*perSocket) > 5 || !p.Time.Equal(m.clock.Now()) {
				t.Errorf("power %+v, want about %v W by the model, which learned", rates.Power, 2*perSocket)
			}
			if !strings.HasPrefix(rates.PowerMessage, "modelled: ") {
				t.Errorf("message %q", rates.PowerMessage)
			}
			if c := m.condition(); c.Status != metav1.ConditionFalse || c.Reason != test.reason || !strings.Contains(c.Message, test.words) {
				t.Errorf("condition %+v, want %s with %q", c, test.reason, test.words)
			}
			m.node.spoil = nil
			m.rounds(5)
			m.wantMeasured(2 * perSocket)
		})
	}
}

func TestAPackageThatIsAdded(t *testing.T) {
	m := newMeteredAgent(t)
	m.rounds(20)
	m.node.packages = 3
	m.rounds(1)
	if p := m.rates().Power; p.Watts > 2*perSocket+1 || !m.seen[energy.ReasonAwaiting] {
		t.Errorf("power %+v, refusals %v", p, m.board.Latest().Energy.Refusals)
	}
	m.rounds(1)
	m.wantMeasured(3 * perSocket)
	m.rounds(120) // the topology follows
	m.wantMeasured(3 * perSocket)
	m.node.packages = 2 // and goes: the topology, which is read each minute, tells that it has
	m.rounds(70)
	m.wantMeasured(2 * perSocket)
}

// CPUs come and go while the topology is read: the last one stands.
func TestATopologyThatCannotBeRead(t *testing.T) {
	m := newMeteredAgent(t)
	m.node.hidden = true
	m.rounds(130)
	m.wantMeasured(2 * perSocket)
	if cores := m.board.Latest().Topology.Cores; len(cores) != 2 {
		t.Errorf("cores %+v", cores)
	}
}

// A suspended node wakes up hours later: what its counters did meanwhile is not
// known.
func TestSuspend(t *testing.T) {
	m := newMeteredAgent(t)
	m.rounds(20)
	m.round(7 * 3600)
	if p := m.rates().Power; p == nil || p.Source != model.SourceModel {
		t.Errorf("power %+v, %q", p, m.rates().PowerMessage)
	}
	m.rounds(1)
	m.wantMeasured(2 * perSocket)
}

// A counter that starts over at its range, again and again, is no failure.
func TestWraps(t *testing.T) {
	m := newMeteredAgent(t)
	m.rounds(3)
	wraps := 0
	for range 2000 {
		before := m.node.used[0]
		m.round(10)
		if m.node.used[0] < before {
			wraps++
		}
		m.wantMeasured(2 * perSocket)
	}
	if wraps < 3 {
		t.Errorf("%d wraps", wraps)
	}
	if n := len(m.board.Latest().Energy.Refusals); n != 1 { // the first reading
		t.Errorf("refusals %v", m.board.Latest().Energy.Refusals)
	}
	if want := 2 * perSocket * m.totals.MeteredSeconds; math.Abs(float64(m.totals.Joules)/want-1) > 0.001 {
		t.Errorf("totals %+v, want %v J", m.totals, want)
	}
}

func TestANestedNode(t *testing.T) {
	m := newMeteredAgent(t)
	m.node.nested = true
	m.rounds(120) // its counters, which a hypervisor made up, are not used
	rates := m.rates()
	if rates.Power == nil || rates.Power.Source != model.SourceModel || rates.Power.StdErrWatts <= 0 ||
		rates.PowerMessage != "modelled: the node is itself a VM and has no energy counters" {
		t.Errorf("power %+v, %q", rates.Power, rates.PowerMessage)
	}
	if c := m.condition(); c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonNoMeter {
		t.Errorf("condition %+v", c)
	}
	if watts := rates.VMs[0].Watts; watts == nil || *watts <= 0 || *watts >= rates.Power.Watts {
		t.Errorf("the VM has %v", watts)
	}
}
