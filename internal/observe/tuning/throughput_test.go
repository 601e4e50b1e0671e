package tuning

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// sender is a VM of a store, whose throughput keeps to a figure but for a tenth.
type sender struct {
	*heardStore
	keep float64
	pod  string
}

// send lets the VM send and receive about so many Mbit/s for some rounds.
func (s sender) send(rounds int, window time.Duration, mbps float64) {
	of := Circumstances{VM: func(string) (VM, bool) {
		return VM{Profile: profile(), OnPackets: 10_000, KeepThroughput: s.keep}, true
	}}
	noise := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		s.hear(1, ratesOf(s.pod, window, func(v *model.VMRates) {
			v.Taps[0].ToVM.BitsPerSecond = units.BitsPerSecond(mbps * 1e6 * (0.9 + 0.2*noise.Float64()))
			v.Taps[0].FromVM.BitsPerSecond = 0
		}), of)
	}
}

func (s sender) hurts(pod string) []time.Duration {
	var windows []time.Duration
	for _, hurt := range s.Of(pod, profile()).Hurts {
		windows = append(windows, hurt.Window)
	}
	return windows
}

// Throughput that falls with a window is a doubt, and the window is to blame when it comes
// back without, twice.
func TestThroughputHurts(t *testing.T) {
	for name, tc := range map[string]struct {
		keep       float64
		with, back float64
		doubt      bool
		blame      bool
	}{
		"falls and comes back":                      {0, 60, 99, true, true},
		"falls for good":                            {0, 60, 60, true, false},
		"falls by what the profile allows":          {0.5, 60, 100, false, false},
		"falls by less than a tenth":                {0, 94, 100, false, false},
		"falls by more than is allowed, and noise":  {0.99, 99, 100, false, false},
		"falls by what the profile does not allow":  {0.95, 85, 100, true, true},
		"does not fall, and there is more later on": {0, 100, 200, false, false},
	} {
		s := sender{newHeard(), tc.keep, "a"}
		s.send(40, 250*us, 100)
		s.send(40, 500*us, tc.with)
		if got := s.Of("a", profile()).Hurts; (len(got) > 0) != tc.doubt || tc.doubt && got[0].Why != signThroughput {
			t.Errorf("%s: hurts %+v", name, got)
		}
		s.send(300, 250*us, tc.back)
		if got := s.hurts("b"); len(got) > 0 {
			t.Errorf("%s: seen once with one VM, another has hurts %v", name, got)
		}
		if got := s.hurts("a"); len(got) > 0 {
			t.Errorf("%s: after more than an hour the VM has hurts %v", name, got)
		}
		s.send(40, 500*us, tc.with/100*tc.back)
		s.send(40, 250*us, tc.back)
		var want []time.Duration
		if tc.blame {
			want = []time.Duration{500 * us}
		}
		if diff := cmp.Diff(want, s.hurts("b")); diff != "" {
			t.Errorf("%s: seen twice with one VM, another has hurts (-want +got):\n%s", name, diff)
		}
	}
}

