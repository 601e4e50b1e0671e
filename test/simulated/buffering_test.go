package simulated

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// learning is long enough for the manager to have tried all windows.
const learning = 30 * time.Minute

// small is a host of 4 cores with VMs of one profile.
func small(name string, profiled func(*model.VM), vms ...sim.VM) Bunched {
	return Bunched{Name: name, Seed: 1, Shape: sim.Shape{CoresPerPackage: 4}, Physics: sim.KVM, VMs: vms, Profiled: profiled}
}

// arriving is a VM with packets of 200 bytes towards it, and a tenth of them from it.
func arriving(name string, packets units.PacketsPerSecond) sim.VM {
	const bits = 200 * 8
	return sim.VM{Name: name, VCPUs: 2, Traffic: sim.Traffic{
		ToVM: units.BitsPerSecond(packets * bits), FromVM: units.BitsPerSecond(packets * bits / 10), PacketBytes: 200,
	}}
}

func tuned(t *testing.T, b Bunched) *Tuned {
	t.Helper()
	node, err := b.Tune()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.End(); err != nil {
			t.Error(err)
		}
	})
	return node
}

func (t *Tuned) must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// TestBufferingSavesStepByStep: on hosts with high rates and budgets windows become
// longer one by one, energy falls, and the plan stays.
func TestBufferingSavesStepByStep(t *testing.T) {
	t.Parallel()
	for _, b := range StudiedBuffering(1) {
		o, err := b.PlanBuffering(learning)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("simulated %s: %.2f W packages, %.2f W in all; buffered %.1f %% and %.1f %% less; windows %v, %d changes of the plan, handled %.3f",
			b.Name, o.Plain.Packages, o.Plain.Platform, 100*o.Packages(), 100*o.Platform(), o.Windows, o.Changes, o.Served)
		for vm, windows := range o.Windows {
			for i := 2; i < len(windows); i++ {
				if windows[i] != 2*windows[i-1] {
					t.Errorf("simulated %s: windows %v of VM %d are no steps", b.Name, windows, vm)
				}
			}
			if last := windows[len(windows)-1]; last < model.FloodWindow {
				t.Errorf("simulated %s: windows %v of VM %d end early", b.Name, windows, vm)
			}
		}
		if o.Packages() < 0.1 || o.Platform() < 0.05 || o.Served < 0.999 {
			t.Errorf("simulated %s: %+v", b.Name, o)
		}
	}
}

// TestAWindowThatHurtsIsLeft for a shorter one, and not tried again with VMs of the same
// profile: where a ring is small, packets are lost, which one VM is enough to tell. Where
// each request waits for a reply, there are fewer of them, which two VMs have to tell.
func TestAWindowThatHurtsIsLeft(t *testing.T) {
	t.Parallel()
	ring := arriving("a", 50_000)
	ring.Ring = 40 // of 50 packets in 1 ms
	waiting := arriving("a", 50_000)
	waiting.Traffic.RoundTrip = time.Millisecond
	for name, test := range map[string]struct {
		vm   sim.VM
		tell int
	}{"small ring": {ring, 1}, "requests that wait": {waiting, 2}} {
		t.Run(name, func(t *testing.T) {
			var vms []sim.VM
			for i := range test.tell + 1 {
				vm := test.vm
				vm.Name, vm.Traffic = fmt.Sprint("vm-", i), sim.Traffic{}
				vms = append(vms, vm)
			}
			node := tuned(t, small(name, throughput, vms...))
			var last time.Duration
			for i, pod := range node.Pods {
				node.must(t, node.Host.SetTraffic(pod, test.vm.Traffic))
				node.must(t, node.For(learning))
				got := node.Windows[i]
				t.Logf("simulated %s: windows of VM %d %v, %+v", name, i, got, node.Of(pod).Reasons)
				longest, end := slices.Max(got), got[len(got)-1]
				if i == 0 {
					last = end
				}
				if hurt := i < test.tell; (longest > end) != hurt || end != last || end == 0 {
					t.Errorf("windows of VM %d %v, want %v in the end, and longer ones before: %v", i, got, last, hurt)
				}
				truth, err := node.Host.VMTruth(pod)
				node.must(t, err)
				if truth.Served < 0.999 {
					t.Errorf("%.4f of the packets of VM %d are handled in the end", truth.Served, i)
				}
			}
		})
	}
}

// TestLossesDoNotAddUp: each window costs a VM less than its profile allows, two of them
// more. It ends with nine tenths of the packets that it has without, once it saw that twice.
func TestLossesDoNotAddUp(t *testing.T) {
	t.Parallel()
	vm := arriving("a", 50_000)
	vm.Traffic.RoundTrip = 1200 * time.Microsecond
	node := tuned(t, small("requests", throughput, vm))
	packets := func() float64 {
		node.must(t, node.For(pull))
		return float64(node.board.Latest().Rates.VMs[0].Traffic().PacketsPerSecond)
	}
	without := packets()
	node.must(t, node.For(4*learning))
	kept := packets() / without
	t.Logf("simulated: %.3f of the packets are left, windows %v", kept, node.Windows[0])
	if end := node.Windows[0]; kept < 0.9 || end[len(end)-1] == 0 {
		t.Errorf("simulated: %.3f of the packets are left, windows %v", kept, end)
	}
}

