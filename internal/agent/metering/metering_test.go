package metering

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/energy/powercap"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func prior(model.Topology) power.NodePrior {
	return power.NodePrior{
		Mean:   power.Coefficients{Idle: 10, PerBusyCore: 5, PerWakeUp: 1e-4, PerAwakeCore: 1},
		StdDev: power.Coefficients{Idle: 20, PerBusyCore: 10, PerWakeUp: 1e-4, PerAwakeCore: 1},
		Noise:  1,
	}
}

// machine is a made-up node: packages of two cores, each with a counter.
type machine struct {
	*testing.T
	account  *Account
	topology model.Topology
	now      time.Time
	joules   float64
	// spoil changes what is read of the counters; nil: nothing.
	spoil func(*powercap.Counters)
	// megabits a second of a VM's traffic.
	megabits float64
	// blind is true while CPU times cannot be read.
	blind bool

	rates  *model.NodeRates
	status Status
}

func newMachine(t *testing.T) *machine {
	m := &machine{T: t, now: noon(), account: New(prior, noon()), joules: 1000}
	for i := range 4 {
		m.topology.Cores = append(m.topology.Cores, model.Core{CPUs: units.NewCPUSet(i), Package: i / 2})
	}
	return m
}

// truth is what the machine draws.
func truth(busy float64) float64 { return 20 + 10*busy }

// round lets time go by and has the account see it. A VM has half of the load.
func (m *machine) round(seconds, busy float64) {
	m.Helper()
	var before *model.Totals
	if m.rates != nil {
		before = m.rates.Totals
	}
	m.now = m.now.Add(time.Duration(seconds * float64(time.Second)))
	m.joules += truth(busy) * seconds
	m.rates = &model.NodeRates{
		Node: "node1", Time: m.now, IntervalSeconds: seconds,
		VMs: []model.VMRates{
			{Name: "web", Emulator: model.ThreadRates{RunCores: units.Cores(busy / 2), SwitchesPerSecond: 100}}, {Name: "idle"},
		},
	}
	// Two taps, and both directions.
	quarter := model.TrafficRates{BitsPerSecond: units.BitsPerSecond(m.megabits * 1e6 / 4)}
	tap := model.TapRates{ToVM: quarter, FromVM: quarter}
	m.rates.VMs[0].Taps = []model.TapRates{tap, tap}
	for i := range m.topology.Cores {
		if !m.blind {
			m.rates.CPUs = append(m.rates.CPUs, model.CPURates{CPU: i, BusyCores: units.Cores(busy / float64(len(m.topology.Cores)))})
		}
	}
	counters := powercap.Counters{Time: m.now}
	for i := range 2 {
		counters.Zones = append(counters.Zones, host.EnergyZone{
			ID: fmt.Sprintf("intel-rapl:%d", i), Name: fmt.Sprintf("package-%d", i), Microjoules: uint64(m.joules * 1e6 / 2), Range: 1 << 40,
		})
	}
	if m.spoil != nil {
		m.spoil(&counters)
	}
	m.status = m.account.Add(m.rates, counters, m.topology)
	m.check(before)
}

// check holds of every round.
func (m *machine) check(before *model.Totals) {
	m.Helper()
	if _, err := json.Marshal(m.rates); err != nil {
		m.Fatalf("rates are no JSON: %v", err) // NaN and infinity are not
	}
	totals := m.rates.Totals
	if totals.Joules < 0 || totals.MeteredSeconds < 0 || totals.BusyCoreSeconds < 0 || totals.Bytes < 0 || totals.WakeUps < 0 || totals.AwakeCoreSeconds < 0 {
		m.Fatalf("totals %+v", totals)
	}
	if before != nil && before.Since.Equal(totals.Since) && (totals.Joules < before.Joules || totals.Seconds < before.Seconds) {
		m.Fatalf("totals went back from %+v to %+v", before, totals)
	}
	if p := m.rates.Power; p != nil && (p.Watts < 0 || p.Time.After(m.now) || p.Scope == "") {
		m.Fatalf("power %+v", p)
	}
	if n := len(m.rates.PowerMessage); n > maxMessage || !utf8.ValidString(m.rates.PowerMessage) {
		m.Fatalf("a message of %d bytes: %q", n, m.rates.PowerMessage)
	}
	if (m.rates.Power == nil || !m.rates.Power.Source.Measures()) && m.rates.PowerMessage == "" {
		m.Fatalf("power %+v without a message", m.rates.Power)
	}
	sum := units.Watts(0)
	for _, vm := range m.rates.VMs {
		if vm.Watts != nil {
			if *vm.Watts < 0 {
				m.Fatalf("a VM with %v W", *vm.Watts)
			}
			sum += *vm.Watts
		}
	}
	if sum > 0 && sum > m.rates.Power.Watts*1.000001 {
		m.Fatalf("VMs have %v W of %v W", sum, m.rates.Power.Watts)
	}
}

