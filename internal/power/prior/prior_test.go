package prior

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
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
	set, err := curve.New(curve.Options{Prior: p.Curve})
	if err != nil {
		t.Fatal(err)
	}
	for vcpus := 1; vcpus <= 16; vcpus++ {
		for _, vhost := range []bool{true, false} {
			var before curve.Cost
			for _, us := range []int{1000, 500, 250, 125, 0} {
				key := curve.Key{Class: curve.ClassOf(vcpus, vhost), Window: time.Duration(us) * time.Microsecond}
				cost, err := set.Cost(key, curve.Rate{Packets: 5e4, Bits: 4e8})
				if err != nil {
					t.Fatal(err)
				}
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

func TestOnXenCostsMore(t *testing.T) {
	p := mustDefault(t)
	kvm, xen := p.Curve(curve.Key{Class: curve.ClassOf(2, true)}), p.OnXen().Curve(curve.Key{Class: curve.ClassOf(2, true)})
	for i := range kvm.Cores {
		want := kvm.Cores[i] * p.Curves.Xen.Value
		if i == curve.TermIdle {
			want = kvm.Cores[i]
		}
		if math.Abs(xen.Cores[i]-want) > 1e-12 {
			t.Errorf("term %d: %v on Xen, %v on KVM", i, xen.Cores[i], kvm.Cores[i])
		}
	}
	if again := mustDefault(t); again.Curves.CoresMore != p.Curves.CoresMore {
		t.Error("OnXen changed what it was called on")
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

func TestParseRefuses(t *testing.T) {
	figure := func(path ...string) func(map[string]any) map[string]any {
		return func(m map[string]any) map[string]any {
			for _, name := range path {
				m = m[name].(map[string]any)
			}
			return m
		}
	}
	for name, tc := range map[string]struct {
		edit func(map[string]any)
		says string
	}{
		"nothing":             {func(map[string]any) {}, ""},
		"another schema":      {func(m map[string]any) { m["schema"] = 2 }, "schema 2; this program reads 1"},
		"no schema":           {func(m map[string]any) { delete(m, "schema") }, "schema 0"},
		"an unknown field":    {func(m map[string]any) { m["more"] = 1 }, `unknown field "more"`},
		"no digest":           {func(m map[string]any) { m["tables"] = "" }, "no digest"},
		"no cores":            {func(m map[string]any) { figure("node")(m)["cores"] = 0 }, "without cores"},
		"negative":            {func(m map[string]any) { figure("node", "idle")(m)["value"] = -1 }, "node.idle: the value -1"},
		"a negative error":    {func(m map[string]any) { figure("affinity", "pinned")(m)["stdDev"] = -1 }, "affinity.pinned: the standard deviation"},
		"all by separation":   {func(m map[string]any) { figure("affinity", "separated")(m)["value"] = 1 }, "affinity.separated: 1 is not below 1"},
		"no unit":             {func(m map[string]any) { figure("curves", "coresOneVCPU", "many")(m)["unit"] = "" }, "curves.coresOneVCPU.many: no unit"},
		"no origin":           {func(m map[string]any) { figure("sriov", "cores")(m)["origin"] = "heard" }, `sriov.cores: the origin "heard"`},
		"a figure left out":   {func(m map[string]any) { delete(figure("curves", "wakeUpsOneVCPU")(m), "few") }, "curves.wakeUpsOneVCPU.few: no unit"},
		"everything saved":    {func(m map[string]any) { figure("buffering", "most")(m)["value"] = 1 }, "buffering.most: 1 is not below 1"},
		"no half window":      {func(m map[string]any) { figure("buffering", "halfWindow")(m)["value"] = 0 }, "buffering.halfWindow: 0 is not above 0"},
		"a busy core is free": {func(m map[string]any) { figure("node", "perBusyCore")(m)["value"] = 0 }, "node.perBusyCore"},
		"a word":              {func(m map[string]any) { figure("node", "idle")(m)["value"] = "5" }, "cannot unmarshal string"},
	} {
		var file map[string]any
		if err := json.Unmarshal(embedded, &file); err != nil {
			t.Fatal(err)
		}
		tc.edit(file)
		text, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Parse(text)
		if (err == nil) != (tc.says == "") || (err != nil && !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
	}
	for _, text := range []string{"", "{", "null", "[]", string(embedded) + "{}", `{"schema": NaN}`, `{"schema": 1e400}`} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%.20q is taken", text)
		}
	}
}

// TestFiguresAreChecked spoils each figure in turn, in ways that JSON cannot.
func TestFiguresAreChecked(t *testing.T) {
	for _, bad := range []Figure{
		{Value: math.NaN(), Unit: "W", Origin: Fitted}, {Value: math.Inf(1), Unit: "W", Origin: Fitted},
		{StdDev: math.NaN(), Unit: "W", Origin: Fitted}, {StdDev: math.Inf(1), Unit: "W", Origin: Fitted},
	} {
		if bad.validate() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	p := mustDefault(t)
	seen := map[string]bool{}
	for _, named := range p.Figures() {
		if seen[named.Name] {
			t.Errorf("%s is there twice", named.Name)
		}
		seen[named.Name] = true
	}
	// Each figure of the file has its unit checked, so none is forgotten.
	if units := strings.Count(string(embedded), `"origin":`); units != len(seen) {
		t.Errorf("%d figures in the file, %d are checked", units, len(seen))
	}
}

func FuzzParse(f *testing.F) {
	f.Add(string(embedded))
	f.Add("{}")
	f.Add(`{"schema":1,"tables":"x","node":{"cores":1}}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse([]byte(text))
		if err != nil {
			return
		}
		prior := p.Node(host(8, 2))
		for _, v := range []units.Watts{prior.Mean.Idle, prior.Mean.PerBusyCore, prior.StdDev.Idle, prior.Noise} {
			if !(v >= 0) {
				t.Fatalf("%s leads to %+v", fmt.Sprintf("%.60q", text), prior)
			}
		}
	})
}