// Two VMs of a profile say as much as one twice, but not when they tried the window at the
// same time: their demand may be of one kind.
func TestThroughputOfTwoVMs(t *testing.T) {
	for name, tc := range map[string]struct {
		atOnce bool
		want   []time.Duration
	}{
		"one after the other": {false, []time.Duration{500 * us}},
		"at the same time":    {true, nil},
	} {
		h := newHeard()
		a, b := sender{h, 0, "a"}, sender{h, 0, "b"}
		fall := func(all ...sender) {
			for _, step := range []struct {
				window time.Duration
				mbps   float64
			}{{250 * us, 100}, {500 * us, 60}, {250 * us, 100}} {
				for range 40 {
					for _, s := range all {
						s.send(1, step.window, step.mbps+float64(h.clock.Now().Unix()%7))
					}
				}
			}
		}
		if tc.atOnce {
			fall(a, b)
		} else {
			fall(a)
			fall(b)
		}
		if diff := cmp.Diff(tc.want, a.hurts("c")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What windows cost adds up, and counts against that with none: with the third window too
// little is left, although each keeps nine tenths of the one before.
func TestThroughputAgainstNone(t *testing.T) {
	s := sender{newHeard(), 0, "a"}
	s.send(40, 0, 100)
	s.send(40, 250*us, 95)
	s.send(40, 500*us, 90.5)
	if got := s.hurts("a"); len(got) > 0 {
		t.Fatalf("hurts %v, and nine tenths are kept", got)
	}
	s.send(40, 1000*us, 82)
	if diff := cmp.Diff([]time.Duration{1000 * us}, s.hurts("a")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// When a window was to blame, the shorter one that follows may be too.
func TestAShorterWindowHurtsToo(t *testing.T) {
	s := sender{newHeard(), 0, "a"}
	s.send(40, 0, 100)
	s.send(40, 250*us, 66)
	s.send(60, 125*us, 80)
	if diff := cmp.Diff([]time.Duration{125 * us, 250 * us}, s.hurts("a")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Demand that fell is no loss of windows: a shorter one is not doubted for it.
func TestDemandThatFellIsNoLoss(t *testing.T) {
	s := sender{newHeard(), 0, "a"}
	s.send(40, 0, 100)
	s.send(40, 250*us, 100)
	s.send(40, 500*us, 60)
	s.send(300, 250*us, 60)
	if got := s.hurts("a"); len(got) > 0 {
		t.Errorf("hurts %v", got)
	}
	s.send(40, 500*us, 60)
	if got := s.hurts("a"); len(got) > 0 {
		t.Errorf("tried again, with demand as it was: hurts %v", got)
	}
}

// A doubt ends with the hour: throughput that comes back on another day is no sign.
func TestDoubtsEnd(t *testing.T) {
	s := sender{newHeard(), 0, "a"}
	for range 2 {
		s.send(40, 250*us, 100)
		s.send(280, 500*us, 50)
		s.send(40, 250*us, 100)
	}
	if got := s.hurts("b"); len(got) > 0 {
		t.Errorf("hurts %v", got)
	}
}

func TestSuspicions(t *testing.T) {
	at := func(hours float64) time.Time { return noon().Add(time.Duration(hours * float64(time.Hour))) }
	for name, tc := range map[string]struct {
		all  []suspicion
		want time.Duration // of the last
	}{
		"one":                   {[]suspicion{{500 * us, at(0), at(1)}}, 0},
		"the same again":        {[]suspicion{{500 * us, at(0), at(1)}, {500 * us, at(2), at(3)}}, 500 * us},
		"at the same time":      {[]suspicion{{500 * us, at(0), at(1)}, {500 * us, at(0.9), at(1.5)}}, 0},
		"a shorter one again":   {[]suspicion{{500 * us, at(0), at(1)}, {250 * us, at(2), at(3)}}, 500 * us},
		"a longer one again":    {[]suspicion{{250 * us, at(0), at(1)}, {500 * us, at(2), at(3)}}, 500 * us},
		"the shortest of those": {[]suspicion{{1000 * us, at(0), at(1)}, {250 * us, at(0), at(1)}, {250 * us, at(2), at(3)}}, 250 * us},
		"a day later":           {[]suspicion{{500 * us, at(0), at(1)}, {500 * us, at(24), at(25)}}, 0},
		"the first counts":      {[]suspicion{{500 * us, at(0), at(1)}, {500 * us, at(0.9), at(3)}, {500 * us, at(2), at(4)}}, 500 * us},
	} {
		s, got := suspicions{}, time.Duration(0)
		for _, is := range tc.all {
			got = s.add(is)
		}
		if got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// The variance of a mean is that of many such stretches, for noise and for noise whose
// neighbours are alike.
func TestVarianceOfAStretch(t *testing.T) {
	const stretches, rounds = 2000, 60
	for _, alike := range []float64{0, 0.5, 0.9} {
		r := rand.New(rand.NewPCG(3, 4))
		var told, sum, squares float64
		for range stretches {
			var s stretch
			x := r.NormFloat64()
			for range rounds {
				s.add(x, 1)
				x = alike*x + math.Sqrt(1-alike*alike)*r.NormFloat64()
			}
			told += s.variance() / stretches
			sum += s.mean / stretches
			squares += s.mean * s.mean / stretches
		}
		is := squares - sum*sum
		if t.Logf("correlation %.1f: variance %.4f, told %.4f", alike, is, told); told < 0.6*is || told > 2.5*is {
			t.Errorf("correlation %.1f: the variance of the mean is %.4f, and told as %.4f", alike, is, told)
		}
	}
}
