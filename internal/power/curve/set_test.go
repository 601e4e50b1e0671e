package curve

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/joulevirt/joulevirt/internal/units"
)

// believed is a prior of which hosts cost another multiple.
func believed(Key) Prior {
	return Prior{
		Cores: Terms{0.01, 0.1, 0, 0, 0.8, 0.05}, CoresStdDev: Terms{0.5, 0.05, 0.05, 0.05, 0.4, 0.05},
		WakeUps: Terms{100, 0, 0, 8000, 30000, 0}, WakeUpsStdDev: Terms{2000, 2000, 2000, 4000, 15000, 2000},
		CoresForm: 0.1, WakeUpsForm: 0.3,
	}
}

func rateOf(packets float64) Rate {
	return Rate{Packets: units.PacketsPerSecond(packets), Bits: units.BitsPerSecond(8000 * packets)}
}

// load has VMs send at changing rates for some hours of rounds of 15 s. work is what each
// guest computes beside, and factor what their traffic costs in what the prior says.
func load(s *Set, hours, factor float64, work []float64) {
	random := rand.New(rand.NewPCG(1, 1))
	p := believed(Key{})
	for range int(hours * 240) {
		for vm, own := range work {
			rate := rateOf(1000 + 40_000*random.Float64())
			terms := At(rate)
			traffic := factor * p.Cores.traffic(terms)
			s.Observe(Observation{
				Key: Key{Class: "1-vcpu"}, VM: string(rune('a' + vm)), Rate: rate,
				HostCores: units.Cores(own + traffic + 0.01*random.NormFloat64()), WakeUps: units.PerSecond(500 + factor*p.WakeUps.traffic(terms)),
				VCPUUse: units.Cores(own + traffic/2), VhostUse: units.Cores(traffic / 2),
			}, 15)
		}
		s.EndRound()
	}
}

// What a change of traffic costs is learned whatever the guests compute beside.
func TestLearnsTheFactor(t *testing.T) {
	for name, work := range map[string][]float64{"alike": {0.1, 0.1, 0.1}, "each guest computes as much as it does": {0, 0.3, 0.9}} {
		s := New(believed)
		change := []Change{{Key{Class: "1-vcpu"}, rateOf(5000), rateOf(40_000)}}
		before := s.Difference(change)
		load(s, 4, 1.6, work)
		got := s.Difference(change)
		if ratio := float64(got.Cores / before.Cores); math.Abs(ratio-1.6) > 0.1 {
			t.Errorf("%s: costs %.2f times the prior, want 1.6", name, ratio)
		}
		if ratio := float64(got.WakeUps / before.WakeUps); math.Abs(ratio-1.6) > 0.1 {
			t.Errorf("%s: %.2f times the wake-ups, want 1.6", name, ratio)
		}
		if got.CoresStdErr >= before.CoresStdErr {
			t.Errorf("%s: as unsure as before: %+v after %+v", name, got, before)
		}
		mean := 0.0
		for _, own := range work {
			mean += own / float64(len(work))
		}
		if idle := float64(s.Cost(Key{Class: "1-vcpu"}, Rate{}).Cores); math.Abs(idle-mean) > 0.1 {
			t.Errorf("%s: an idle VM costs %.2f cores, want %.2f", name, idle, mean)
		}
	}
}

// Costs increase with traffic, and by less and less, whatever is observed.
func TestConcave(t *testing.T) {
	for _, factor := range []float64{-3, 0, 0.5, 4} {
		s := New(believed)
		load(s, 2, factor, []float64{0.2, 0.4})
		last, step := s.Cost(Key{Class: "1-vcpu"}, Rate{}), math.Inf(1)
		for packets := 2000.0; packets <= 60_000; packets += 2000 {
			cost := s.Cost(Key{Class: "1-vcpu"}, rateOf(packets))
			rise := float64(cost.Cores - last.Cores)
			if rise <= 0 || rise > step+1e-9 {
				t.Fatalf("factor %v: %v cores more at %v packets/s, after %v", factor, rise, packets, step)
			}
			last, step = cost, rise
		}
	}
}

