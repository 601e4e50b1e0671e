package learn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/learn"
	"github.com/joulevirt/joulevirt/internal/power/lsq"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/units"
)

// truth is a node that draws twice what its prior says, and VMs whose curve is
// of the form but not of the coefficients of their prior.
var truth = power.Coefficients{Idle: 60, PerBusyCore: 6, PerWakeUp: 4e-5, PerAwakeCore: 1.5}

func costOf(rate curve.Rate) power.Share {
	p := float64(rate.Packets)
	return power.Share{
		BusyCores: units.Cores(0.05 + 0.4*p/(p+1e4) + 0.5*p/1e5),
		WakeUps:   units.PerSecond(200 + 2e4*p/(p+1e4)),
	}
}

func topology(cores int) model.Topology {
	var t model.Topology
	for core := range cores {
		t.Cores = append(t.Cores, model.Core{CPUs: units.NewCPUSet(core)})
	}
	return t
}

func defaults(t testing.TB) learn.Options {
	t.Helper()
	priors, err := prior.Default()
	if err != nil {
		t.Fatal(err)
	}
	return learn.Options{Power: priors.Node(topology(32)), Curve: priors.Curve}
}

func start(t testing.TB, options learn.Options) *learn.Node {
	t.Helper()
	n, err := learn.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// fleet is VMs of a node with 32 cores, whose traffic goes its own way.
type fleet struct {
	random  *rand.Rand
	watts   units.Watts
	vms     []curve.Observation
	classes int
}

func newFleet(vms, classes int) *fleet {
	return &fleet{random: rand.New(rand.NewPCG(1, 0)), vms: make([]curve.Observation, vms), classes: classes}
}

// round returns the next sample. What it points to is of this round only.
func (f *fleet) round() learn.Sample {
	var load power.Load
	for i := range f.vms {
		packets := math.Pow(10, 2+2.5*f.random.Float64())
		rate := curve.Rate{Packets: units.PacketsPerSecond(packets), Bits: units.BitsPerSecond(8000 * packets)}
		cost := costOf(rate)
		f.vms[i] = curve.Observation{
			Key: curve.Key{Class: curve.ClassOf(1<<(i%f.classes), true)}, Rate: rate,
			HostCores: cost.BusyCores * units.Cores(1+0.05*f.random.NormFloat64()), WakeUps: cost.WakeUps,
			VCPUUse: cost.BusyCores / 2, VhostUse: cost.BusyCores / 4,
		}
		load.BusyCores += f.vms[i].HostCores
		load.WakeUps += f.vms[i].WakeUps
	}
	load.BusyCores += units.Cores(f.random.Float64())
	load.AwakeCores = min(32, load.BusyCores*units.Cores(1+f.random.Float64()))
	f.watts = truth.At(load) + units.Watts(f.random.NormFloat64())
	return learn.Sample{Seconds: 15, Load: load, Watts: &f.watts, VMs: f.vms}
}

// TestLearnsWhatAChangeSaves: after an hour a saving by skewed traffic, which
// neither the node's model nor the curves know alone, is predicted.
func TestLearnsWhatAChangeSaves(t *testing.T) {
	n, f := start(t, defaults(t)), newFleet(20, 1)
	for round := range 240 {
		result := n.Update(f.round())
		if result.LeftOut > 0 || (round > 20 && result.Power == lsq.Refused) {
			t.Fatalf("round %d: %+v", round, result)
		}
	}
	rate := func(packets float64) curve.Rate {
		return curve.Rate{Packets: units.PacketsPerSecond(packets), Bits: units.BitsPerSecond(8000 * packets)}
	}
	var changes []curve.Change
	var before, after power.Load
	for _, packets := range []float64{100, 100, 100, 100, 19600} {
		change := curve.Change{Key: curve.Key{Class: curve.ClassOf(1, true)}, From: rate(4000), To: rate(packets)}
		changes = append(changes, change)
		from, to := costOf(change.From), costOf(change.To)
		before.BusyCores, before.WakeUps = before.BusyCores+from.BusyCores, before.WakeUps+from.WakeUps
		after.BusyCores, after.WakeUps = after.BusyCores+to.BusyCores, after.WakeUps+to.WakeUps
	}
	got, err := n.WhatIf().Traffic(changes)
	if err != nil {
		t.Fatal(err)
	}
	want := truth.At(before) - truth.At(after)
	if miss := float64(got.Watts - want); math.Abs(miss) > 0.2*float64(want) || math.Abs(miss) > 1.96*float64(got.StdErr) {
		t.Errorf("predicted %.2f +- %.2f W, the truth is %.2f W", got.Watts, got.StdErr, want)
	}
	if accuracy := n.Model().Accuracy(); accuracy.Samples != 240 || accuracy.MeanRelativeError > 0.03 {
		t.Errorf("accuracy %+v after an hour", accuracy)
	}
}

// TestWithoutMeter: VMs are learned, the node's power is not.
func TestWithoutMeter(t *testing.T) {
	options := defaults(t)
	n, f := start(t, options), newFleet(5, 1)
	for range 10 {
		sample := f.round()
		sample.Watts = nil
		if got := n.Update(sample); got != (learn.Result{Power: lsq.Refused}) {
			t.Fatalf("%+v", got)
		}
	}
	if diff := cmp.Diff(power.NewNodeModel(options.Power).Coefficients(), n.Model().Coefficients()); diff != "" {
		t.Errorf("coefficients without a meter (-prior +got):\n%s", diff)
	}
	if seconds := n.WhatIf().Curves.Seconds(curve.Key{Class: curve.ClassOf(1, true)}); seconds != 5*10*15 {
		t.Errorf("the class was learned from %v VM-seconds, want 750", seconds)
	}
}

func TestNonsenseIsLeftOut(t *testing.T) {
	n, f := start(t, defaults(t)), newFleet(3, 1)
	sample := f.round()
	sample.VMs[0].HostCores = units.Cores(math.NaN())
	sample.VMs[2].Rate.Packets = -1
	if got := n.Update(sample); got.LeftOut != 2 || got.Power == lsq.Refused {
		t.Errorf("%+v, want two VMs left out, and the power learned", got)
	}
	watts := units.Watts(math.Inf(1))
	before := n.Model().Coefficients()
	for _, sample := range []learn.Sample{
		{},
		{Seconds: 15, Watts: &watts},
		{Seconds: math.NaN(), Watts: &f.watts, VMs: f.vms[1:2]},
		{Seconds: -1, Watts: &f.watts, VMs: f.vms[1:2]},
	} {
		if got := n.Update(sample); got.Power != lsq.Refused || got.LeftOut != len(sample.VMs) {
			t.Errorf("%+v: %+v, want everything refused", sample, got)
		}
	}
	if after := n.Model().Coefficients(); after != before {
		t.Errorf("coefficients went from %+v to %+v", before, after)
	}
}

// TestClassesAreBounded: whatever classes VMs claim to be of, a node keeps few.
func TestClassesAreBounded(t *testing.T) {
	options := defaults(t)
	options.Curves = 3
	n := start(t, options)
	key := func(i int) curve.Key { return curve.Key{Class: "class-" + strconv.Itoa(i)} }
	for i := range 1000 {
		o := curve.Observation{Key: key(i), Rate: curve.Rate{Packets: 100, Bits: 1e6}, HostCores: 0.1, WakeUps: 100}
		if got := n.Update(learn.Sample{Seconds: 15, VMs: []curve.Observation{o}}); got.LeftOut != 0 {
			t.Fatalf("class %d: %+v", i, got)
		}
	}
	kept := 0
	for i := range 1000 {
		if n.WhatIf().Curves.Seconds(key(i)) > 0 {
			kept++
		}
	}
	if kept != 3 || n.WhatIf().Curves.Seconds(key(999)) == 0 {
		t.Errorf("%d classes are kept, want the newest 3", kept)
	}
}

func TestAttributeByWhatWasLearned(t *testing.T) {
	n, f := start(t, defaults(t)), newFleet(20, 1)
	for range 240 {
		n.Update(f.round())
	}
	sample := f.round()
	shares, into := make([]power.Share, len(sample.VMs)), make([]units.Watts, len(sample.VMs))
	for i, vm := range sample.VMs {
		shares[i] = power.Share{BusyCores: vm.HostCores, WakeUps: vm.WakeUps}
	}
	idle, system := power.Attribute(n.Model().Coefficients(), *sample.Watts, sample.Load, shares, into)
	sum := idle + system
	for _, watts := range into {
		sum += watts
	}
	if math.Abs(float64(sum-*sample.Watts)) > 1e-9 || math.Abs(float64(idle-truth.Idle)) > 0.25*float64(truth.Idle) {
		t.Errorf("idle %v W, system %v W, VMs %v: their sum is %v of %v W", idle, system, into, sum, *sample.Watts)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, options := range map[string]learn.Options{
		"no priors of curves": {},
		"negative limit":      {Curve: func(curve.Key) curve.Prior { return curve.Prior{} }, Curves: -1},
	} {
		if n, err := learn.New(options); err == nil || n != nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestObservations(t *testing.T) {
	tap := []model.TapRates{{ToVM: model.TrafficRates{PacketsPerSecond: 100, BitsPerSecond: 1e6}}}
	vms := []model.VMRates{
		{Name: "plain", Taps: tap, VCPUs: []model.VCPURates{{ThreadRates: model.ThreadRates{RunCores: 0.5}}}},
		{Name: "without a tap", VCPUs: []model.VCPURates{{ThreadRates: model.ThreadRates{RunCores: 0.5}}}},
		{Name: "buffered", Taps: tap, VCPUs: make([]model.VCPURates, 4), Vhost: model.ThreadRates{RunCores: 0.1}},
	}
	window := func(vm *model.VMRates) time.Duration {
		if vm.Name == "buffered" {
			return time.Millisecond
		}
		return 0
	}
	var got []curve.Key
	for _, o := range learn.Observations(nil, vms, window) {
		got = append(got, o.Key)
	}
	want := []curve.Key{{Class: curve.ClassOf(1, false)}, {Class: curve.ClassOf(4, true), Window: time.Millisecond}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
}

func TestUpdateDoesNotAllocate(t *testing.T) {
	n, f := start(t, defaults(t)), newFleet(100, 4)
	for range 100 {
		n.Update(f.round())
	}
	if allocations := testing.AllocsPerRun(200, func() { n.Update(f.round()) }); allocations != 0 {
		t.Errorf("%g allocations per round, want none", allocations)
	}
}

// BenchmarkUpdate100VMs is a round of a node with 100 VMs in steady state. The
// product's bound is 50 us.
func BenchmarkUpdate100VMs(b *testing.B) {
	for _, classes := range []int{1, 4} {
		b.Run(fmt.Sprintf("classes=%d", classes), func(b *testing.B) {
			n, f := start(b, defaults(b)), newFleet(100, classes)
			const rounds = 64
			var samples [rounds]learn.Sample
			var watts [rounds]units.Watts
			for i := range samples {
				samples[i] = f.round()
				watts[i] = *samples[i].Watts
				samples[i].Watts = &watts[i]
				samples[i].VMs = append([]curve.Observation(nil), samples[i].VMs...)
				n.Update(samples[i])
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				n.Update(samples[i%rounds])
				i++
			}
		})
	}
}
