package sim

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

func TestACrowdedCoreLosesTraffic(t *testing.T) {
	served := func(mask units.CPUSet) (float64, *Host) {
		h := study(t, KVM(), 0)
		for range 10 {
			add(t, h, VM{Traffic: Traffic{ToVM: 250 * mbit, FromVM: 250 * mbit}})
			if err := h.SetAffinity(h.vms[len(h.vms)-1].threads[1].id, mask); err != nil {
				t.Fatal(err)
			}
		}
		h.Advance(time.Minute)
		truth, err := h.VMTruth(h.vms[3].PodUID)
		if err != nil {
			t.Fatal(err)
		}
		return truth.Served, h
	}
	free, spread := served(units.NewCPUSet(0, 1, 2, 3))
	part, crowded := served(units.NewCPUSet(0))
	t.Logf("handled: %.3f on all cores, %.3f on one", free, part)
	if free != 1 || part > 0.95 {
		t.Errorf("handled: %.3f on all cores, %.3f on one", free, part)
	}
	rx := &crowded.vms[3].toVM
	if want := 1 - part; math.Abs(rx.drops/(rx.drops+rx.packets)-want) > 0.05 {
		t.Errorf("dropped %v of %v packets, want %.2f", rx.drops, rx.drops+rx.packets, want)
	}
	if got, was := crowded.vms[3].threads[1].wait, spread.vms[3].threads[1].wait; got < 1.5*was || got < 45 {
		t.Errorf("a vCPU waited %v s of 60 on a crowded core, %v s otherwise", got, was)
	}
}

// TestKnee: below the knee all traffic is handled, beyond it only the knee's,
// also on a slower CPU.
func TestKnee(t *testing.T) {
	for name, vm := range map[string]VM{
		"one vCPU":      {Traffic: Traffic{ToVM: 100 * mbit, PacketBytes: 200}},
		"two vCPUs":     {VCPUs: 2, Traffic: Traffic{FromVM: 100 * mbit, PacketBytes: 200}},
		"computing":     {Compute: Compute{Cores: 0.4}, Traffic: Traffic{FromVM: 100 * mbit, PacketBytes: 200}},
		"busy siblings": {Traffic: Traffic{FromVM: 100 * mbit, PacketBytes: 200}},
		"without vhost": {Userland: true, Traffic: Traffic{ToVM: 100 * mbit, PacketBytes: 200}},
	} {
		h := study(t, KVM(), 0)
		if name == "busy siblings" {
			h = server(t, nil)
			if err := h.SetUnmanaged(Unmanaged{Compute: Compute{Cores: 16}, CPUs: units.NewCPUSet(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}); err != nil {
				t.Fatal(err)
			}
			vm.Cpuset = units.NewCPUSet(16, 17, 18, 19)
		}
		pod := add(t, h, vm)
		truth := func() VMTruth {
			h.Advance(20 * time.Second)
			truth, err := h.VMTruth(pod)
			if err != nil {
				t.Fatal(err)
			}
			return truth
		}
		knee := truth().Knee
		for _, factor := range []float64{0.9, 1.5} {
			traffic := vm.Traffic
			rate := units.BitsPerSecond(factor) * knee
			if traffic.ToVM > 0 {
				traffic.ToVM = rate
			} else {
				traffic.FromVM = rate
			}
			if err := h.SetTraffic(pod, traffic); err != nil {
				t.Fatal(err)
			}
			if got, want := truth().Served, min(1, 1/factor); math.Abs(got-want) > 0.03 {
				t.Errorf("%s: %.3f is handled of %.1f times the knee (%.0f bit/s), want %.3f", name, got, factor, knee, want)
			}
		}
	}
}

// What a host tells of its VMs' waits is what agents add up of their vCPUs.
func TestWaited(t *testing.T) {
	h := server(t, nil)
	pod := add(t, h, VM{VCPUs: 2, Compute: Compute{Cores: 2}, Cpuset: units.NewCPUSet(0), Traffic: Traffic{ToVM: mbit}})
	h.Advance(time.Minute)
	got, err := h.Waited(pod)
	if err != nil {
		t.Fatal(err)
	}
	sample, err := h.Sample(h.byPod[pod].id)
	if err != nil {
		t.Fatal(err)
	}
	want := time.Duration(0)
	for _, thread := range sample.Threads {
		if strings.HasSuffix(thread.Name, "/KVM") {
			want += thread.Wait / 2
		}
	}
	if diff := got - want; got < 20*time.Second || diff.Abs() > time.Millisecond {
		t.Errorf("two vCPUs on one CPU waited %v, want %v", got, want)
	}
	if _, err := h.Waited("none"); err == nil {
		t.Error("a VM that is not there waits")
	}
}

func TestSiblingsShareACore(t *testing.T) {
	computing := func(a, b int) float64 {
		h := server(t, nil)
		for i, cpu := range []int{a, b} {
			// Less than a whole CPU's work, which a shared core does not get done.
			process, err := h.AddVM(VM{Namespace: "a", Name: string(rune('a' + i)), Compute: Compute{Cores: 0.6}})
			if err != nil {
				t.Fatal(err)
			}
			if err := h.SetAffinity(vcpuOf(t, h, process), units.NewCPUSet(cpu)); err != nil {
				t.Fatal(err)
			}
		}
		h.Advance(time.Minute)
		return h.vms[0].threads[1].last.run
	}
	apart, together := computing(0, 1), computing(0, 16)
	if apart > 0.65 || together < 1.2*apart {
		t.Errorf("the same work takes %.2f CPUs on two cores and %.2f on one core's siblings", apart, together)
	}
}

// TestSiblingsDrawLessThanCores: a core with two busy siblings draws more than with
// one, and less than two cores.
func TestSiblingsDrawLessThanCores(t *testing.T) {
	watts := func(cpus ...int) float64 {
		h := server(t, func(c *Config) { c.Off = Temperature | Frequency; c.Shape.Packages = 1 })
		var loads []Unmanaged
		for _, cpu := range cpus {
			loads = append(loads, Unmanaged{Compute: Compute{Cores: 1}, CPUs: units.NewCPUSet(cpu)})
		}
		if err := h.SetUnmanaged(loads...); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Minute)
		return float64(h.Truth().Packages)
	}
	one, siblings, cores := watts(0), watts(0, 8), watts(0, 1)
	if got, want := siblings-one, study(t, nil, 0).phys.Power; math.Abs(got-want.Busy*want.Sibling) > 0.05 {
		t.Errorf("a busy sibling adds %.2f W, want %.2f", got, want.Busy*want.Sibling)
	}
	if cores-one < 2*(siblings-one) {
		t.Errorf("one busy CPU draws %.2f W, siblings %.2f W, two cores %.2f W", one, siblings, cores)
	}
}

