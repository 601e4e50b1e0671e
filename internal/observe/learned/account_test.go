package learned

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func at(s float64) time.Time { return noon().Add(seconds(s)) }

// totals of an agent that ran since noon with a steady load of 2 busy cores, 3
// awake, 100 wake-ups a second, and drew 80 W.
func totals(s float64) *model.Totals {
	return &model.Totals{
		Since: noon(), Seconds: s, BusyCoreSeconds: 2 * s, AwakeCoreSeconds: 3 * s, WakeUps: 100 * s,
		Joules: units.Joules(80 * s), MeteredSeconds: s,
	}
}

func steadyLoad() power.Load { return power.Load{BusyCores: 2, WakeUps: 100, AwakeCores: 3} }

// round is what the agent says at a second.
func round(s float64, source model.PowerSource) *model.NodeRates {
	return &model.NodeRates{
		Node: "n", Time: at(s), IntervalSeconds: 1, Totals: totals(s),
		Power: &model.Power{Source: source, Scope: model.ScopePackage, Watts: 80, Time: at(s), IntervalSeconds: 1},
	}
}

func TestAccountOfAgent(t *testing.T) {
	const rapl = model.SourceRAPL
	for name, test := range map[string]struct {
		before, now *model.NodeRates
		// change what the agent says now.
		change func(*model.NodeRates)
		joules units.Joules
		// watts of the lesson. 0: none.
		watts units.Watts
	}{
		"two pulls":        {round(60, rapl), round(75, rapl), nil, 1200, 80},
		"the same round":   {round(60, rapl), round(60, rapl), nil, 0, 0},
		"the first":        {nil, round(75, rapl), nil, 0, 0},
		"a long time":      {round(60, rapl), round(660, rapl), nil, 48000, 80},
		"restarted":        {round(60, rapl), round(75, rapl), func(r *model.NodeRates) { r.Totals.Since = at(61) }, 0, 0},
		"no totals":        {round(60, rapl), round(75, rapl), func(r *model.NodeRates) { r.Totals = nil }, 0, 0},
		"no power":         {round(60, rapl), round(75, rapl), func(r *model.NodeRates) { r.Power = nil }, 0, 0},
		"another source":   {round(60, model.SourceModel), round(75, rapl), nil, 0, 0},
		"another scope":    {round(60, rapl), round(75, rapl), func(r *model.NodeRates) { r.Power.Scope = model.ScopePlatform }, 0, 0},
		"half metered":     {round(60, rapl), round(75, rapl), func(r *model.NodeRates) { r.Totals.MeteredSeconds -= 7; r.Totals.Joules -= 560 }, 640, 0},
		"not metered":      {round(60, rapl), round(75, rapl), func(r *model.NodeRates) { r.Totals.MeteredSeconds, r.Totals.Joules = 60, 4800 }, 0, 0},
		"joules went back": {round(60, rapl), round(75, rapl), func(r *model.NodeRates) { r.Totals.Joules = 1 }, 0, 0},
		"load went back":   {round(60, rapl), round(75, rapl), func(r *model.NodeRates) { r.Totals.WakeUps = 1 }, 0, 0},
	} {
		var account account
		if test.before != nil {
			account.look(test.before.Power, test.before, test.before.Time)
		}
		if test.change != nil {
			test.change(test.now)
		}
		figure := &model.Power{Source: rapl, Scope: model.ScopePackage, Watts: 80, Time: test.now.Time}
		joules, lessons := account.look(figure, test.now, test.now.Time)
		if joules != test.joules || len(lessons) > 1 || (len(lessons) == 1) != (test.watts != 0) {
			t.Errorf("%s: %v J and lessons %+v, want %v J and one of %v W", name, joules, lessons, test.joules, test.watts)
			continue
		}
		if len(lessons) == 1 && (lessons[0].watts != test.watts || lessons[0].load != steadyLoad()) {
			t.Errorf("%s: lesson %+v", name, lessons[0])
		}
		if again, more := account.look(figure, test.now, test.now.Time); again != 0 || len(more) != 0 {
			t.Errorf("%s: looked at again: %v J, %+v", name, again, more)
		}
	}
}