func (m *machine) want(source v1alpha1.PowerSource, watts float64, words string) {
	m.Helper()
	p := m.rates.Power
	if p == nil || p.Source != source || math.Abs(float64(p.Watts)-watts) > 0.01 || !strings.Contains(m.rates.PowerMessage, words) ||
		(words == "") != (m.rates.PowerMessage == "") {
		m.Fatalf("power %+v with %q; want %v W by %s, and words %q", p, m.rates.PowerMessage, watts, source, words)
	}
}

func unreadable(c *powercap.Counters) { c.Zones[1].Err = fs.ErrPermission }

func TestMeasured(t *testing.T) {
	m := newMachine(t)
	m.round(0, 0)
	if m.rates.Power != nil || !strings.HasPrefix(m.rates.PowerMessage, "Awaiting: ") {
		t.Fatalf("at first %+v, %q", m.rates.Power, m.rates.PowerMessage)
	}
	m.round(1, 2)
	m.want(v1alpha1.PowerRAPL, 40, "")
	m.round(1, 1)
	m.want(v1alpha1.PowerRAPL, 30, "")
	totals := m.rates.Totals
	if totals.Seconds != 2 || totals.BusyCoreSeconds != 3 || totals.WakeUps != 200 || totals.AwakeCoreSeconds != 8 ||
		math.Abs(float64(totals.Joules)-70) > 1e-3 || totals.MeteredSeconds != 2 || !totals.Since.Equal(noon()) {
		t.Errorf("totals %+v", totals)
	}
	if used := m.status.Used; len(used) != 1 || used[0].Source != v1alpha1.PowerRAPL || used[0].Scope != v1alpha1.PowerScopePackage || used[0].Joules != totals.Joules {
		t.Errorf("used %+v", used)
	}
	web, idle := m.rates.VMs[0].Watts, m.rates.VMs[1].Watts
	if web == nil || idle == nil || *web <= 0 || *idle != 0 || *web > 20 {
		t.Errorf("VMs have %v and %v W", web, idle)
	}
	for i := range 600 {
		m.round(1, float64(i%4))
	}
	if m.status.Accuracy.Samples != 602 || m.status.Accuracy.MeanRelativeError > 0.05 || m.status.Modelled == nil {
		t.Errorf("accuracy %+v", m.status.Accuracy)
	}
}

func TestNested(t *testing.T) {
	m := newMachine(t)
	m.topology.Nested = true
	m.round(0, 0)
	if m.rates.Power != nil {
		t.Fatalf("power %+v before there are rates", m.rates.Power)
	}
	m.round(1, 2)
	m.want(v1alpha1.PowerModel, 10+2*5+100e-4+4*1, "modelled: the node is itself a VM and has no energy counters")
	m.round(1, 2)
	if totals := m.rates.Totals; totals.MeteredSeconds != 2 || math.Abs(float64(totals.Joules)-2*24.01) > 1e-6 {
		t.Errorf("totals %+v", totals)
	}
	if m.status.Refusal == nil || m.status.Refusal.Reason != energy.ReasonNoCounters || len(m.status.Refusals) != 0 {
		t.Errorf("status %+v", m.status)
	}
	if m.rates.VMs[0].Watts == nil || m.status.Accuracy.Samples != 0 {
		t.Errorf("VM %+v, status %+v", m.rates.VMs[0], m.status)
	}
}

