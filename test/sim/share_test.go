package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// bind binds all threads of a VM.
func bind(t testing.TB, h *Host, v *vm, cpus ...int) {
	t.Helper()
	for i := range v.threads {
		if err := h.SetAffinity(v.threads[i].id, units.NewCPUSet(cpus...)); err != nil {
			t.Fatal(err)
		}
	}
}

// slice sets the slice of all threads of a VM.
func slice(t testing.TB, h *Host, v *vm, slice time.Duration) {
	t.Helper()
	for i := range v.threads {
		if err := h.SetSlice(v.threads[i].id, slice); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSharesFollowWeights: hogs on crowded CPUs get what the kernel gives to their
// pods, a pod's weight split over the CPUs where it has something to run.
func TestSharesFollowWeights(t *testing.T) {
	type pod struct {
		vcpus  int
		weight float64
		cpus   []int
		want   float64 // cores, all vCPUs together
	}
	for name, pods := range map[string][]pod{
		"equal":    {{1, 0, []int{0}, 0.5}, {1, 0, []int{0}, 0.5}},
		"weighted": {{1, 1024, []int{0}, 0.25}, {1, 3072, []int{0}, 0.75}},
		// All of a large pod's weight is where its only busy vCPU is.
		"one busy vCPU": {{1, 1024, []int{0}, 1.0 / 9}, {1, 8192, []int{0}, 8.0 / 9}},
		// With eight, each brings an eighth of it.
		"all vCPUs busy":   {{1, 1024, []int{0, 1, 2, 3}, 4.0 / 9}, {8, 0, []int{0, 1, 2, 3}, 32.0 / 9}},
		"split over CPUs":  {{2, 2048, []int{0, 1}, 1}, {1, 1024, []int{0}, 0.5}, {1, 1024, []int{1}, 0.5}},
		"room of another":  {{1, 10, []int{0}, 1}, {1, 1e5, []int{1}, 1}},
		"more than enough": {{1, 1e6, []int{0, 1}, 1}, {2, 10, []int{0, 1}, 1}},
	} {
		h := study(t, KVM())
		for _, p := range pods {
			add(t, h, VM{VCPUs: p.vcpus, Weight: p.weight, Compute: Compute{Cores: units.Cores(p.vcpus)}})
			bind(t, h, h.vms[len(h.vms)-1], p.cpus...)
		}
		h.Advance(time.Minute)
		for i, p := range pods {
			ran := 0.0
			for j := range h.vms[i].threads {
				ran += h.vms[i].threads[j].run / 60
			}
			if math.Abs(ran-p.want) > 0.01 {
				t.Errorf("%s: pod %d got %.3f CPUs, want %.3f", name, i, ran, p.want)
			}
		}
	}
}

// TestASmallNetworkVMStarves beside one busy vCPU of a large pod, whatever the
// slices: it shows in its wait, its drops and its backlog. A core of its own cures it,
// and so does an equal weight.
func TestASmallNetworkVMStarves(t *testing.T) {
	served := func(weight float64, slices bool, cpu int) (VMTruth, host.ProcessSample) {
		h := study(t, KVM())
		pod := add(t, h, VM{Traffic: Traffic{ToVM: 300 * mbit}})
		add(t, h, VM{Weight: weight, Compute: Compute{Cores: 1}})
		// It stands for the one busy vCPU of several.
		bind(t, h, h.vms[0], 0)
		bind(t, h, h.vms[1], cpu)
		if slices {
			slice(t, h, h.vms[0], time.Millisecond)
			slice(t, h, h.vms[1], 30*time.Millisecond)
		}
		h.Advance(time.Minute)
		truth, err := h.VMTruth(pod)
		if err != nil {
			t.Fatal(err)
		}
		sample, err := h.Sample(h.vms[0].id)
		if err != nil {
			t.Fatal(err)
		}
		return truth, sample
	}
	for name, test := range map[string]struct {
		weight    float64
		slices    bool
		cpu       int
		low, high float64 // of the traffic, handled
	}{
		"beside a large pod":              {8192, false, 0, 0.3, 0.5},
		"beside a large pod, with slices": {8192, true, 0, 0.3, 0.5},
		"beside an equal one":             {1024, false, 0, 0.95, 1},
		"alone":                           {8192, false, 1, 1, 1},
	} {
		truth, sample := served(test.weight, test.slices, test.cpu)
		tap, waited := sample.Taps[0], 0.0
		for _, thread := range sample.Threads {
			waited += thread.Wait.Seconds() / 60
		}
		t.Logf("%s: %.3f handled, %d of %d packets dropped, %d bytes wait, threads wait %.2f", name, truth.Served,
			tap.ToVM.Drops, tap.ToVM.Packets+tap.ToVM.Drops, *tap.Backlog, waited)
		if truth.Served < test.low || truth.Served > test.high {
			t.Errorf("%s: %.3f is handled, want %v to %v", name, truth.Served, test.low, test.high)
		}
		starves := test.high < 1
		if dropped := float64(tap.ToVM.Drops) / float64(tap.ToVM.Drops+tap.ToVM.Packets); math.Abs(dropped-(1-truth.Served)) > 0.01 {
			t.Errorf("%s: %.3f dropped, %.3f handled", name, dropped, truth.Served)
		}
		if full := *tap.Backlog == tapQueue*1500; full != starves || starves && waited < 0.9 {
			t.Errorf("%s: %d bytes wait, and its threads %.2f of their time", name, *tap.Backlog, waited)
		}
	}
}

// TestSlicesShortenWaits: beside a hog whose share leaves enough, a network VM of
// short slice hardly waits, and with long slices its tap's queue overflows. Neither
// changes the power.
func TestSlicesShortenWaits(t *testing.T) {
	type result struct{ wait, lost, watts, switches float64 }
	try := func(network, compute time.Duration) result {
		h := study(t, KVM())
		pod := add(t, h, VM{Weight: 8192, Traffic: Traffic{ToVM: 40 * mbit, PacketBytes: 100}})
		add(t, h, VM{Compute: Compute{Cores: 1}})
		for i := range h.vms {
			bind(t, h, h.vms[i], 0)
		}
		slice(t, h, h.vms[0], network)
		slice(t, h, h.vms[1], compute)
		h.Advance(time.Minute)
		truth, err := h.VMTruth(pod)
		if err != nil {
			t.Fatal(err)
		}
		worker := h.vms[0].threads[2]
		return result{worker.wait / 60, 1 - truth.Served, float64(h.Truth().Packages), h.vms[1].threads[1].switches / 60}
	}
	usual, short, long := try(0, 0), try(time.Millisecond, 30*time.Millisecond), try(100*time.Millisecond, 100*time.Millisecond)
	t.Logf("usual %+v, short and long slices %+v, all long %+v", usual, short, long)
	if short.wait > usual.wait/5 || short.lost > 1e-6 {
		t.Errorf("with a short slice it waits %.3f of its time and loses %.3f, without %.3f", short.wait, short.lost, usual.wait)
	}
	if long.lost < 0.05 || usual.lost > 0.01 {
		t.Errorf("%.3f is lost with long slices, %.3f with the usual ones", long.lost, usual.lost)
	}
	if math.Abs(relative(short.watts, usual.watts)) > 0.1 {
		t.Errorf("%.2f W with slices, %.2f W without", short.watts, usual.watts)
	}
	if long.switches > usual.switches/3 {
		t.Errorf("the hog is switched %.0f times a second with long slices, %.0f with usual ones", long.switches, usual.switches)
	}
}

// TestShorterSlicesGoFirst: network VMs of short slices wait for one another as before when a VM of a
// long slice computes beside them, and that one waits for all of them.
func TestShorterSlicesGoFirst(t *testing.T) {
	waits := func(computes bool) (network, compute, busy float64) {
		h := study(t, KVM())
		for range 2 {
			add(t, h, VM{Traffic: Traffic{FromVM: 60 * mbit}})
		}
		if computes {
			add(t, h, VM{Compute: Compute{Cores: 0.1}})
		}
		for i, v := range h.vms {
			bind(t, h, v, 0)
			slice(t, h, v, []time.Duration{time.Millisecond, time.Millisecond, 30 * time.Millisecond}[i])
		}
		h.Advance(time.Minute)
		for _, v := range h.vms[:2] {
			for i := range v.threads {
				network += v.threads[i].wait / 60
				busy += v.threads[i].run / 60
			}
		}
		if computes {
			compute = h.vms[2].threads[1].wait / 60
		}
		return network, compute, busy
	}
	alone, _, busy := waits(false)
	beside, compute, _ := waits(true)
	if math.Abs(relative(beside, alone)) > 1 || alone < 0.01 {
		t.Errorf("beside a VM that computes network VMs wait %.4f, alone %.4f", beside, alone)
	}
	if want := 0.1 * (1/((1-busy)*(1-busy)) - 1); math.Abs(relative(compute, want)) > 5 {
		t.Errorf("the VM that computes waits %.4f beside network VMs that run %.3f, want %.4f", compute, busy, want)
	}
}

// TestNothingIsGrantedTwice: on hosts full of VMs with random masks and weights, each
// CPU gives no more than it has, and nothing less while anybody wants it.
func TestNothingIsGrantedTwice(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		h := server(t, func(c *Config) { c.Seed, c.Shape = seed, Shape{CoresPerPackage: 4, ThreadsPerCore: 1 + int(seed%2)} })
		cpus := h.online.Len()
		for i := range 3 + random.IntN(12) {
			vcpus := 1 + random.IntN(4)
			add(t, h, VM{
				Namespace: "a", Name: fmt.Sprint(i), VCPUs: vcpus, Weight: 100 * math.Exp(5*random.Float64()),
				Traffic: Traffic{ToVM: units.BitsPerSecond(200 * mbit * random.Float64())},
				Compute: Compute{Cores: units.Cores(float64(vcpus) * random.Float64())},
			})
			v := h.vms[len(h.vms)-1]
			for j := range v.threads {
				if first := random.IntN(2 * cpus); first < cpus {
					if err := h.SetAffinity(v.threads[j].id, units.NewCPUSet(first, (first+random.IntN(3))%cpus)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if err := h.SetUnmanaged(Unmanaged{Compute: Compute{Cores: units.Cores(3 * random.Float64())}}); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			h.Advance(time.Second)
			checkGrants(t, h)
		}
	}
}

func checkGrants(t *testing.T, h *Host) {
	t.Helper()
	wanted, granted := 0.0, 0.0
	for _, v := range h.vms {
		for j := range v.threads {
			one := &v.threads[j]
			wanted, granted = wanted+one.demand, granted+one.granted
			if !(one.granted >= 0 && one.granted <= one.demand) {
				t.Fatalf("a thread that wants %v is granted %v", one.demand, one.granted)
			}
		}
	}
	for i := range h.others {
		o := &h.others[i]
		wanted, granted = wanted+o.demand, granted+o.granted
		if !(o.granted >= 0 && o.granted <= o.demand) {
			t.Fatalf("other work that wants %v is granted %v", o.demand, o.granted)
		}
	}
	// All load is placed; what is above a CPU's room is what is not granted.
	over, load := 0.0, 0.0
	for _, l := range h.cpus.load {
		over += max(0, l-1)
		load += l
	}
	soft := load - wanted
	if short := wanted - granted; math.Abs(short-over) > 1e-6*load || soft < -1e-9 {
		t.Fatalf("%v CPUs are wanted and %v granted; the CPUs have %v too little", wanted, granted, over)
	}
}

// TestLimits: a VM with a limit runs no more than that, and the rest of what it wants is throttled.
func TestLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		limit, run, throttled float64 // cores
		periods               float64 // share of those in which the limit is used up
	}{
		"no limit":             {0, 2, 0, 0},
		"more than it can use": {3, 2, 0, 0},
		"less":                 {0.5, 0.5, 1.5, 1},
	} {
		h := study(t, KVM())
		add(t, h, VM{VCPUs: 2, LimitCores: tc.limit, Compute: Compute{Cores: 2}})
		h.Advance(time.Minute)
		sample, err := h.Sample(h.vms[0].id)
		if err != nil {
			t.Fatal(err)
		}
		var run, wait time.Duration
		for _, thread := range sample.Threads {
			run += thread.Run
			if strings.HasPrefix(thread.Name, "CPU ") {
				wait += thread.Wait
			}
		}
		near := func(got time.Duration, cores float64) bool { return math.Abs(got.Minutes()-cores) < 0.02 }
		if !near(run, tc.run) || !near(wait, tc.throttled) {
			t.Errorf("%s: ran %v and waited %v in a minute", name, run, wait)
		}
		if (sample.Throttling == nil) != (tc.limit == 0) {
			t.Errorf("%s: %+v", name, sample.Throttling)
		}
		if x := sample.Throttling; x != nil && (!near(x.Time, tc.throttled) || math.Abs(float64(x.Throttled)-tc.periods*float64(x.Periods)) > 1 || x.Periods < 590) {
			t.Errorf("%s: %+v", name, x)
		}
	}
}
