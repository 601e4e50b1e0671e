package whatif

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/units"
)

// largeHost has 32 cores, and knows its priors only.
func largeHost(t testing.TB) Host {
	t.Helper()
	priors, err := prior.Default()
	if err != nil {
		t.Fatal(err)
	}
	var topology model.Topology
	for core := range 32 {
		topology.Cores = append(topology.Cores, model.Core{CPUs: units.NewCPUSet(core)})
	}
	return Host{Model: power.NewNodeModel(priors.Node(topology)), Curves: curve.New(priors.Curve)}
}

// truth is a node that draws twice what its prior says, and VMs whose traffic costs half
// more than what theirs says.
var truth = power.Coefficients{Idle: 60, PerBusyCore: 6, PerWakeUp: 4e-5, PerAwakeCore: 1.5}

func costOf(rate curve.Rate) power.Share {
	p, gbit := float64(rate.Packets), float64(rate.Bits)/1e9
	return power.Share{
		BusyCores: units.Cores(0.05 + 1.5*(0.024*p/1e5+0.92*p/(p+1e5)+0.0625*gbit)),
		WakeUps:   units.PerSecond(200 + 1.5*(8560*p/(p+1e4)+33_500*p/(p+1e5))),
	}
}

// fleet is VMs of a node with 32 cores, whose traffic goes its own way.
type fleet struct {
	random  *rand.Rand
	vms     []curve.Observation
	classes int
}

func newFleet(vms, classes int) *fleet {
	return &fleet{random: rand.New(rand.NewPCG(1, 0)), vms: make([]curve.Observation, vms), classes: classes}
}

// round is 15 s of a node.
type round struct {
	load  power.Load
	watts units.Watts
	vms   []curve.Observation
}

// learn from a round.
func (r *round) learn(h Host) {
	h.Model.Update(r.load, r.watts, 15)
	for _, vm := range r.vms {
		h.Curves.Observe(vm, 15)
	}
	h.Curves.EndRound()
}

func (f *fleet) round() round {
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
	return round{load, truth.At(load) + units.Watts(f.random.NormFloat64()), slices.Clone(f.vms)}
}

// TestLearnsWhatAChangeSaves: after an hour a saving by skewed traffic, which
// neither the node's model nor the curves know alone, is predicted.
func TestLearnsWhatAChangeSaves(t *testing.T) {
	n, f := largeHost(t), newFleet(20, 1)
	for range 240 {
		r := f.round()
		r.learn(n)
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
	got, err := n.Traffic(changes)
	if err != nil {
		t.Fatal(err)
	}
	want := truth.At(before) - truth.At(after)
	if miss := float64(got.Watts - want); math.Abs(miss) > 0.2*float64(want) || math.Abs(miss) > 1.96*float64(got.StdErr) {
		t.Errorf("predicted %.2f +- %.2f W, the truth is %.2f W", got.Watts, got.StdErr, want)
	}
	if accuracy := n.Model.Accuracy(); accuracy.Samples != 240 || accuracy.MeanRelativeError > 0.03 {
		t.Errorf("accuracy %+v after an hour", accuracy)
	}
}

// TestClassesAreBounded: whatever classes VMs claim to be of, a node keeps few.
func TestClassesAreBounded(t *testing.T) {
	const most = 64
	n := largeHost(t)
	key := func(i int) curve.Key { return curve.Key{Class: "class-" + strconv.Itoa(i)} }
	for i := range 1000 {
		o := curve.Observation{Key: key(i), Rate: curve.Rate{Packets: 100, Bits: 1e6}, HostCores: 0.1, WakeUps: 100}
		n.Curves.Observe(o, 15)
	}
	kept := 0
	for i := range 1000 {
		if n.Curves.Seconds(key(i)) > 0 {
			kept++
		}
	}
	if kept != most || n.Curves.Seconds(key(999)) == 0 {
		t.Errorf("%d classes are kept, want the newest %d", kept, most)
	}
}

// BenchmarkUpdate100VMs is a round of a node with 100 VMs in steady state. The
// product's bound is 50 us.
func BenchmarkUpdate100VMs(b *testing.B) {
	for _, classes := range []int{1, 4} {
		b.Run(fmt.Sprintf("classes=%d", classes), func(b *testing.B) {
			n, f := largeHost(b), newFleet(100, classes)
			const rounds = 64
			var samples [rounds]round
			for i := range samples {
				samples[i] = f.round()
				samples[i].learn(n)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				samples[i%rounds].learn(n)
				i++
			}
			if classes == 4 {
				b.Logf("figure model_update_us %.4g us", float64(b.Elapsed().Nanoseconds())/1e3/float64(b.N))
			}
		})
	}
}
