package curve

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// roundSeconds is how long a round is here.
const roundSeconds = 15

// truth is a class of VMs whose cost is known.
type truth struct {
	cores, wakeUps Terms
	excess, knee   float64
	bitsPerPacket  float64
	// usePerPacket of the busiest vCPU.
	usePerPacket float64
}

func typical() truth {
	return truth{
		cores: Terms{0.05, 0.15, 0.02, 0.1, 0.3, 0.05}, wakeUps: Terms{120, 1000, 500, 6000, 20000, 0},
		bitsPerPacket: 8000, usePerPacket: 0.2 / 1e5, knee: 3e5, excess: 2,
	}
}

func (tr truth) rate(packets float64) Rate {
	return Rate{Packets: units.PacketsPerSecond(packets), Bits: units.BitsPerSecond(packets * tr.bitsPerPacket)}
}

func (tr truth) coresAt(packets float64) float64 {
	return along(tr.cores, tr.excess, tr.knee, packets, tr.bitsPerPacket)
}

func (tr truth) observe(key Key, packets, noise float64) Observation {
	terms := At(tr.rate(packets))
	return Observation{
		Key: key, Rate: tr.rate(packets),
		HostCores: units.Cores(max(0, tr.coresAt(packets)*(1+noise))),
		WakeUps:   units.PerSecond(max(0, dot(&tr.wakeUps, &terms)*(1-noise))),
		VCPUUse:   units.Cores(tr.usePerPacket * packets),
	}
}