func TestCountersThatNeverWorked(t *testing.T) {
	for name, test := range map[string]struct {
		spoil  func(*powercap.Counters)
		reason energy.Reason
		words  string
	}{
		"none": {func(c *powercap.Counters) {
			*c = powercap.Counters{Err: fmt.Errorf("load the module: %w", host.ErrUnsupported)}
		}, energy.ReasonNoCounters, "modelled: load the module"},
		"unreadable": {unreadable, energy.ReasonPermission, "the agent must be root"},
		"a long reason": {func(c *powercap.Counters) {
			*c = powercap.Counters{Err: fmt.Errorf("é%s: %w", strings.Repeat("é", 400), host.ErrUnsupported)}
		}, energy.ReasonNoCounters, "modelled: éé"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.spoil = test.spoil
			m.round(0, 0)
			m.round(1, 2)
			m.want(v1alpha1.PowerModel, 24.01, test.words)
			if m.status.Refusal.Reason != test.reason || len(m.status.Refusals) != 0 {
				t.Errorf("status %+v", m.status)
			}
			m.spoil = nil // somebody repairs it
			m.round(1, 2)
			m.round(1, 2)
			m.want(v1alpha1.PowerRAPL, 40, "")
		})
	}
}

// A meter that fails keeps its last figure for a while. Then what it taught the
// model stands in for it, and the totals start over.
func TestAMeterThatFails(t *testing.T) {
	m := newMachine(t)
	m.round(0, 0)
	for i := range 300 {
		m.round(1, float64(i%4))
	}
	m.round(1, 2)
	m.want(v1alpha1.PowerRAPL, 40, "")
	good := m.rates.Power.Time
	m.spoil = unreadable
	m.round(0.5, 2)
	message := m.rates.PowerMessage
	for m.now.Sub(good) < grace {
		m.round(0.5, 3)
		m.want(v1alpha1.PowerRAPL, 40, "PermissionDenied: ")
		if !m.rates.Power.Time.Equal(good) || m.rates.PowerMessage != message || m.rates.VMs[0].Watts != nil {
			t.Fatalf("power %+v with %q, VM %+v", m.rates.Power, m.rates.PowerMessage, m.rates.VMs[0])
		}
	}
	metered := m.rates.Totals
	if metered.MeteredSeconds != 301 || math.Abs(metered.Seconds-361) > 1e-6 {
		t.Errorf("totals %+v", metered)
	}
	m.round(1, 3)
	if p := m.rates.Power; p.Source != v1alpha1.PowerModel || math.Abs(float64(p.Watts)-50) > 1 || p.Scope != v1alpha1.PowerScopePackage {
		t.Fatalf("power %+v, want about 50 W", p)
	}
	if !strings.HasPrefix(m.rates.PowerMessage, "modelled: the meter is of no use for more than 1m0s: PermissionDenied: ") {
		t.Errorf("message %q", m.rates.PowerMessage)
	}
	if totals := m.rates.Totals; !totals.Since.Equal(m.now) || totals.Joules != 0 {
		t.Errorf("totals %+v", totals)
	}
	if n := m.status.Refusals[energy.ReasonPermission]; n != 121 {
		t.Errorf("%d refusals", n)
	}
	m.round(1, 3)
	m.spoil = nil
	m.round(1, 3)
	// The counters went on meanwhile: the first figure is the mean over all of it.
	m.want(v1alpha1.PowerRAPL, float64(m.rates.Power.Watts), "")
	m.round(1, 1)
	m.want(v1alpha1.PowerRAPL, 30, "")
	sources, sum := "", 0.0
	for _, used := range m.status.Used {
		sources += fmt.Sprintf("%s/%s ", used.Source, used.Scope)
		sum += float64(used.Joules)
	}
	if drawn := m.joules - 1000; sources != "Model/Package RAPL/Package " || math.Abs(sum/drawn-1) > 0.001 {
		t.Errorf("used %v, drawn %v J: what was modelled while the meter failed must count once", m.status.Used, drawn)
	}
}

