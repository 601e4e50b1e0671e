package stream

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func at(seconds float64) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// totals of an agent that ran for so many seconds, and has drawn 80 W.
func totals(seconds float64) model.Totals {
	return model.Totals{
		Since: at(0), Seconds: seconds, BusyCoreSeconds: 2 * seconds, Joules: units.Joules(80 * seconds),
		MeteredSeconds: seconds, Bytes: 1000 * seconds,
	}
}

func round(seconds float64) *model.NodeRates {
	t := totals(seconds)
	return &model.NodeRates{
		Time: at(seconds), Totals: &t,
		Power: &model.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage, Watts: 80, Time: at(seconds)},
	}
}

// TestAgent: what an agent counted between two pulls, and what breaks its count.
func TestAgent(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to float64
		change   func(*model.NodeRates)
		joules   units.Joules
		seconds  float64
		whole    bool
		broken   Break
	}{
		"two pulls":        {60, 75, func(*model.NodeRates) {}, 1200, 15, true, ""},
		"the same round":   {60, 60, func(*model.NodeRates) {}, 0, 0, false, ""},
		"a long time":      {60, 660, func(*model.NodeRates) {}, 48000, 600, true, ""},
		"no totals":        {60, 75, func(r *model.NodeRates) { r.Totals = nil }, 0, 0, false, ""},
		"no power":         {60, 75, func(r *model.NodeRates) { r.Power = nil }, 0, 0, false, ""},
		"another scope":    {60, 75, func(r *model.NodeRates) { r.Power.Scope = v1alpha1.PowerScopePlatform }, 0, 0, false, ""},
		"behind":           {60, 75, func(r *model.NodeRates) { r.Totals.MeteredSeconds -= 7 }, 0, 0, false, ""},
		"behind for long":  {60, 260, func(r *model.NodeRates) { r.Totals.MeteredSeconds -= 150; r.Totals.Joules -= 12000 }, 4000, 50, false, ""},
		"of more time":     {60, 75, func(r *model.NodeRates) { r.Totals.MeteredSeconds += 5; r.Totals.Joules += 400 }, 1600, 20, false, ""},
		"restarted":        {60, 75, func(r *model.NodeRates) { r.Totals.Since = at(61) }, 0, 0, false, AgentRestarted},
		"joules went back": {60, 75, func(r *model.NodeRates) { r.Totals.Joules = 1 }, 0, 0, false, Contradictory},
		"bytes went back":  {60, 75, func(r *model.NodeRates) { r.Totals.Bytes = 1 }, 0, 0, false, Contradictory},
		"joules jumped":    {60, 75, func(r *model.NodeRates) { r.Totals.Joules += 1e6 }, 0, 0, false, Contradictory},
		"clock jumped":     {60, 75, func(r *model.NodeRates) { r.Time = at(3675) }, 0, 0, false, ClockJumped},
		"meter changed": {60, 75, func(r *model.NodeRates) {
			r.Totals.Since, r.Power.Scope = at(61), v1alpha1.PowerScopePlatform
		}, 0, 0, false, MeterChanged},
	} {
		var s Stream
		var got Interval
		observe := func(r *model.NodeRates, received float64) Step {
			power := *round(0).Power // what the policy uses
			step := s.Observe(Sample{Rates: r, Received: at(received), Now: at(received), Power: &power})
			for _, one := range step.Intervals {
				got = one
			}
			return step
		}
		observe(round(tc.from), tc.from)
		next := round(tc.to)
		tc.change(next)
		step := observe(next, tc.to)
		if math.Abs(float64(got.Joules-tc.joules)) > 1e-6 || math.Abs(got.Seconds-tc.seconds) > 1e-6 || (got.Joules > 0 && got.IsWhole() != tc.whole) || step.Break != tc.broken {
			t.Errorf("%s: %+v, break %q; want %v J in %v s, break %q", name, got, step.Break, tc.joules, tc.seconds, tc.broken)
		}
	}
}

// figure of a server of 100 W.
func figureAt(seconds, interval float64) *model.Power {
	return &model.Power{Source: v1alpha1.PowerPrometheus, Scope: v1alpha1.PowerScopePlatform, Watts: 100, Time: at(seconds), IntervalSeconds: interval}
}

// TestServer: a figure is reported once the pulls of its interval have come, and a time that
// no figure is of is not counted.
func TestServer(t *testing.T) {
	var s Stream
	observe := func(figure *model.Power, pulled float64) []Interval {
		sample := Sample{Power: figure, Now: at(2000)}
		if pulled >= 0 {
			sample.Rates, sample.Received = round(pulled), at(pulled)
		}
		return s.Observe(sample).Intervals
	}
	observe(figureAt(-100, 0), 0)
	for _, step := range []struct {
		figure *model.Power
		pulled float64
		// from and to of the interval. 0 to 0: none.
		from, to float64
	}{
		{figureAt(40, 20), 30, 0, 0},   // pulls have not come so far
		{figureAt(40, 20), 45, 20, 40}, // now they have
		{figureAt(40, 20), 60, 0, 0},   // and once only
		{figureAt(30, 20), 60, 0, 0},   // late
		{figureAt(45, 20), 60, 0, 0},   // most of it was reported
		{figureAt(59, 20), 60, 40, 59}, // a little of it was
		{figureAt(100, 20), 115, 59, 100},
		{figureAt(170, 20), 175, 150, 170}, // nobody knows what was before
		{figureAt(175, 0), 175, 170, 175},  // an instant stands for the time since the one before
		{figureAt(480, 0), 480, 0, 0},      // but not for longer than 5 minutes
		{figureAt(1900, 20), 2000, 1880, 1900},
	} {
		got := observe(step.figure, step.pulled)
		switch {
		case step.to == 0 && len(got) == 0:
		case len(got) != 1 || !got[0].From.Equal(at(step.from)) || !got[0].To.Equal(at(step.to)) || float64(got[0].Joules) != 100*(step.to-step.from):
			t.Errorf("%v at %v: %+v, want from %v to %v", step.figure.Time, step.pulled, got, step.from, step.to)
		case got[0].HasTotals && math.Abs(work(&got[0])-1000*(step.to-step.from)) > 1e-6:
			t.Errorf("%v at %v: work %v", step.figure.Time, step.pulled, work(&got[0]))
		case got[0].HasTotals == (step.to == 1900): // its ends lie in a gap between pulls
			t.Errorf("%v at %v: has totals: %t", step.figure.Time, step.pulled, got[0].HasTotals)
		}
	}
}

