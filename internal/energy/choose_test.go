package energy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func settingsOf(types ...v1alpha1.PowerSource) []Setting {
	var settings []Setting
	for _, kind := range types {
		settings = append(settings, Setting{Type: kind, Freshness: time.Minute})
	}
	return settings
}

// figure of a source, so many seconds old.
func figure(source v1alpha1.PowerSource, age float64) *model.Power {
	return &model.Power{Source: source, Scope: v1alpha1.PowerScopePackage, Watts: 100, Time: noon().Add(-seconds(age))}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// inShort is what the tests are about.
func inShort(choice Choice) string {
	var words []string
	if choice.Source != "" {
		words = append(words, string(choice.Source))
	}
	if choice.Power != nil {
		words = append(words, fmt.Sprintf("%v W", float64(choice.Power.Watts)))
	}
	if choice.Metered {
		words = append(words, "metered")
	}
	if choice.Unknown {
		words = append(words, "unknown")
	}
	if choice.Doubt != nil {
		words = append(words, "doubt "+string(choice.Doubt.Reason))
	}
	for _, attempt := range choice.Attempts {
		words = append(words, fmt.Sprintf("(%s %s)", attempt.Type, attempt.Reason))
	}
	return strings.Join(words, " ")
}

func TestChoose(t *testing.T) {
	const prometheus, rapl, modelled = v1alpha1.PowerPrometheus, v1alpha1.PowerRAPL, v1alpha1.PowerModel
	all := settingsOf(prometheus, rapl, modelled)
	denied := Refuse(ReasonUnauthorized, "no")
	none := Candidate{Refused: Refuse(ReasonNoMeter, "no"), Certain: true}
	for name, test := range map[string]struct {
		settings []Setting
		known    map[v1alpha1.PowerSource]Candidate
		want     string
	}{
		"no sources":                 {nil, nil, ""},
		"the first":                  {all, map[v1alpha1.PowerSource]Candidate{prometheus: {Reading: figure(prometheus, 59)}, rapl: {Reading: figure(rapl, 1)}}, "Prometheus 100 W metered"},
		"at the bound":               {all, map[v1alpha1.PowerSource]Candidate{prometheus: {Reading: figure(prometheus, 60)}}, "Prometheus 100 W metered"},
		"of the future":              {all, map[v1alpha1.PowerSource]Candidate{prometheus: {Reading: figure(prometheus, -5)}}, "Prometheus 100 W metered"},
		"the policy's order":         {settingsOf(rapl, prometheus), map[v1alpha1.PowerSource]Candidate{prometheus: {Reading: figure(prometheus, 1)}, rapl: {Reading: figure(rapl, 50)}}, "RAPL 100 W metered"},
		"the first is stale":         {all, map[v1alpha1.PowerSource]Candidate{prometheus: {Reading: figure(prometheus, 61)}, rapl: {Reading: figure(rapl, 1)}}, "RAPL 100 W metered (Prometheus Stale)"},
		"refused, not yet old":       {all, map[v1alpha1.PowerSource]Candidate{prometheus: {Reading: figure(prometheus, 50), Refused: denied}}, "Prometheus 100 W metered doubt Unauthorized"},
		"refused, and now old":       {settingsOf(prometheus), map[v1alpha1.PowerSource]Candidate{prometheus: {Reading: figure(prometheus, 61), Refused: denied, Since: noon().Add(-time.Hour)}}, "unknown (Prometheus Unauthorized)"},
		"refused for long":           {settingsOf(prometheus), map[v1alpha1.PowerSource]Candidate{prometheus: {Reading: figure(prometheus, 181), Refused: denied, Since: noon().Add(-time.Hour)}}, "(Prometheus Unauthorized)"},
		"a little stale":             {settingsOf(prometheus, modelled), map[v1alpha1.PowerSource]Candidate{prometheus: {Reading: figure(prometheus, 180)}, modelled: {Reading: figure(modelled, 1)}}, "Model 100 W unknown (Prometheus Stale)"},
		"stale":                      {settingsOf(prometheus), map[v1alpha1.PowerSource]Candidate{prometheus: {Reading: figure(prometheus, 181)}}, "(Prometheus Stale)"},
		"nobody was asked":           {all, nil, "unknown (Prometheus Awaiting) (RAPL Awaiting) (Model Awaiting)"},
		"asked in vain, shortly":     {settingsOf(prometheus), map[v1alpha1.PowerSource]Candidate{prometheus: {Refused: denied, Since: noon().Add(-3 * time.Minute)}}, "unknown (Prometheus Unauthorized)"},
		"asked in vain, long":        {settingsOf(prometheus), map[v1alpha1.PowerSource]Candidate{prometheus: {Refused: denied, Since: noon().Add(-181 * time.Second)}}, "(Prometheus Unauthorized)"},
		"unknown, but another knows": {all, map[v1alpha1.PowerSource]Candidate{rapl: {Reading: figure(rapl, 1)}}, "RAPL 100 W metered (Prometheus Awaiting)"},
		"unknown, but modelled":      {all, map[v1alpha1.PowerSource]Candidate{rapl: none, modelled: {Reading: figure(modelled, 1)}}, "Model 100 W unknown (Prometheus Awaiting) (RAPL NoMeter)"},
		"no meter, modelled":         {settingsOf(rapl, modelled), map[v1alpha1.PowerSource]Candidate{rapl: none, modelled: {Reading: figure(modelled, 1)}}, "Model 100 W (RAPL NoMeter)"},
		"the model comes first":      {settingsOf(modelled, rapl), map[v1alpha1.PowerSource]Candidate{rapl: {Reading: figure(rapl, 1)}, modelled: {Reading: figure(modelled, 1)}}, "Model 100 W"},
		"no model, no matter":        {settingsOf(rapl, modelled), map[v1alpha1.PowerSource]Candidate{rapl: none}, "(RAPL NoMeter) (Model Awaiting)"},
		"only reported":              {settingsOf(rapl, modelled), map[v1alpha1.PowerSource]Candidate{rapl: {Reported: true, Certain: true}}, "RAPL metered"},
		"another's figure":           {settingsOf(rapl), map[v1alpha1.PowerSource]Candidate{rapl: {Reading: figure(modelled, 1), Certain: true}}, "(RAPL Stale)"},
	} {
		got := Choose(test.settings, func(s Setting) Candidate { return test.known[s.Type] }, noon())
		if inShort(got) != test.want {
			t.Errorf("%s: %s, want %s", name, inShort(got), test.want)
		}
	}
}

func TestStaleMessageIsConstant(t *testing.T) {
	know := func(Setting) Candidate { return Candidate{Reading: figure(v1alpha1.PowerRAPL, 120)} }
	first := Choose(settingsOf(v1alpha1.PowerRAPL), know, noon())
	later := Choose(settingsOf(v1alpha1.PowerRAPL), know, noon().Add(time.Hour))
	if first.Attempts[0].Message != later.Attempts[0].Message || !strings.Contains(first.Attempts[0].Message, "2026-03-01T11:58:00Z") {
		t.Errorf("%q, an hour later %q", first.Attempts[0].Message, later.Attempts[0].Message)
	}
}

// A meter that is scraped each minute must not let pins come and go.
func TestChooseHoldsBetweenScrapes(t *testing.T) {
	for second := range 600 {
		now := noon().Add(time.Duration(second) * time.Second)
		asked := now.Truncate(15 * time.Second)
		scraped := figure(v1alpha1.PowerPrometheus, 0)
		scraped.Time = asked.Add(-7 * time.Second).Truncate(time.Minute)
		choice := Choose(settingsOf(v1alpha1.PowerPrometheus), func(Setting) Candidate { return Candidate{Reading: scraped} }, now)
		if !choice.Metered && !choice.Unknown {
			t.Fatalf("%d s: a figure of %s makes %+v", second, scraped.Time, choice)
		}
	}
}

// Whatever is known: no stale figure is chosen, nobody before the one chosen
// could have been, and nothing is unknown once a meter was chosen.
func TestChooseProperties(t *testing.T) {
	types := []v1alpha1.PowerSource{v1alpha1.PowerPrometheus, v1alpha1.PowerRAPL, v1alpha1.PowerModel}
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 3))
		var settings []Setting
		for _, i := range r.Perm(3)[:1+r.IntN(3)] {
			settings = append(settings, Setting{Type: types[i], Freshness: seconds(float64(1 + r.IntN(120)))})
		}
		known := map[v1alpha1.PowerSource]Candidate{}
		for _, kind := range types {
			known[kind] = randomCandidate(r, kind)
		}
		choice := Choose(settings, func(s Setting) Candidate { return known[s.Type] }, noon())
		if problem := contradiction(settings, known, choice); problem != "" {
			t.Fatalf("seed %d: %s: %+v of %+v with %+v", seed, problem, choice, settings, known)
		}
	}
}

