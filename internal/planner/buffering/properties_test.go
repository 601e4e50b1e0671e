package buffering

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// draw makes anything that a node may be like.
type draw struct{ r *rand.Rand }

func (d draw) window() time.Duration {
	return []time.Duration{0, 125 * us, 250 * us, 500 * us, 1000 * us}[d.r.IntN(5)]
}

func (d draw) vm() model.VM {
	vm := newVM()
	vm.TrafficClass = []v1alpha1.TrafficClass{v1alpha1.TrafficInteractive, v1alpha1.TrafficThroughput, v1alpha1.TrafficDeferrable, ""}[d.r.IntN(4)]
	vm.LatencyBudget = time.Duration(d.r.IntN(2500)) * us
	if d.r.IntN(4) == 0 {
		vm.LatencyBudget = 0
	}
	vm.OnPackets = units.PacketsPerSecond(1000 * d.r.IntN(31))
	vm.DefendFloods = d.r.IntN(2) == 0
	for range d.r.IntN(3) {
		vm.Services = append(vm.Services, model.Service{UDP: d.r.IntN(2) == 0, Port: uint16(d.r.IntN(3))})
	}
	for w := time.Duration(0); w <= model.LongestWindow; w = max(2*w, model.ShortestWindow) {
		if d.r.IntN(3) == 0 {
			continue
		}
		t := trial(w, 0.05+d.r.Float64())
		t.Seconds = 100 * d.r.Float64()
		t.FastestPerSecond = units.PacketsPerSecond(d.r.IntN(20_000))
		t.CoresPerPacket *= 0.9 + 0.2*d.r.Float64()
		if d.r.IntN(5) == 0 {
			t.DropShare = 0.001 * d.r.Float64()
		}
		vm.Tuning.Trials = append(vm.Tuning.Trials, t)
	}
	if d.r.IntN(4) == 0 {
		vm.Tuning.Hurts = []model.Hurt{{Window: d.window(), Until: now().Add(time.Duration(d.r.IntN(3)-1) * time.Hour), Why: "it was seen"}}
	}
	return vm
}

func (d draw) inForce() model.Buffering {
	return model.Buffering{Window: d.window(), FloodWindow: 500 * us, OnPackets: 10_000}
}

// Whatever was seen, a choice is one that an agent can do and the profile allows.
func TestChoicesAreAllowed(t *testing.T) {
	for seed := range uint64(5000) {
		d := draw{rand.New(rand.NewPCG(seed, 1))}
		vm, current := d.vm(), d.inForce()
		got := Choose(vm, oneTap(), current, now())
		check(t, vm, got)
		if got.Window > max(2*current.Window, 2*firstWindow(&vm)) {
			t.Fatalf("seed %d: from %v to %v", seed, current.Window, got.Window)
		}
		if diff := cmp.Diff(got, Choose(vm, oneTap(), current, now())); diff != "" {
			t.Fatalf("seed %d: not a function: %s", seed, diff)
		}
		less := Allowed(&vm, current, now())
		if !HoldsLess(less, current) || less.Window > Longest(&vm) || !less.IsZero() && !less.IsValid() {
			t.Fatalf("seed %d: of %+v is allowed %+v", seed, current, less)
		}
		if again := Allowed(&vm, less, now()); !again.Equal(less) {
			t.Fatalf("seed %d: of %+v is allowed %+v", seed, less, again)
		}
	}
}

func check(t *testing.T, vm model.VM, got Choice) {
	t.Helper()
	if got.Window != 0 && (!model.IsWindow(got.Window) || 2*got.Window > vm.LatencyBudget) {
		t.Fatalf("window %v with a budget of %v", got.Window, vm.LatencyBudget)
	}
	if vm.TrafficClass != v1alpha1.TrafficThroughput && vm.TrafficClass != v1alpha1.TrafficDeferrable && got.Window > 250*us {
		t.Fatalf("window %v of class %q", got.Window, vm.TrafficClass)
	}
	if got.FloodWindow != 0 && !vm.DefendFloods || got.FloodWindow > model.FloodWindow {
		t.Fatalf("flood window %v, allowed %t", got.FloodWindow, vm.DefendFloods)
	}
	if got.IsZero() && !got.Equal(model.Buffering{}) || !got.IsZero() && !got.IsValid() {
		t.Fatalf("no agent can do %+v", got.Buffering)
	}
	for _, hurt := range vm.Tuning.Hurts {
		if model.IsWindow(hurt.Window) && now().Before(hurt.Until) && got.Window >= hurt.Window {
			t.Fatalf("window %v, and %v hurt", got.Window, hurt.Window)
		}
	}
	if got.Reason == "" || got.Message == "" || len(got.Message) > 256 {
		t.Fatalf("reason %q, message %q", got.Reason, got.Message)
	}
	buffered, floods := got.Reason == v1alpha1.ReasonBuffered, got.Reason == v1alpha1.ReasonFloodDefenceOnly
	if buffered != (got.Window > 0) || floods != (got.Window == 0 && got.FloodWindow > 0) {
		t.Fatalf("reason %s of %+v", got.Reason, got.Buffering)
	}
}

// A larger budget never makes a window shorter, nor does it change anything else.
func TestWindowsGrowWithTheBudget(t *testing.T) {
	for seed := range uint64(3000) {
		d := draw{rand.New(rand.NewPCG(seed, 2))}
		vm, current := d.vm(), d.inForce()
		var last time.Duration
		for budget := time.Duration(0); budget <= 3*time.Millisecond; budget += 125 * us {
			vm.LatencyBudget = budget
			got := Choose(vm, oneTap(), current, now()).Window
			if got < last {
				t.Fatalf("seed %d: %v with a budget of %v, %v with less: %+v", seed, got, budget, last, vm)
			}
			last = got
		}
	}
}

// With what was seen unchanged, windows settle.
func TestWindowsSettle(t *testing.T) {
	for seed := range uint64(3000) {
		d := draw{rand.New(rand.NewPCG(seed, 3))}
		vm, current := d.vm(), d.inForce()
		for range 6 {
			current = Choose(vm, oneTap(), current, now()).Buffering
		}
		if got := Choose(vm, oneTap(), current, now()); !got.Equal(current) {
			t.Fatalf("seed %d: %v follows %v: %+v", seed, got.Window, current.Window, vm.Tuning)
		}
	}
}
