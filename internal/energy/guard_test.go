package energy

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func at(seconds float64, watts units.Watts) model.Power {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return model.Power{Source: v1alpha1.PowerRAPL, Watts: watts, Time: noon.Add(time.Duration(seconds * float64(time.Second)))}
}

// series gives n readings, a period apart, from a moment on.
func series(from, period float64, n int, watts func(i int) units.Watts) []model.Power {
	var out []model.Power
	for i := range n {
		out = append(out, at(from+float64(i)*period, watts(i)))
	}
	return out
}

func steady(watts units.Watts) func(int) units.Watts { return func(int) units.Watts { return watts } }

// noisy varies by a part in a thousand, as meters do.
func noisy(watts units.Watts) func(int) units.Watts {
	return func(i int) units.Watts { return watts * units.Watts(1+0.001*float64(i%7)) }
}

func TestGuard(t *testing.T) {
	good := series(0, 15, 10, noisy(100))
	after := func(more ...model.Power) []model.Power { return append(append([]model.Power{}, good...), more...) }
	for name, test := range map[string]struct {
		readings []model.Power
		// want is the verdict on the last reading.
		want Reason
	}{
		"the first":                 {good[:1], ""},
		"steady":                    {good, ""},
		"not a number":              {after(at(150, units.Watts(math.NaN()))), ReasonNotFinite},
		"infinite":                  {after(at(150, units.Watts(math.Inf(1)))), ReasonNotFinite},
		"negative":                  {after(at(150, -5)), ReasonImplausible},
		"zero":                      {after(at(150, 0)), ReasonImplausible},
		"a fake meter":              {series(0, 15, 3, steady(3.3e-05)), ReasonImplausible},
		"a power station":           {after(at(150, 1e6)), ReasonImplausible},
		"from idle to full load":    {append(series(0, 1, 5, noisy(8)), at(5, 400)), ""},
		"a thousand times more":     {append(series(0, 15, 5, noisy(8)), at(75, 8000)), ReasonJumped},
		"a thousand times less":     {after(at(150, 0.11)), ReasonJumped},
		"back after a jump":         {append(series(0, 15, 5, noisy(8)), at(75, 8000), at(90, 8.1)), ""},
		"a new level, too short":    {append(series(0, 15, 5, noisy(8)), series(75, 15, 20, noisy(8000))...), ReasonJumped},
		"a new level, few readings": {append(series(0, 15, 5, noisy(8)), series(75, 60, 9, noisy(8000))...), ReasonJumped},
		"a new level":               {append(series(0, 15, 5, noisy(8)), series(75, 15, 21, noisy(8000))...), ""},
		"no level at all": {append(series(0, 15, 5, noisy(8)), series(75, 15, 40, func(i int) units.Watts {
			return units.Watts(2000 + 3000*(i%2)) // differ by more than agreeFactor
		})...), ReasonJumped},
		"an older reading":          {after(at(100, 100)), ReasonWentBack},
		"stands still, shortly":     {series(0, 15, 20, steady(302.0/3)), ""},
		"stands still":              {series(0, 15, 21, steady(302.0/3)), ReasonFrozen},
		"stands still, few":         {series(0, 100, 9, steady(302.0/3)), ""},
		"stands still, each second": {series(0, 1, 301, steady(302.0/3)), ReasonFrozen},
		"whole watts stand still":   {series(0, 15, 240, steady(112)), ""},
		"whole watts stand for 1 h": {series(0, 15, 241, steady(112)), ReasonFrozen},
		"few digits stand still":    {series(0, 15, 240, steady(112.37)), ""},
		"few digits for 1 h":        {series(0, 15, 241, steady(112.37)), ReasonFrozen},
		"moves again":               {append(series(0, 15, 21, steady(302.0/3)), at(315, 101)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var guard Guard
			var got *Refusal
			for _, reading := range test.readings {
				got = guard.Check(reading)
			}
			reason := Reason("")
			if got != nil {
				reason = got.Reason
			}
			if reason != test.want {
				t.Errorf("%v, want %q", got, test.want)
			}
			last := test.readings[len(test.readings)-1]
			if again := guard.Check(last); (again == nil) != (got == nil) {
				t.Errorf("asked again: %v, before: %v", again, got)
			}
		})
	}
}

// What was refused must not become the measure of what follows.
func TestGuardKeepsItsMeasure(t *testing.T) {
	var guard Guard
	for _, reading := range series(0, 15, 5, noisy(8)) {
		if refusal := guard.Check(reading); refusal != nil {
			t.Fatal(refusal)
		}
	}
	for i := range 30 {
		watts := units.Watts(8)
		if i%2 == 0 {
			watts = 9000
		}
		refusal := guard.Check(at(75+15*float64(i), watts+units.Watts(i)/100))
		if (refusal != nil) != (i%2 == 0) {
			t.Errorf("reading %d of %v W: %v", i, watts, refusal)
		}
	}
}

// Messages go into statuses: what is refused again for the same reason must not
// cause another write.
func TestGuardSaysTheSame(t *testing.T) {
	for name, odd := range map[string]func(i int) model.Power{
		"frozen":      func(i int) model.Power { return at(1000+15*float64(i), 302.0/3) },
		"jumped":      func(i int) model.Power { return at(1000+float64(i), 50_000-units.Watts(i)) },
		"implausible": func(i int) model.Power { return at(1000+15*float64(i), -units.Watts(i)) },
		"went back":   func(i int) model.Power { return at(100-float64(i), 100) },
	} {
		t.Run(name, func(t *testing.T) {
			var guard Guard
			for _, reading := range series(0, 15, 50, noisy(100)) {
				if refusal := guard.Check(reading); refusal != nil {
					t.Fatal(refusal)
				}
			}
			said := map[string]int{}
			for i := range 60 {
				if refusal := guard.Check(odd(i)); refusal != nil {
					said[refusal.Error()]++
				}
			}
			if len(said) != 1 {
				t.Errorf("said %v", said)
			}
		})
	}
}

func FuzzGuard(f *testing.F) {
	f.Add(1.0, 100.0, 2.0, 100.0, 3.0, 1e9)
	f.Add(1.0, math.NaN(), 1.0, math.Inf(-1), 0.0, 0.0)
	f.Fuzz(func(t *testing.T, t1, w1, t2, w2, t3, w3 float64) {
		var guard Guard
		for _, r := range [][2]float64{{t1, w1}, {t2, w2}, {t3, w3}} {
			if math.Abs(r[0]) > 1e6 || math.IsNaN(r[0]) {
				return
			}
			refusal := guard.Check(at(r[0], units.Watts(r[1])))
			usable := r[1] >= float64(leastWatts) && r[1] <= float64(mostWatts)
			if refusal == nil && !usable {
				t.Fatalf("%v W is accepted", r[1])
			}
		}
	})
}