func newSet(t *testing.T, options Options) *Set {
	t.Helper()
	s, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustObserve(t *testing.T, s *Set, o Observation) {
	t.Helper()
	if err := s.Observe(o, roundSeconds); err != nil {
		t.Fatal(err)
	}
}

func mustCost(t *testing.T, s *Set, key Key, rate Rate) Cost {
	t.Helper()
	cost, err := s.Cost(key, rate)
	if err != nil {
		t.Fatal(err)
	}
	return cost
}

// teach shows a set VMs at rates from 100 packets/s on.
func teach(t *testing.T, s *Set, key Key, tr truth, high float64, rounds int) {
	t.Helper()
	const low = 100
	r := rand.New(rand.NewPCG(3, 4))
	for range rounds {
		for range 10 {
			packets := low * math.Pow(high/low, r.Float64())
			mustObserve(t, s, tr.observe(key, packets, 0.05*r.NormFloat64()))
		}
		s.EndRound()
	}
}

func TestPriorSpeaksUntilThereIsData(t *testing.T) {
	s := newSet(t, Options{Prior: flat})
	key, tr := Key{Class: ClassOf(2, true)}, typical()
	prior := flat(key)
	terms := At(tr.rate(2e4))
	var variance float64
	for i := range terms {
		variance += square(terms[i] * prior.CoresStdDev[i])
	}
	got := mustCost(t, s, key, tr.rate(2e4))
	if want := dot(&prior.Cores, &terms); math.Abs(float64(got.Cores)-want) > 1e-12 {
		t.Errorf("cores %v, the prior says %v", got.Cores, want)
	}
	if want := math.Sqrt(variance); math.Abs(float64(got.CoresStdErr)-want) > 1e-12 {
		t.Errorf("standard error %v, the prior's is %v", got.CoresStdErr, want)
	}
	if knee := s.Knee(key); knee.Known() || knee.Rate != 0 || s.Seconds(key) != 0 {
		t.Errorf("knee %+v after %v s of nothing", knee, s.Seconds(key))
	}
	// One observation moves the curve, and leaves what it says nothing about.
	before := mustCost(t, s, key, tr.rate(2e5))
	mustObserve(t, s, tr.observe(key, 100, 0))
	s.EndRound()
	after := mustCost(t, s, key, tr.rate(2e5))
	if math.Abs(float64(after.CoresStdErr/before.CoresStdErr)-1) > 0.2 {
		t.Errorf("an observation at 100 packets/s changes the standard error at 200,000 from %v to %v", before.CoresStdErr, after.CoresStdErr)
	}
}

func TestLearnsACurve(t *testing.T) {
	s := newSet(t, Options{Prior: flat})
	key, tr := Key{Class: ClassOf(2, true)}, typical()
	teach(t, s, key, tr, 2.9e5, 400)
	for _, packets := range []float64{200, 2e3, 2e4, 1e5, 1.9e5} {
		got := mustCost(t, s, key, tr.rate(packets))
		want := tr.coresAt(packets)
		if miss := math.Abs(float64(got.Cores)/want - 1); miss > 0.04 {
			t.Errorf("%v packets/s: %v cores, want %v: %.1f %% off", packets, got.Cores, want, 100*miss)
		}
		if math.Abs(float64(got.Cores)-want) > 4*float64(got.CoresStdErr)+0.01*want {
			t.Errorf("%v packets/s: %v cores with standard error %v, want %v", packets, got.Cores, got.CoresStdErr, want)
		}
		terms := At(tr.rate(packets))
		if want := dot(&tr.wakeUps, &terms); math.Abs(float64(got.WakeUps)-want) > 0.05*want+100 {
			t.Errorf("%v packets/s: %v wake-ups/s, want %v", packets, got.WakeUps, want)
		}
	}
	knee := s.Knee(key)
	if knee.Cause != CauseUse || math.Abs(float64(knee.Rate)/3e5-1) > 0.02 {
		t.Errorf("knee %+v, want 300,000 packets/s: 60 %% use at 0.2 per 100,000", knee)
	}
}

func TestLearnsWhatIsBeyondTheKnee(t *testing.T) {
	s := newSet(t, Options{Prior: flat})
	key, tr := Key{Class: ClassOf(2, true)}, typical()
	// Long enough that what was learned before the knee was known is forgotten.
	teach(t, s, key, tr, 5e5, 3000)
	knee := s.Knee(key)
	if math.Abs(float64(knee.Rate)/tr.knee-1) > 0.15 {
		t.Fatalf("knee %+v, want %v", knee, tr.knee)
	}
	for _, packets := range []float64{1e5, 2.5e5, 3.5e5, 4.5e5} {
		got := mustCost(t, s, key, tr.rate(packets))
		want := tr.coresAt(packets)
		if miss := math.Abs(float64(got.Cores)/want - 1); miss > 0.06 {
			t.Errorf("%v packets/s: %v cores, want %v: %.1f %% off", packets, got.Cores, want, 100*miss)
		}
	}
}

// TestLearnedCurvesKeepTheirShape learns from arbitrary observations; the curve
// is still increasing, and concave and convex where it has to be.
func TestLearnedCurvesKeepTheirShape(t *testing.T) {
	key := Key{Class: ClassOf(4, false)}
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := newSet(t, Options{Prior: flat})
		for range 60 {
			for range 5 {
				packets := math.Exp(14 * r.Float64())
				mustObserve(t, s, Observation{
					Key: key, Rate: Rate{Packets: units.PacketsPerSecond(packets), Bits: units.BitsPerSecond(packets * 12000 * r.Float64())},
					HostCores: units.Cores(math.Exp(3 * r.NormFloat64())), WakeUps: units.PerSecond(math.Exp(12 * r.Float64())),
					VCPUUse: units.Cores(min(1, packets/1e6*2*r.Float64())), WaitShare: 0.1 * r.Float64(),
				})
			}
			s.EndRound()
		}
		knee := 0.0
		if found := s.Knee(key); found.Known() {
			knee = float64(found.Rate)
		}
		checkShape(t, seed, knee, func(packets float64) float64 {
			return float64(mustCost(t, s, key, Rate{Packets: units.PacketsPerSecond(packets), Bits: units.BitsPerSecond(packets * 8000)}).Cores)
		})
	}
}

func checkShape(t *testing.T, seed uint64, knee float64, cost func(packets float64) float64) {
	t.Helper()
	const step, steps = 2000, 500
	tiny := 1e-9 * (1 + cost(step*steps))
	for i := 1; i < steps; i++ {
		p := float64(i * step)
		rise, next := cost(p)-cost(p-step), cost(p+step)-cost(p)
		switch {
		case rise < -tiny:
			t.Fatalf("seed %d: falls at %v, knee %v", seed, p, knee)
		case (knee == 0 || p+step <= knee) && next > rise+tiny:
			t.Fatalf("seed %d: not concave at %v, knee %v", seed, p, knee)
		case knee > 0 && p-step >= knee && next < rise-tiny:
			t.Fatalf("seed %d: not convex at %v, knee %v", seed, p, knee)
		}
	}
}