func randomCandidate(r *rand.Rand, kind v1alpha1.PowerSource) Candidate {
	var c Candidate
	if r.IntN(2) == 0 {
		c.Reading = figure(kind, float64(r.IntN(240)-20))
		c.Reading.Watts = units.Watts(r.Float64() * 1000)
	}
	if r.IntN(2) == 0 {
		c.Refused = Refuse(ReasonUnreachable, "no")
	}
	if r.IntN(2) == 0 {
		c.Since = noon().Add(-seconds(float64(r.IntN(240))))
	}
	c.Certain, c.Reported = r.IntN(3) == 0, r.IntN(8) == 0
	return c
}

// contradiction says what is wrong with a choice, or is empty.
func contradiction(settings []Setting, known map[v1alpha1.PowerSource]Candidate, choice Choice) string {
	isFresh := func(s Setting) bool {
		reading := known[s.Type].Reading
		return reading != nil && noon().Sub(reading.Time) <= s.Freshness
	}
	at := slices.IndexFunc(settings, func(s Setting) bool { return s.Type == choice.Source })
	tried := settings
	if at >= 0 {
		tried = settings[:at]
		if !isFresh(settings[at]) && !known[choice.Source].Reported {
			return "a stale source was chosen"
		}
		if (choice.Power != nil) != isFresh(settings[at]) {
			return "the figure is not that of the freshness"
		}
	}
	if len(choice.Attempts) != len(tried) {
		return "not every source before the one chosen was tried"
	}
	pending := false
	for i, setting := range tried {
		candidate := known[setting.Type]
		if isFresh(setting) || candidate.Reported {
			return "a source before the one chosen knows"
		}
		if choice.Attempts[i].Type != setting.Type || choice.Attempts[i].Reason == "" || choice.Attempts[i].Message == "" {
			return "an attempt says nothing"
		}
		last := candidate.Since
		if candidate.Reading != nil {
			last = candidate.Reading.Time
		}
		young := last.IsZero() || noon().Sub(last) <= 3*setting.Freshness
		pending = pending || setting.Type.Measures() && !candidate.Certain && young
	}
	switch {
	case choice.Metered != (choice.Source != "" && choice.Source.Measures()):
		return "metered is not what the source is"
	case choice.Unknown != (pending && !choice.Metered):
		return "unknown is wrong"
	}
	return ""
}