// TestServerWithoutAgent: joules are reported at once, without totals.
func TestServerWithoutAgent(t *testing.T) {
	var s Stream
	var joules units.Joules
	for i := range 100 {
		for _, interval := range s.Observe(Sample{Power: figureAt(float64(30*i), 30), Now: at(3000)}).Intervals {
			if interval.HasTotals || interval.IsWhole() {
				t.Fatalf("%+v", interval)
			}
			joules += interval.Joules
		}
	}
	if want := units.Joules(100 * 30 * 100); joules != want {
		t.Errorf("%v J, want %v", joules, want)
	}
}

// node is a simulated one whose truth is known each second.
type node struct {
	joules, bytes []float64
	ahead         time.Duration
	server        int
}

func newNode(random *rand.Rand) *node {
	n := &node{joules: []float64{0}, bytes: []float64{0}, ahead: time.Duration(random.IntN(7200)-3600) * time.Second}
	if random.IntN(3) > 0 {
		n.server = []int{10, 30, 60}[random.IntN(3)]
	}
	for second := range 3600 {
		n.joules = append(n.joules, n.joules[second]+60+40*math.Sin(float64(second)/200)+5*random.Float64())
		n.bytes = append(n.bytes, n.bytes[second]+1000*(2+math.Sin(float64(second)/300)))
	}
	return n
}

// sample at a second: of the round of the second before, and the server's newest figure.
func (n *node) sample(second int) Sample {
	last := second - 1
	s := Sample{Received: at(float64(second)), Now: at(float64(second)), Rates: &model.NodeRates{
		Time: at(float64(last)).Add(n.ahead),
		Totals: &model.Totals{
			Since: at(-1000), Seconds: 1000 + float64(last), MeteredSeconds: 900 + float64(last),
			Joules: units.Joules(n.joules[last]), Bytes: n.bytes[last],
		},
		Power: &model.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage},
	}}
	s.Power = s.Rates.Power
	if n.server > 0 {
		s.Power = nil
		if end := (second - n.server) / n.server * n.server; end >= n.server {
			s.Power = figureAt(float64(end), float64(n.server))
			s.Power.Watts = units.Watts((n.joules[end] - n.joules[end-n.server]) / float64(n.server))
		}
	}
	return s
}

// TestIntervalsAreTrue: however a history is cut into pulls and whatever is missing of it,
// intervals are in order, no joule is in two of them, each has the joules and the work that
// were in it, and almost nothing is missing while nothing fails.
func TestIntervalsAreTrue(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 4))
		n, faults := newNode(random), seed%2 == 1
		var s Stream
		var last time.Time
		covered := 0.0
		for second := 5; second < 3600; second += 1 + random.IntN(20) {
			sample := n.sample(second)
			if faults {
				switch random.IntN(20) {
				case 0:
					sample.Rates = nil
				case 1:
					sample.Power = nil
				case 2:
					second += random.IntN(300)
				}
			}
			for _, i := range s.Observe(sample).Intervals {
				from, to := i.From.Add(-n.ahead).Sub(at(0)).Seconds(), i.To.Add(-n.ahead).Sub(at(0)).Seconds()
				if i.From.Before(last) || !i.To.After(i.From) || from < -2 || to > float64(second) {
					t.Fatalf("seed %d: from %v to %v s, after %v", seed, from, to, last)
				}
				last = i.To
				if !i.HasTotals {
					continue
				}
				covered += to - from
				n.check(t, seed, &i, from, to)
			}
		}
		if !faults && covered < 3600-320 {
			t.Errorf("seed %d: %v s of an hour are covered, figures each %d s", seed, covered, n.server)
		}
	}
}

// check an interval against the truth. A clock is known to about two seconds, and a figure may
// stand for up to half a minute before it.
func (n *node) check(t *testing.T, seed uint64, i *Interval, from, to float64) {
	t.Helper()
	truth := func(of []float64, second float64) float64 {
		low := max(0, min(len(of)-2, int(second)))
		return of[low] + (second-float64(low))*(of[low+1]-of[low])
	}
	moved := work(i)
	joules, work := truth(n.joules, to)-truth(n.joules, from), truth(n.bytes, to)-truth(n.bytes, from)
	if math.Abs(float64(i.Joules)-joules) > 0.1*joules+500 || math.Abs(moved-work) > 0.1*work+10_000 {
		t.Errorf("seed %d, figures each %d s: from %.0f to %.0f s %v J and %v bytes, in truth %v and %v", seed, n.server, from, to, i.Joules, moved, joules, work)
	}
}

// work is the bytes that VMs moved.
func work(i *Interval) float64 {
	received, sent := i.Traffic()
	return received + sent
}