func TestBadObservationsAreLeftOut(t *testing.T) {
	s := newSet(t, Options{Prior: flat})
	key, tr := Key{Class: ClassOf(2, true)}, typical()
	good := tr.observe(key, 1000, 0)
	for name, spoil := range map[string]func(*Observation){
		"NaN packets":     func(o *Observation) { o.Rate.Packets = units.PacketsPerSecond(math.NaN()) },
		"negative bits":   func(o *Observation) { o.Rate.Bits = -1 },
		"infinite cores":  func(o *Observation) { o.HostCores = units.Cores(math.Inf(1)) },
		"NaN wake-ups":    func(o *Observation) { o.WakeUps = units.PerSecond(math.NaN()) },
		"negative use":    func(o *Observation) { o.VCPUUse = -0.1 },
		"NaN vhost":       func(o *Observation) { o.VhostUse = units.Cores(math.NaN()) },
		"wait above all":  func(o *Observation) { o.WaitShare = 1.1 },
		"overflowing use": func(o *Observation) { o.VCPUUse = 1e200 },
	} {
		bad := good
		spoil(&bad)
		if err := s.Observe(bad, roundSeconds); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	for _, seconds := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if err := s.Observe(good, seconds); err == nil {
			t.Errorf("%v seconds: taken", seconds)
		}
	}
	if s.Seconds(key) != 0 {
		t.Error("something of them stayed")
	}
	if _, err := s.Cost(key, Rate{Packets: -1}); err == nil {
		t.Error("a cost of a negative rate")
	}
	if _, err := s.Difference([]Change{{Key: key, To: Rate{Bits: units.BitsPerSecond(math.NaN())}}}); err == nil {
		t.Error("a difference to a rate that is no number")
	}
}

func TestBadPriorsAndOptions(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("a set without a prior")
	}
	if _, err := New(Options{Prior: flat, Limit: -1}); err == nil {
		t.Error("a set with a negative limit")
	}
	s := newSet(t, Options{Prior: func(Key) Prior { return Prior{Cores: Terms{math.NaN()}} }})
	if _, err := s.Cost(Key{}, Rate{}); err == nil {
		t.Error("a cost from a prior that is no number")
	}
	if err := s.Observe(Observation{}, 1); err == nil {
		t.Error("an observation of a class whose prior is no number")
	}
}

func TestTheLongestUnseenCurveGoes(t *testing.T) {
	s := newSet(t, Options{Prior: flat, Limit: 2})
	tr := typical()
	key := func(us int) Key {
		return Key{Class: ClassOf(1, true), Window: time.Duration(us) * time.Microsecond}
	}
	see := func(us int) {
		mustObserve(t, s, tr.observe(key(us), 1000, 0))
		s.EndRound()
	}
	for _, us := range []int{0, 125, 0, 250} {
		see(us)
	}
	for us, kept := range map[int]bool{0: true, 125: false, 250: true} {
		if (s.Seconds(key(us)) > 0) != kept {
			t.Errorf("window of %d us: %v s", us, s.Seconds(key(us)))
		}
	}
	if len(s.curves) != 2 || len(s.order) != 2 {
		t.Errorf("%d curves, %d in order", len(s.curves), len(s.order))
	}
}

func TestRoundsDoNotAllocate(t *testing.T) {
	s := newSet(t, Options{Prior: flat})
	tr := typical()
	var round []Observation
	for i := range 100 {
		key := Key{Class: ClassOf(1<<(i%4), i%8 == 0)}
		o := tr.observe(key, 100*float64(i*i), 0)
		o.VM = strconv.Itoa(i)
		round = append(round, o)
	}
	r := rand.New(rand.NewPCG(8, 9))
	got := testing.AllocsPerRun(100, func() {
		for _, o := range round {
			o.Rate.Packets *= units.PacketsPerSecond(r.Float64())
			if err := s.Observe(o, 1); err != nil {
				t.Fatal(err)
			}
		}
		s.EndRound()
	})
	if got != 0 {
		t.Errorf("%v allocations a round", got)
	}
}