// An error that all VMs of a class have in common cancels out of a difference.
func TestDifferenceCancels(t *testing.T) {
	s := New(believed)
	key := Key{Class: "1-vcpu"}
	none := s.Difference([]Change{{key, rateOf(5000), rateOf(5000)}})
	swap := s.Difference([]Change{{key, rateOf(5000), rateOf(9000)}, {key, rateOf(9000), rateOf(5000)}})
	if none != (Cost{}) || math.Abs(float64(swap.Cores)) > 1e-12 {
		t.Errorf("no change is %+v, and a swap %+v", none, swap)
	}
	one := s.Difference([]Change{{key, Rate{}, rateOf(20_000)}})
	both := s.Cost(key, rateOf(20_000))
	if one.CoresStdErr >= both.CoresStdErr {
		t.Errorf("a difference is known to %v, the cost to %v", one.CoresStdErr, both.CoresStdErr)
	}
}

// The head-room is what the busiest thread leaves: no less than what is carried, and no more
// than four times of it. VMs on standby change nothing of that.
func TestKnee(t *testing.T) {
	for name, tc := range map[string]struct {
		use, vhost, wait float64
		want             float64
		measured         bool
	}{
		"a fifth used: three times as much": {0.2, 0.1, 0, 30_000, true},
		"vhost is busier":                   {0.1, 0.3, 0, 20_000, true},
		"hardly used: four times as much":   {0.01, 0.01, 0, 40_000, false},
		"a guest that computes":             {1, 0.1, 0, 6000, true},
		"threads wait":                      {0.2, 0.1, 0.2, 10_000, false},
	} {
		s := New(believed)
		for range 10 {
			s.Observe(Observation{
				Key: Key{Class: "1-vcpu"}, VM: "a", Rate: rateOf(10_000), HostCores: 0.3, WakeUps: 100,
				VCPUUse: units.Cores(tc.use), VhostUse: units.Cores(tc.vhost), WaitShare: tc.wait,
			}, 15)
			s.EndRound()
		}
		for range 100 { // a VM on standby, which only probes wake up
			s.Observe(Observation{Key: Key{Class: "1-vcpu"}, VM: "b", Rate: rateOf(5), VCPUUse: 0.02}, 15)
			s.EndRound()
		}
		if got := s.Knee(Key{Class: "1-vcpu"}); math.Abs(float64(got.Rate)-tc.want) > 0.05*tc.want || got.Measured != tc.measured {
			t.Errorf("%s: %+v, want %v packets/s", name, got, tc.want)
		}
	}
	if got := New(believed).Knee(Key{}); got.Rate > 0 {
		t.Errorf("%+v without an observation", got)
	}
}

// A burst that VMs did not carry well, however short, leaves them the limit that their use says:
// one of what they carried before it, as they started, would leave a group no room for a day.
func TestKneeAfterABurst(t *testing.T) {
	for name, tc := range map[string]struct {
		before int
		want   float64
	}{
		"a burst first":                         {0, 60_000},
		"a burst after a start with few probes": {200, 40_000},
	} {
		s := New(believed)
		see := func(packets, use float64, seconds int) {
			for range seconds {
				s.Observe(Observation{Key: Key{Class: "1-vcpu"}, VM: "a", Rate: rateOf(packets), VCPUUse: units.Cores(use)}, 1)
				s.EndRound()
			}
		}
		see(400, 0.02, tc.before)
		see(100_000, 1, 1)
		see(10_000, 0.1, 60)
		if got := s.Knee(Key{Class: "1-vcpu"}); math.Abs(float64(got.Rate)-tc.want) > 0.01*tc.want {
			t.Errorf("%s: %+v, want %v packets/s", name, got, tc.want)
		}
	}
}