// A model must not learn from itself, but what it says is counted.
func TestAccountOfModel(t *testing.T) {
	var account account
	first, second := round(60, model.SourceModel), round(75, model.SourceModel)
	account.look(first.Power, first, first.Time)
	if joules, lessons := account.look(second.Power, second, second.Time); joules != 1200 || len(lessons) != 0 {
		t.Errorf("%v J, lessons %+v", joules, lessons)
	}
}

// server's figure of 100 W at a second, over an interval.
func server(s, interval float64) *model.Power {
	return &model.Power{Source: model.SourcePrometheus, Scope: model.ScopePlatform, Watts: 100, Time: at(s), IntervalSeconds: interval}
}

func TestAccountOfServerWaitsForTheLoad(t *testing.T) {
	var account account
	look := func(figure *model.Power, pulled float64) (units.Joules, []lesson) {
		return account.look(figure, round(pulled, model.SourceRAPL), at(pulled))
	}
	for _, pulled := range []float64{0, 15, 30} {
		look(nil, pulled)
	}
	joules, lessons := look(server(40, 20), 30)
	if joules != 2000 || len(lessons) != 0 {
		t.Fatalf("before the interval is over for the agent: %v J, %+v", joules, lessons)
	}
	joules, lessons = look(server(40, 20), 45)
	if joules != 0 || len(lessons) != 1 {
		t.Fatalf("after: %v J, %+v", joules, lessons)
	}
	if got := lessons[0]; got.load != steadyLoad() || got.watts != 100 || got.seconds != 20 || got.scope != model.ScopePlatform {
		t.Errorf("lesson %+v", got)
	}
	// The next figure's interval overlaps: only what is new of it weighs.
	joules, lessons = look(server(45, 20), 60)
	if joules != 500 || len(lessons) != 1 || lessons[0].seconds != 5 {
		t.Errorf("overlapping: %v J, %+v", joules, lessons)
	}
	// An instant has the load of the pulls around it.
	joules, lessons = look(server(50, 0), 60)
	if joules != 500 || len(lessons) != 1 || lessons[0].load != steadyLoad() {
		t.Errorf("an instant: %v J, %+v", joules, lessons)
	}
}

func TestAccountOfServerDrops(t *testing.T) {
	for name, test := range map[string]struct {
		pulls  []float64
		figure *model.Power
	}{
		"begins before the first pull": {[]float64{30, 45, 60}, server(50, 40)},
		"across a gap":                 {[]float64{0, 200}, server(100, 20)},
		"no pull at all":               {nil, server(100, 20)},
	} {
		var account account
		for _, s := range test.pulls {
			account.look(nil, round(s, model.SourceRAPL), at(s))
		}
		if _, lessons := account.look(test.figure, account.pulled, at(200)); len(lessons) != 0 {
			t.Errorf("%s: %+v", name, lessons)
		}
	}
	var account account
	for i := range 100 {
		account.look(server(float64(15*i), 20), nil, time.Time{})
	}
	if len(account.waiting) != mostWaiting {
		t.Errorf("%d figures wait for an agent that never comes", len(account.waiting))
	}
}

// After a time that no figure is about, only the figure's own interval counts.
func TestAccountOfServerCountsNoGap(t *testing.T) {
	var account account
	for _, step := range []struct {
		at, interval float64
		want         units.Joules
	}{
		{100, 30, 3000}, // the first
		{115, 30, 1500},
		{115, 30, 0},
		{110, 30, 0}, // late
		{415, 30, 30000},
		{715.5, 30, 3000},
		{2000, 0, 0},
	} {
		if got, _ := account.look(server(step.at, step.interval), nil, time.Time{}); math.Abs(float64(got-step.want)) > 1e-6 {
			t.Errorf("at %v s: %v J, want %v", step.at, got, step.want)
		}
	}
}

// An agent whose clock is wrong is believed by when its rates came.
func TestMomentOf(t *testing.T) {
	for ahead, want := range map[float64]float64{0: 100, -4: 96, 4: 104, -3600: 100, 3600: 100} {
		if got := momentOf(&model.NodeRates{Time: at(100 + ahead)}, at(100)); !got.Equal(at(want)) {
			t.Errorf("clock ahead by %v s: %s", ahead, got)
		}
	}
}