// TestEveryBatchHasItsTurn: with more rates than a round learns from, all are
// learned from in time.
func TestEveryBatchHasItsTurn(t *testing.T) {
	s := newSet(t, Options{Prior: flat})
	tr := typical()
	for vcpus := 1; vcpus <= 16; vcpus *= 2 {
		for packets := 100.0; packets < 2e5; packets *= 2 {
			mustObserve(t, s, tr.observe(Key{Class: ClassOf(vcpus, true)}, packets, 0))
		}
	}
	waiting := func() (n int) {
		for _, c := range s.order {
			n += c.waiting
		}
		return n
	}
	before := waiting()
	if before <= 10*roundBatches {
		t.Fatalf("%d batches wait, no more than ten rounds learn from", before)
	}
	for before > 0 {
		s.EndRound()
		if now := waiting(); now != max(0, before-roundBatches) {
			t.Fatalf("%d batches wait after a round, %d before", now, before)
		}
		before = waiting()
	}
}

// TestEveryClassHasItsTurn: on a busy node each class has more to learn from in
// each round than a round learns from, and all classes are learned.
func TestEveryClassHasItsTurn(t *testing.T) {
	s := newSet(t, Options{Prior: flat})
	tr, r := typical(), rand.New(rand.NewPCG(8, 9))
	for range 300 {
		for vcpus := 1; vcpus <= 16; vcpus *= 2 {
			for vm := range 10 {
				o := tr.observe(Key{Class: ClassOf(vcpus, true)}, 100*math.Pow(2000, r.Float64()), 0)
				o.VM = strconv.Itoa(vm)
				mustObserve(t, s, o)
			}
		}
		s.EndRound()
	}
	want := tr.coresAt(1e5) - tr.coresAt(1e3)
	for vcpus := 1; vcpus <= 16; vcpus *= 2 {
		key := Key{Class: ClassOf(vcpus, true)}
		got, err := s.Difference([]Change{{Key: key, From: tr.rate(1e3), To: tr.rate(1e5)}})
		if err != nil || math.Abs(float64(got.Cores)-want) > 0.02*want {
			t.Errorf("%s: %+v, %v; want %.3f cores", key.Class, got, err, want)
		}
	}
}

func FuzzObserve(f *testing.F) {
	f.Add(1000.0, 8e6, 0.1, 500.0, 0.05, 0.01, 1.0)
	f.Add(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 15.0)
	f.Add(1e15, 1e15, 1e15, 1e15, 1e15, 1.0, 1e15)
	f.Add(1e6, 1e-300, 1e-300, 1e9, 0.9, 0.5, 1e-300)
	f.Fuzz(func(t *testing.T, packets, bits, cores, wakeUps, use, wait, seconds float64) {
		s := newSet(t, Options{Prior: flat})
		key := Key{Class: ClassOf(2, true)}
		o := Observation{
			Key: key, Rate: Rate{units.PacketsPerSecond(packets), units.BitsPerSecond(bits)}, HostCores: units.Cores(cores),
			WakeUps: units.PerSecond(wakeUps), VCPUUse: units.Cores(use), VhostUse: units.Cores(use / 2), WaitShare: wait,
		}
		half := o
		half.Rate.Packets /= 2
		half.VCPUUse /= 3
		for range 3 {
			for range 4 {
				// What is refused is left out, which is all that is asked here.
				_, _ = s.Observe(o, seconds), s.Observe(half, seconds)
			}
			s.EndRound()
		}
		if knee := s.Knee(key).Rate; !(knee >= 0) || math.IsInf(float64(knee), 0) {
			t.Fatalf("after %+v for %v s: a knee at %v", o, seconds, knee)
		}
		for _, p := range []float64{0, 10, 1e4, 1e6, 1e9} {
			cost := mustCost(t, s, key, Rate{units.PacketsPerSecond(p), units.BitsPerSecond(p * 8000)})
			for _, v := range []float64{float64(cost.Cores), float64(cost.CoresStdErr), float64(cost.WakeUps), float64(cost.WakeUpsStdErr)} {
				if !(v >= 0) || math.IsInf(v, 0) {
					t.Fatalf("%v packets/s after %+v for %v s: %+v", p, o, seconds, cost)
				}
			}
		}
	})
}