// TestBunches: VMs that are buffered wake on one grid, which lets cores sleep
// together; and a bunch is never larger than fits the guest's ring.
func TestBunches(t *testing.T) {
	h := study(t, KVM(), 0)
	for range 10 {
		add(t, h, VM{Traffic: Traffic{ToVM: 20 * mbit}, Window: time.Millisecond})
	}
	h.Advance(time.Minute)
	h.mu.Lock()
	together := h.activity()
	apart := together
	apart.wakes = make([]float64, len(together.wakes))
	apart.grid = make([]float64, len(together.grid))
	for cpu := range apart.wakes {
		apart.wakes[cpu] = together.wakes[cpu] + together.grid[cpu]
	}
	grid, chance := h.packageWatts(0, &together, 25), h.packageWatts(0, &apart, 25)
	h.mu.Unlock()
	if grid > chance-1 {
		t.Errorf("%.2f W with wake-ups on one grid, %.2f W at any time", grid, chance)
	}

	h = study(t, KVM(), 0)
	add(t, h, VM{Traffic: Traffic{ToVM: 1000 * mbit}, Window: 10 * time.Millisecond})
	h.Advance(time.Minute)
	v := h.vms[0]
	// More arrive while the bunch is worked on.
	if packets := v.toVM.packets / v.threads[2].switches; packets > 2*bunch {
		t.Errorf("%.0f packets a wake-up", packets)
	}
}

func TestIsolatedCPUsAreLeftAlone(t *testing.T) {
	h := server(t, func(c *Config) { c.Isolated = units.NewCPUSet(5, 21) })
	populate(t, h, 40)
	if err := h.SetUnmanaged(Unmanaged{Compute: Compute{Cores: 3}}); err != nil {
		t.Fatal(err)
	}
	h.Advance(time.Minute)
	if busy := h.cpus.total[5].busy; busy != 0 {
		t.Errorf("an isolated CPU was busy for %v s", busy)
	}
	if err := h.SetAffinity(h.vms[0].threads[0].id, units.NewCPUSet(5)); err != nil {
		t.Fatal(err)
	}
	h.Advance(time.Minute)
	if h.cpus.total[5].busy == 0 {
		t.Error("a thread that is bound to an isolated CPU does not run there")
	}
}

