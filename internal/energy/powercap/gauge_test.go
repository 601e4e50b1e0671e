package powercap

import (
	"math"
	"slices"
	"testing"

	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

func TestTimes(t *testing.T) {
	for name, test := range map[string]struct {
		second float64
		joules float64
		reason energy.Reason
	}{
		"shortly after":                   {0.005, 1, energy.ReasonAwaiting},
		"a clock that was set back":       {-3600, 100, energy.ReasonAwaiting},
		"a clock that stands still":       {0, 1, energy.ReasonAwaiting},
		"not moved for a moment":          {1, 0, energy.ReasonAwaiting},
		"not moved for a while":           {2, 0, energy.ReasonFrozen},
		"hours later, as after a suspend": {4 * 3600, 100, energy.ReasonAwaiting},
		"minutes later":                   {100, 5000, ""},
		"minutes later, too little":       {100, 0, energy.ReasonFrozen},
	} {
		t.Run(name, func(t *testing.T) {
			var meter Meter
			if _, refusal := meter.Read(Counters{Zones: zones(pkg(0, 10)), Time: at(0)}, 1); refusal == nil {
				t.Fatal("power by one reading")
			}
			reading, refusal := meter.Read(Counters{Zones: zones(pkg(0, 10+test.joules)), Time: at(test.second)}, 1)
			if (refusal == nil) != (test.reason == "") || (refusal != nil && refusal.Reason != test.reason) {
				t.Fatalf("%+v, %v; want %q", reading, refusal, test.reason)
			}
			// The meter goes on from there.
			second := test.second + 10
			reading, refusal = meter.Read(Counters{Zones: zones(pkg(0, 10+test.joules+500)), Time: at(second)}, 1)
			if refusal != nil || reading.Power.Watts < 45 || reading.Power.Watts > 55 {
				t.Errorf("then %+v, %v", reading, refusal)
			}
		})
	}
}

// A counter that never starts over could tell the mean of hours: that is not the
// power of now.
func TestMeanOfHours(t *testing.T) {
	var meter Meter
	var reasons []energy.Reason
	for i, second := range []float64{0, 2 * 3600, 2*3600 + 1} {
		reading, refusal := meter.Read(Counters{
			Zones: zones(host.EnergyZone{ID: "intel-rapl:0", Name: "package-0", Microjoules: uint64(50e6 * second)}), Time: at(second),
		}, 1)
		if refusal != nil {
			reasons = append(reasons, refusal.Reason)
		} else if i < 2 || reading.Power.Watts != 50 {
			t.Errorf("reading %d: %+v", i, reading)
		}
	}
	if want := []energy.Reason{energy.ReasonAwaiting, energy.ReasonAwaiting}; !slices.Equal(reasons, want) {
		t.Errorf("%v, want %v", reasons, want)
	}
}

// A counter of whole joules, read faster than it moves, tells the truth in the
// mean.
func TestCoarseCounter(t *testing.T) {
	var meter Meter
	sum := units.Joules(0)
	const seconds, watts = 100, 3.3
	for i := range 10*seconds + 1 {
		now := float64(i) / 10
		reading, refusal := meter.Read(Counters{Zones: zones(pkg(0, math.Floor(now*watts))), Time: at(now)}, 1)
		if refusal == nil {
			sum += reading.Joules
		} else if refusal.Reason != energy.ReasonAwaiting {
			t.Fatalf("after %v s: %v", now, refusal)
		}
	}
	if math.Abs(float64(sum)-seconds*watts) > 1 {
		t.Errorf("%v J, want %v", sum, seconds*watts)
	}
}

// A counter that stands still does so with one reason, and moves on with the
// power of then.
func TestFrozenCounter(t *testing.T) {
	var meter Meter
	if _, refusal := meter.Read(Counters{Zones: zones(pkg(0, 10)), Time: at(0)}, 1); refusal == nil {
		t.Fatal("power by one reading")
	}
	for second := 1.0; second < 300; second++ {
		want := energy.ReasonFrozen
		if second < 2 {
			want = energy.ReasonAwaiting
		}
		if _, refusal := meter.Read(Counters{Zones: zones(pkg(0, 10)), Time: at(second)}, 1); refusal == nil || refusal.Reason != want {
			t.Fatalf("after %v s: %v, want %s", second, refusal, want)
		}
	}
	reading, refusal := meter.Read(Counters{Zones: zones(pkg(0, 60)), Time: at(300)}, 1)
	if refusal != nil || reading.Power.Watts != 50 {
		t.Errorf("%+v, %v", reading, refusal)
	}
}
