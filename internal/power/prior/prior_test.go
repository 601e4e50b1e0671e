package prior

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/units"
)

func mustDefault(t *testing.T) Priors {
	t.Helper()
	p, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// host has a number of cores with some CPUs each.
func host(cores, siblings int) model.Topology {
	var t model.Topology
	for core := range cores {
		var cpus []int
		for sibling := range siblings {
			cpus = append(cpus, core+sibling*cores)
		}
		t.Cores = append(t.Cores, model.Core{CPUs: units.NewCPUSet(cpus...)})
	}
	return t
}

// TestNodeIsPlausible compares with processors that the priors were not fitted
// to: the range that their whole power can be expected in when all cores are
// busy and when none is.
func TestNodeIsPlausible(t *testing.T) {
	p := mustDefault(t)
	for name, tc := range map[string]struct {
		topology        model.Topology
		idleLow         units.Watts
		idleHigh        units.Watts
		fullLow, fullUp units.Watts
	}{
		"desktop, 4 cores, 95 W": {host(4, 1), 2, 15, 40, 100},
		"server, 32 cores":       {host(32, 2), 20, 90, 150, 500},
		"server, 64 cores":       {host(64, 2), 40, 180, 280, 900},
		"virtual, 1 CPU":         {host(1, 1), 0.5, 5, 10, 35},
		"unknown":                {model.Topology{}, 2, 15, 40, 100},
	} {
		prior := p.Node(tc.topology)
		cpus := max(1, tc.topology.Online().Len())
		if len(tc.topology.Cores) == 0 {
			cpus = 4
		}
		full := prior.Mean.At(power.Load{BusyCores: units.Cores(cpus), WakeUps: 1e4, AwakeCores: units.Cores(max(4, len(tc.topology.Cores)))})
		if prior.Mean.Idle < tc.idleLow || prior.Mean.Idle > tc.idleHigh {
			t.Errorf("%s: idle %.1f W, want %v to %v", name, prior.Mean.Idle, tc.idleLow, tc.idleHigh)
		}
		if full < tc.fullLow || full > tc.fullUp {
			t.Errorf("%s: %.1f W with all CPUs busy, want %v to %v", name, full, tc.fullLow, tc.fullUp)
		}
		for i, sd := range []float64{
			float64(prior.StdDev.Idle / prior.Mean.Idle), float64(prior.StdDev.PerBusyCore / prior.Mean.PerBusyCore),
			float64(prior.StdDev.PerWakeUp / prior.Mean.PerWakeUp), float64(prior.StdDev.PerAwakeCore / prior.Mean.PerAwakeCore),
		} {
			if !(sd >= 0.3) {
				t.Errorf("%s: coefficient %d has a relative standard deviation of %v: a prior is no knowledge", name, i, sd)
			}
		}
		if !(prior.Noise > 0) {
			t.Errorf("%s: noise %v", name, prior.Noise)
		}
	}
}

func TestCurvesFitTheCurvePackage(t *testing.T) {
	p := mustDefault(t)
	set := curve.New(p.Curve)
	for vcpus := 1; vcpus <= 16; vcpus++ {
		for _, vhost := range []bool{true, false} {
			var before curve.Cost
			for _, us := range []int{1000, 500, 250, 125, 0} {
				key := curve.Key{Class: curve.ClassOf(vcpus, vhost), Window: time.Duration(us) * time.Microsecond}
				cost := set.Cost(key, curve.Rate{Packets: 5e4, Bits: 4e8})
				if !(cost.Cores > before.Cores) || !(cost.WakeUps > before.WakeUps) {
					t.Errorf("%+v: %+v is no more than with a longer window, %+v", key, cost, before)
				}
				if !(float64(cost.CoresStdErr) > 0.2*float64(cost.Cores)) {
					t.Errorf("%+v: %+v is too sure for a prior", key, cost)
				}
				before = cost
			}
		}
	}
}

func TestEffects(t *testing.T) {
	p := mustDefault(t)
	if got := p.BufferingEffect(0); got != (Effect{}) {
		t.Errorf("no window saves %+v", got)
	}
	if got := p.BufferingEffect(-time.Second); got != (Effect{}) {
		t.Errorf("a negative window saves %+v", got)
	}
	before := Effect{}
	for us := 1; us <= 1000; us += 50 {
		got := p.BufferingEffect(time.Duration(us) * time.Microsecond)
		if !(got.Share > before.Share) || !(got.StdErr > before.StdErr) || got.Kept() <= 0 {
			t.Fatalf("%d us: %+v after %+v", us, got, before)
		}
		before = got
	}
	if long, longest := p.BufferingEffect(time.Hour), p.BufferingEffect(time.Millisecond); long != longest {
		t.Errorf("an hour saves %+v, the longest window that was measured %+v", long, longest)
	}
	if got := p.AffinityEffect(); !(got.Share > 0.1 && got.Share < 0.3) || !(got.StdErr >= got.Share/2) {
		t.Errorf("affinity saves %+v", got)
	}
	pinned, separated := p.AffinityEffect(), p.SeparationEffect()
	if !(separated.Share > 0 && separated.Share < pinned.Share) ||
		separated.Share-separated.StdErr > 1e-6 || separated.Share+separated.StdErr < pinned.Share-1e-6 {
		t.Errorf("separation saves %+v, want less than pinning, %+v, and neither nothing nor as much excluded", separated, pinned)
	}
}

// Each figure has a unit and a source, and is a number that can be.
func TestFigures(t *testing.T) {
	var file any
	if err := json.Unmarshal(embedded, &file); err != nil {
		t.Fatal(err)
	}
	figures := 0
	var check func(path string, v any)
	check = func(path string, v any) {
		m, isObject := v.(map[string]any)
		if !isObject {
			return
		}
		if _, isFigure := m["value"]; !isFigure {
			for name, child := range m {
				check(path+"."+name, child)
			}
			return
		}
		figures++
		value, _ := m["value"].(float64)
		stdDev, _ := m["stdDev"].(float64)
		unit, _ := m["unit"].(string)
		source, _ := m["source"].(string)
		if value < 0 || stdDev < 0 || unit == "" || len(source) < 10 {
			t.Errorf("%s: %v", path, m)
		}
	}
	check("", file)
	if figures < 20 {
		t.Errorf("%d figures", figures)
	}
}
