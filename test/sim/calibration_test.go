package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

const mbit = 1e6

// study is the study's host: 4 cores, one package.
func study(t testing.TB, physics *Physics) *Host {
	t.Helper()
	h, err := NewHost(Config{
		Name: "study", Seed: 1, Start: time.Unix(0, 0), Shape: Shape{CoresPerPackage: 4},
		CPUModel: "i5-2400", Physics: physics, Meter: Meter{DRAM: true, Platform: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// outcome is what the study measured.
type outcome struct {
	// cores of CPU time of the whole host, wake-ups of VMs per second, package
	// and platform power.
	cores, wakes, watts, wall float64
}

// run lets a host warm up and returns its means over a minute.
func run(t testing.TB, h *Host) outcome {
	t.Helper()
	h.Advance(10 * time.Minute)
	before := totals(h)
	h.Advance(time.Minute)
	after := totals(h)
	truth := h.Truth()
	return outcome{
		cores: (after.cores - before.cores) / 60, wakes: (after.wakes - before.wakes) / 60,
		watts: float64(truth.Packages), wall: float64(truth.Platform),
	}
}

func totals(h *Host) outcome {
	var o outcome
	for i := range h.cpus.total {
		o.cores += h.cpus.total[i].busy
	}
	for _, v := range h.vms {
		for i := range v.threads {
			o.wakes += v.threads[i].switches
		}
	}
	return o
}

func add(t testing.TB, h *Host, vm VM) string {
	t.Helper()
	if vm.Namespace == "" {
		vm.Namespace, vm.Name = "study", string(rune('a'+len(h.vms)))
	}
	if _, err := h.AddVM(vm); err != nil {
		t.Fatal(err)
	}
	return h.vms[len(h.vms)-1].PodUID
}

func sending(rates []float64, vcpus int) func(testing.TB, *Host) {
	return func(t testing.TB, h *Host) {
		for _, rate := range rates {
			add(t, h, VM{VCPUs: vcpus, Traffic: Traffic{FromVM: units.BitsPerSecond(rate * mbit)}})
		}
	}
}

func relative(got, want float64) float64 { return 100 * (got/want - 1) }

// published is a value of the study, and by how much the simulator is known to
// miss it, in percent: what the design note tells is what is held.
type published struct{ value, off float64 }

// row is one row of a table of the study: traffic that VMs send, and what was
// measured. Zero: not given.
type row struct {
	mbps                     []float64
	cores, wakes, rapl, wall published
}

// points is by how many percentage points an error may be another than the known
// one: what rounding to whole points and random traffic make.
const points = 1.0

// misses reports whether a value is off by what is known.
func misses(t *testing.T, what string, got float64, want published) {
	t.Helper()
	if want.value == 0 {
		return
	}
	off := relative(got, want.value)
	t.Logf("%s: %.4g, study %.4g: %+.1f %%", what, got, want.value, off)
	if math.Abs(off-want.off) > points {
		t.Errorf("%s is off by %+.1f %%, known are %+.0f %%", what, off, want.off)
	}
}

// table compares a table with the simulator, and tells that each row costs more
// than the one before, as in the study.
func table(t *testing.T, physics *Physics, vcpus int, rows []row) {
	t.Helper()
	last := outcome{}
	for _, r := range rows {
		h := study(t, physics)
		sending(r.mbps, vcpus)(t, h)
		o := run(t, h)
		name := fmt.Sprint(r.mbps)
		misses(t, name+" cores", o.cores, r.cores)
		misses(t, name+" RAPL W", o.watts, r.rapl)
		misses(t, name+" wall W", o.wall, r.wall)
		if o.cores <= last.cores || o.watts <= last.watts {
			t.Errorf("%v costs %+v, no more than the row before, %+v", r.mbps, o, last)
		}
		last = o
	}
}

// From xen_cpu_by_skew_5vms.csv: dom0 and the VMs together, from skewed to balanced. In the study five
// VMs of 180 Mbit/s cost less than three of 300 (1.83 and 1.90 CPUs, two sessions): costs that are
// concave in each VM's rate and add up cannot have both, and are fitted to the three.
func TestXenSkew(t *testing.T) {
	table(t, Xen(), 2, []row{
		{mbps: []float64{0.5, 0.5, 0.5, 0.5, 898}, cores: published{1.16, +5}},
		{mbps: []float64{10, 10, 10, 10, 860}, cores: published{1.289, +20}},
		{mbps: []float64{50, 50, 50, 50, 700}, cores: published{1.40, +37}},
		{mbps: []float64{50, 50, 200, 300, 300}, cores: published{1.606, +36}},
		{mbps: []float64{100, 100, 200, 200, 300}, cores: published{1.726, +31}},
		{mbps: []float64{150, 150, 200, 200, 200}, cores: published{1.75, +32}},
		{mbps: []float64{180, 180, 180, 180, 180}, cores: published{1.83, +27}},
	})
}

// From xen_cpu_by_active_vms.csv.
func TestXenActiveVMs(t *testing.T) {
	table(t, Xen(), 2, []row{
		{mbps: []float64{0, 0, 0}, rapl: published{5.5, -7}, wall: published{31.3, -11}},
		{mbps: []float64{0, 0, 900}, cores: published{1.065, +10}, rapl: published{22.4, +6}, wall: published{52.9, +4}},
		{mbps: []float64{0, 200, 700}, cores: published{1.544, -3}, rapl: published{32.9, -10}, wall: published{63.8, 0}},
		{mbps: []float64{300, 300, 300}, cores: published{1.901, -3}, rapl: published{35.4, +3}, wall: published{67.3, +9}},
	})
}

// From kvm_cycles_by_active_vms.csv, at 3.1 GHz. One VM costs too much here:
// the buffering table's hosts, of the same processor, draw 17-19 W for what
// draws 12.3 W in this one, and the fit is between. The study's context
// switches hardly grow from one active VM to two and double with the third, which
// no cost per VM that is concave in its rate can do.
func TestKVMCycles(t *testing.T) {
	const hz = 3.1e9
	rows := []row{
		{mbps: []float64{0, 0, 900}, cores: published{1.46e9 / hz, +20}, wakes: published{57800 / 2, +8}, rapl: published{5.14 + 7.2, +19}},
		{mbps: []float64{0, 200, 700}, cores: published{2.48e9 / hz, -3}, wakes: published{60710 / 2, +59}},
		{mbps: []float64{300, 300, 300}, cores: published{3.25e9 / hz, -5}, wakes: published{103730 / 2, +30}},
	}
	table(t, KVM(), 2, rows)
	last := 0.0
	for _, r := range rows {
		h := study(t, KVM())
		sending(r.mbps, 2)(t, h)
		wakes := run(t, h).wakes
		misses(t, fmt.Sprint(r.mbps)+" wake-ups/s", wakes, r.wakes)
		if wakes <= last {
			t.Errorf("%v wakes %v/s, no more than the row before", r.mbps, wakes)
		}
		last = wakes
	}
}

// From virtio_overhead_10mbps.csv: a VM with little traffic costs several times
// what the study saw, whose packets come in bunches. Here each comes by itself.
func TestSlowVMsAreTooDear(t *testing.T) {
	const hz = 3.1e9
	for name, test := range map[string]struct {
		traffic      Traffic
		cores, wakes published
	}{
		"receive": {Traffic{ToVM: 10 * mbit}, published{51.8e6 / hz, +292}, published{452 / 2, +710}},
		"send":    {Traffic{FromVM: 10 * mbit}, published{33.4e6 / hz, +502}, published{307 / 2, +1097}},
	} {
		h := study(t, KVM())
		add(t, h, VM{VCPUs: 2, Traffic: test.traffic})
		o := run(t, h)
		misses(t, name+" cores", o.cores, test.cores)
		misses(t, name+" wake-ups/s", o.wakes, test.wakes)
	}
}

// affinities are the study's set-ups: 10 VMs that send at a rate each. Crowded is separated with all
// threads that carry packets for the VMs.
func affinities(t *testing.T, physics *Physics, rate units.BitsPerSecond) map[string]outcome {
	all := map[string]outcome{}
	for name, mask := range map[string]func(vm int) units.CPUSet{
		"random":    nil,
		"pinned":    func(vm int) units.CPUSet { return units.NewCPUSet(vm % 4) },
		"separated": func(int) units.CPUSet { return units.NewCPUSet(0, 1) },
		"crowded":   func(int) units.CPUSet { return units.NewCPUSet(0, 1) },
	} {
		h := study(t, physics)
		for vm := range 10 {
			add(t, h, VM{Traffic: Traffic{FromVM: rate}})
			if mask == nil {
				continue
			}
			for _, thread := range h.vms[vm].threads {
				if thread.role != vcpu && name != "crowded" {
					continue
				}
				if err := h.SetAffinity(thread.id, mask(vm)); err != nil {
					t.Fatal(err)
				}
			}
		}
		all[name] = run(t, h)
	}
	return all
}

// From affinity_power.csv: pinning each vCPU to a core saves 17.5 % of the
// package's power.
func TestPinningSaves(t *testing.T) {
	const study = 17.5
	all := affinities(t, Xen(), 90*mbit)
	saving := -relative(all["pinned"].watts, all["random"].watts)
	t.Logf("random %.2f W, separated %.2f W, pinned %.2f W: saves %.1f %%, study %v %% (21.87 W to 18.04 W)",
		all["random"].watts, all["separated"].watts, all["pinned"].watts, saving, study)
	if saving < study-points || saving > study+points {
		t.Errorf("pinning saves %.1f %%", saving)
	}
	kvm := affinities(t, KVM(), 90*mbit)
	t.Logf("KVM: random %.2f W, separated %.2f W, pinned %.2f W", kvm["random"].watts, kvm["separated"].watts, kvm["pinned"].watts)
	if !(kvm["random"].watts > kvm["separated"].watts && kvm["separated"].watts > kvm["pinned"].watts) {
		t.Errorf("power does not fall from random over separated to pinned: %+v", kvm)
	}
}

// TestCrowdingCosts: in the study "separated" costs more than random on Xen, and less on KVM. It does so
// here on both as soon as what carries the VMs' packets is on their half of the cores too, at all loads
// that two cores can carry.
func TestCrowdingCosts(t *testing.T) {
	for name, physics := range map[string]*Physics{"Xen": Xen(), "KVM": KVM()} {
		for _, rate := range []units.BitsPerSecond{10, 20, 45, 60} {
			all := affinities(t, physics, rate*mbit)
			random, separated, crowded := all["random"], all["separated"], all["crowded"]
			t.Logf("%s, %v Mbit/s: random %.2f W, separated %.2f W, crowded %.2f W, of %.2f cores", name, rate, random.watts, separated.watts, crowded.watts, crowded.cores)
			if !(crowded.watts > random.watts && random.watts > separated.watts) {
				t.Errorf("%s, %v Mbit/s: not crowded > random > separated", name, rate)
			}
		}
	}
}