func TestNestedHostsHideWhatIsStolen(t *testing.T) {
	h := server(t, func(c *Config) { c.Nested, c.Stolen = true, 0.5 })
	plain := server(t, func(c *Config) { c.Nested = true })
	for _, one := range []*Host{h, plain} {
		if err := one.SetUnmanaged(Unmanaged{Compute: Compute{Cores: 8}}); err != nil {
			t.Fatal(err)
		}
		one.Advance(5 * time.Minute)
	}
	steal, busy, usual := 0.0, 0.0, 0.0
	for cpu := range h.cpus.total {
		steal += h.cpus.total[cpu].steal / 300
		busy += h.cpus.total[cpu].busy / 300
		usual += plain.cpus.total[cpu].busy / 300
	}
	if steal <= 0 || steal > 0.1*busy || busy < 1.4*usual {
		t.Errorf("work of %.1f cores shows as %.1f busy and %.2f stolen", usual, busy, steal)
	}
}

func TestProgrammes(t *testing.T) {
	const day = 24 * time.Hour
	for name, programme := range map[string]Programme{
		"constant": {}, "diurnal": {Pattern: Diurnal}, "bursty": {Pattern: Bursty, Swing: 0.25},
	} {
		h := study(t, KVM(), 0)
		add(t, h, VM{Traffic: Traffic{ToVM: 10 * mbit, Programme: programme}})
		tap := &h.vms[0].toVM
		low, high, last := math.Inf(1), 0.0, 0.0
		for range 24 * 60 {
			h.Advance(time.Minute)
			got := 8 * (tap.bytes - last) / 60 / mbit
			last = tap.bytes
			low, high = min(low, got), max(high, got)
		}
		mean := 8 * last / day.Seconds() / mbit
		want := map[string][3]float64{"constant": {10, 10, 10}, "diurnal": {5, 10, 15}, "bursty": {0, 2.5, 10}}[name]
		for i, got := range []float64{low, mean, high} {
			if math.Abs(got-want[i]) > 0.35+1e-6 && name != "constant" || name == "constant" && math.Abs(got-10) > 1e-6 {
				t.Errorf("%s: least, mean and greatest Mbit/s %.2f %.2f %.2f, want %v", name, low, mean, high, want)
			}
		}
	}
}

// TestMarginalPower compares what a VM is said to cost with what ending it
// saves.
func TestMarginalPower(t *testing.T) {
	h := study(t, KVM(), Temperature)
	for _, rate := range []units.BitsPerSecond{20, 200, 700} {
		add(t, h, VM{Traffic: Traffic{ToVM: rate * mbit}})
	}
	h.Advance(10 * time.Second)
	before := float64(h.Truth().Packages)
	pod := h.vms[1].PodUID
	truth, err := h.VMTruth(pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.RemoveVM(pod); err != nil {
		t.Fatal(err)
	}
	h.Advance(10 * time.Second)
	saved := before - float64(h.Truth().Packages)
	if off := relative(float64(truth.Marginal), saved); off < -10 || off > 10 {
		t.Errorf("the VM is said to cost %.2f W, ending it saves %.2f W", truth.Marginal, saved)
	}
}

// TestStepsOfAnyLength: how often a host is stepped changes little of what
// happens, and nothing of what does not depend on chance.
func TestStepsOfAnyLength(t *testing.T) {
	energy := func(step time.Duration) float64 {
		h := study(t, KVM(), 0)
		add(t, h, VM{Traffic: Traffic{ToVM: 300 * mbit, Programme: Programme{Pattern: Diurnal, Period: time.Hour}}})
		for elapsed := time.Duration(0); elapsed < 10*time.Minute; elapsed += step {
			h.Advance(step)
		}
		return float64(h.Joules())
	}
	want := energy(time.Second)
	for _, step := range []time.Duration{100 * time.Millisecond, 15 * time.Second, 10 * time.Minute} {
		if off := relative(energy(step), want); off < -0.5 || off > 0.5 {
			t.Errorf("steps of %v change the energy by %.2f %%", step, off)
		}
	}
}

func TestNothingIsAllocatedByAStep(t *testing.T) {
	h := server(t, nil)
	populate(t, h, 50)
	h.Advance(time.Minute)
	if n := testing.AllocsPerRun(100, func() { h.Advance(time.Second) }); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}