// Without CPU times nothing is known of the load, which does not mean that
// there is none: the round after, which has no earlier time, neither.
func TestLoadThatIsNotKnown(t *testing.T) {
	m := newMachine(t)
	m.round(0, 0)
	m.round(1, 2)
	before := *m.rates.Totals
	m.blind = true
	m.round(1, 2)
	m.blind = false
	m.round(1, 2)
	m.want(v1alpha1.PowerRAPL, 40, "")
	if totals := m.rates.Totals; totals.Seconds != before.Seconds || totals.BusyCoreSeconds != before.BusyCoreSeconds || totals.MeteredSeconds != 3 {
		t.Errorf("totals %+v", totals)
	}
	if m.status.Accuracy.Samples != 1 || m.rates.VMs[0].Watts != nil {
		t.Errorf("learned from %d rounds, VM %+v", m.status.Accuracy.Samples, m.rates.VMs[0])
	}
	m.round(1, 2)
	if m.status.Accuracy.Samples != 2 || m.rates.VMs[0].Watts == nil {
		t.Errorf("learned from %d rounds, VM %+v", m.status.Accuracy.Samples, m.rates.VMs[0])
	}
}

// What was learned of a machine does not hold for the machine that it becomes.
func TestAnotherMachine(t *testing.T) {
	m := newMachine(t)
	m.round(0, 0)
	for i := range 100 {
		m.round(1, float64(i%4))
	}
	m.topology.Cores = append(m.topology.Cores, model.Core{CPUs: units.NewCPUSet(4), Package: 1})
	m.round(1, 2)
	if m.status.Accuracy.Samples != 1 {
		t.Errorf("accuracy %+v", m.status.Accuracy)
	}
}

// Whatever happens, in whatever order: what is published is sane, and soon after
// all is well again.
func TestAnythingMayHappen(t *testing.T) {
	for seed := range uint64(20) {
		m := newMachine(t)
		rng := rand.New(rand.NewPCG(seed, 1))
		mischief := []func(){
			func() { m.joules += 1e5 },
			func() { m.joules = rng.Float64() * 1e5 },
			func() { m.spoil = unreadable },
			func() { m.spoil = func(c *powercap.Counters) { c.Zones = c.Zones[:rng.IntN(2)] } },
			func() { m.spoil = func(c *powercap.Counters) { c.Err = errors.New("too many open files") } },
			func() { m.spoil = func(c *powercap.Counters) { c.Zones[rng.IntN(2)].Microjoules = rng.Uint64() } },
			func() { m.spoil = func(c *powercap.Counters) { c.Zones[1].Microjoules = 5 } },
			func() { m.spoil = func(c *powercap.Counters) { c.Time = c.Time.Add(-time.Hour) } },
			func() { m.blind = true },
			func() { m.topology.Nested = !m.topology.Nested },
			func() { m.round(3*3600, 1) },
			func() { m.round(0, 1) },
		}
		for range 300 {
			m.round(1, 4*rng.Float64())
			if rng.IntN(10) == 0 {
				mischief[rng.IntN(len(mischief))]()
			}
			if rng.IntN(20) == 0 {
				m.spoil, m.blind, m.topology.Nested = nil, false, false
			}
		}
		m.spoil, m.blind, m.topology.Nested = nil, false, false
		for range 10 {
			m.round(1, 2)
		}
		m.want(v1alpha1.PowerRAPL, 40, "")
	}
}

// Traffic counts in every round, also while the load or the power is not known, and starts
// over with the joules.
func TestBytes(t *testing.T) {
	m := newMachine(t)
	want := 0.0
	round := func(seconds, megabits float64) {
		t.Helper()
		m.megabits = megabits
		m.round(seconds, 1)
		want += megabits * 1e6 / 8 * seconds
		if got := m.rates.Totals.Bytes; math.Abs(got-want) > 1e-6 {
			t.Errorf("%v bytes, want %v", got, want)
		}
	}
	round(0, 0)
	round(1, 80)
	round(0.5, 16)
	m.blind = true
	round(1, 8)
	m.blind, m.spoil = false, unreadable
	round(1, 8)
	round(2, 0)
	since := m.rates.Totals.Since
	for ends := m.now.Add(2 * grace); m.rates.Totals.Since.Equal(since) && m.now.Before(ends); {
		m.round(10, 1)
	}
	if totals := m.rates.Totals; totals.Bytes != 0 || totals.Joules != 0 {
		t.Errorf("totals %+v that start over", totals)
	}
}