// TestSlowPacketsAreNotHeld, nor does anything change of the host's energy.
func TestSlowPacketsAreNotHeld(t *testing.T) {
	t.Parallel()
	b := small("slow", throughput, arriving("a", 3000), arriving("b", 6500), arriving("c", 500))
	o, err := b.PlanBuffering(10 * time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if o.Plain != o.Held || o.Kept != 0 || o.Passed == 0 {
		t.Errorf("simulated: %+v", o)
	}
	for vm, windows := range o.Windows {
		if len(windows) != 1 {
			t.Errorf("simulated VM %d: windows %v", vm, windows)
		}
	}
}

// TestFloodsAreDefendedAgainst: for VMs without a budget, while one lasts. Where the profile
// forbids it a flood is told of, and nothing is held for it.
func TestFloodsAreDefendedAgainst(t *testing.T) {
	t.Parallel()
	node := tuned(t, small("flood", func(vm *model.VM) {
		vm.TrafficClass, vm.OnPackets = model.TrafficInteractive, 10_000
		vm.Profile = vm.Name
		vm.DefendFloods = vm.Name == "defended"
		if vm.Name == "forbidden" {
			vm.LatencyBudget = time.Millisecond
		}
	}, arriving("defended", 200), arriving("forbidden", 12_000)))
	flooded := func(vm int) *model.Flood {
		rates := node.board.Latest().Rates
		for i := range rates.VMs {
			if rates.VMs[i].PodUID == node.Pods[vm] && rates.VMs[i].Buffering != nil {
				return rates.VMs[i].Buffering.Flood
			}
		}
		return nil
	}
	held := func(vm int, d time.Duration) float64 {
		before, err := node.Counters(vm)
		node.must(t, err)
		node.must(t, node.For(d))
		after, err := node.Counters(vm)
		node.must(t, err)
		return float64(after.Held-before.Held) / d.Seconds()
	}
	node.must(t, node.For(20*time.Minute))
	if vm := node.Of(node.Pods[1]); vm.Buffering.Window == 0 || vm.Buffering.FloodWindow != 0 {
		t.Fatalf("simulated: where floods are only told of, the plan is %+v", vm)
	}
	// The guest declines the window, and its host still watches.
	node.must(t, node.Host.SetGuestTools(node.Pods[1], &model.GuestTools{}))
	quiet := arriving("", 200).Traffic
	for _, pod := range node.Pods {
		node.must(t, node.Host.SetTraffic(pod, sim.Flood(10*mbit)))
	}
	changes := node.Changes
	node.must(t, node.For(time.Minute))
	for vm, most := range []float64{20_000, 0} {
		rate := held(vm, time.Minute)
		if flood := flooded(vm); flood == nil || flood.MeanBytes != 64 || rate > most || most > 0 && rate < 0.9*most {
			t.Errorf("simulated VM %d: %.0f packets/s are held, flood %+v", vm, rate, flood)
		}
	}
	for _, pod := range node.Pods {
		node.must(t, node.Host.SetTraffic(pod, quiet))
	}
	node.must(t, node.For(time.Minute))
	for vm := range node.Pods {
		if rate, flood := held(vm, time.Minute), flooded(vm); rate != 0 || flood != nil {
			t.Errorf("simulated VM %d after the flood: %.0f packets/s are held, flood %+v", vm, rate, flood)
		}
	}
	if node.Changes != changes {
		t.Errorf("the plan changed %d times for a flood", node.Changes-changes)
	}
}

// TestBufferingDoesNotWaver: on a host with traffic of all kinds windows come and stay.
func TestBufferingDoesNotWaver(t *testing.T) {
	t.Parallel()
	var vms []sim.VM
	for i, p := range []sim.Programme{
		{}, {Pattern: sim.Diurnal, Period: 20 * time.Minute, Swing: 0.9}, {Pattern: sim.Diurnal, Period: 2 * time.Hour, Swing: 0.8},
		{Pattern: sim.Bursty, Period: 30 * time.Second, Swing: 0.3}, {Pattern: sim.Bursty, Period: 5 * time.Minute, Swing: 0.5}, {Pattern: sim.Bursty, Period: 7 * time.Second, Swing: 0.2},
	} {
		vm := arriving(string(rune('a'+i)), units.PacketsPerSecond(11_000+6000*(i%3)))
		vm.Traffic.Programme = p
		vms = append(vms, vm)
	}
	b := small("mixed", throughput, vms...)
	b.Shape.CoresPerPackage = 8
	node := tuned(t, b)
	const hours = 3
	var changes []int
	last := 0
	for range hours {
		node.must(t, node.For(time.Hour))
		changes = append(changes, node.Changes-last)
		last = node.Changes
	}
	t.Logf("simulated: %d VMs of all kinds: plan changes by hour %v, windows %v", len(vms), changes, node.Windows)
	for hour, count := range changes[1:] {
		if count > 6 {
			t.Errorf("simulated: %d changes of the plan in hour %d: %v", count, hour+1, changes)
		}
	}
}

// TestOneGridLetsPackagesSleep: bunches that coincide leave the packages asleep for longer
// than such at times of their own.
func TestOneGridLetsPackagesSleep(t *testing.T) {
	t.Parallel()
	var vms []sim.VM
	for i := range 4 {
		vms = append(vms, arriving(string(rune('a'+i)), 12_000))
	}
	b := small("grid", throughput, vms...)
	var saved [2]float64
	for i, free := range []bool{false, true} {
		b.FreePhases = free
		o, err := b.PlanBuffering(learning)
		if err != nil {
			t.Fatal(err)
		}
		saved[i] = o.Packages()
		t.Logf("simulated, phases of their own %v: %.2f W, buffered %.2f W, %.1f %% less; windows %v", free, o.Plain.Packages, o.Held.Packages, 100*saved[i], o.Windows[0])
	}
	if saved[0] <= saved[1] {
		t.Errorf("simulated: one grid saves %.4f, phases of their own %.4f", saved[0], saved[1])
	}
}
