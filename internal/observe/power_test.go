package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
)

// heard is an agent whose rates came 10 s ago. Nil rates: none are fresh.
type heard struct{ rates *model.NodeRates }

func (h heard) Fresh(string) *model.NodeRates { return h.rates }

func (h heard) Latest(string) (*model.NodeRates, time.Time) {
	return h.rates, at(0).Add(-10 * time.Second)
}

func (h heard) Awaited(string) bool { return h.rates == nil }

// server knows the power of all nodes.
type server struct{ candidate energy.Candidate }

func (s server) Candidate(energy.Server, string) energy.Candidate { return s.candidate }

// agentRates are of an agent whose clock is an hour ahead.
func agentRates(source v1alpha1.PowerSource, behind time.Duration, message string) *model.NodeRates {
	now := at(0).Add(time.Hour)
	r := &model.NodeRates{Node: "n", Time: now, PowerMessage: message}
	if source != "" {
		r.Power = &model.Power{Source: source, Scope: v1alpha1.PowerScopePackage, Watts: 90, Time: now.Add(-behind)}
	}
	return r
}

func reportOf(source v1alpha1.PowerSource, age time.Duration) *v1alpha1.NodeReport {
	r := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	r.Status.ReportedAt = ptr.To(metav1.NewTime(at(0).Add(-age)))
	r.Status.Power = v1alpha1.Power{Source: source}
	return r
}

// agentSettings are the API's default: what an agent measures, else what it models.
func agentSettings() []energy.Setting {
	const freshness = 2 * time.Minute
	return []energy.Setting{{Type: v1alpha1.PowerRAPL, Freshness: freshness}, {Type: v1alpha1.PowerModel, Freshness: freshness}}
}

func TestPowers(t *testing.T) {
	const rapl, modelled = v1alpha1.PowerRAPL, v1alpha1.PowerModel
	denied := reportOf(v1alpha1.PowerNone, time.Minute)
	denied.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionMeterAvailable, Status: metav1.ConditionFalse, Reason: "PermissionDenied", Message: "in the report"}}
	// What does not fit into a status would keep all of it from being written.
	hostile := denied.DeepCopy()
	hostile.Status.Conditions[0].Reason = strings.Repeat("A", 1024)
	for name, tc := range map[string]struct {
		rates  *model.NodeRates
		report *v1alpha1.NodeReport
		source v1alpha1.PowerSource
		// power is true when there is a figure.
		power, metered, unknown bool
		// words are of the first attempt.
		words string
	}{
		"RAPL":                            {agentRates(rapl, 0, ""), reportOf(v1alpha1.PowerRAPL, time.Minute), rapl, true, true, false, ""},
		"RAPL, the report lags":           {agentRates(rapl, 0, ""), reportOf(v1alpha1.PowerNone, time.Minute), rapl, true, true, false, ""},
		"RAPL, no report":                 {agentRates(rapl, 0, ""), nil, rapl, true, true, false, ""},
		"RAPL's figure stands":            {agentRates(rapl, 111*time.Second, ""), reportOf(v1alpha1.PowerRAPL, time.Minute), "", false, false, true, "Stale: the last figure is of 2026-03-01T11:57:59Z"},
		"RAPL's figure stands for long":   {agentRates(rapl, 351*time.Second, ""), reportOf(v1alpha1.PowerRAPL, time.Minute), "", false, false, false, "Stale: the last figure is of 2026-03-01T11:53:59Z"},
		"RAPL's figure of a while ago":    {agentRates(rapl, 110*time.Second, ""), reportOf(v1alpha1.PowerRAPL, time.Minute), rapl, true, true, false, ""},
		"no rates, reported":              {nil, reportOf(v1alpha1.PowerRAPL, time.Minute), rapl, false, true, false, ""},
		"first round, reported":           {agentRates("", 0, "wait"), reportOf(v1alpha1.PowerRAPL, time.Minute), rapl, false, true, false, ""},
		"no rates, reported long ago":     {nil, reportOf(v1alpha1.PowerRAPL, time.Hour), "", false, false, true, "NoMeter: the node's agent does not report"},
		"a model":                         {agentRates(modelled, 0, "no zones"), reportOf(v1alpha1.PowerModel, time.Minute), modelled, true, false, false, "NoMeter: no zones"},
		"a model, the report lags":        {agentRates(modelled, 0, "no zones"), reportOf(v1alpha1.PowerRAPL, time.Minute), modelled, true, false, false, "NoMeter: no zones"},
		"no rates, a model reported":      {nil, reportOf(v1alpha1.PowerModel, time.Minute), modelled, false, false, false, "NoMeter: the node's agent reads no energy counters: see condition MeterAvailable of NodeReport n"},
		"nothing, as the report says":     {nil, denied, "", false, false, false, "PermissionDenied: in the report"},
		"nothing, as the rates say":       {agentRates("", 0, "in the rates"), denied, "", false, false, false, "PermissionDenied: in the rates"},
		"a reason that is none":           {nil, hostile, "", false, false, false, "NoMeter: in the report"},
		"no agent":                        {nil, nil, "", false, false, false, "NoMeter: the node's agent does not report: look whether it runs there, and at NodeReport n"},
		"lost, and nothing reported then": {nil, reportOf(v1alpha1.PowerNone, time.Hour), "", false, false, false, "NoMeter: the node's agent does not report"},
	} {
		clock := testingclock.NewFakePassiveClock(at(0).Time)
		powers := &Powers{Rates: heard{tc.rates}, Meters: server{}, Clock: clock}
		got := powers.Of("n", agentSettings(), tc.report)
		if got.Source != tc.source || (got.Power != nil) != tc.power || got.Metered != tc.metered || got.Unknown != tc.unknown {
			t.Errorf("%s: %+v", name, got)
		}
		said := ""
		if len(got.Attempts) > 0 {
			said = string(got.Attempts[0].Reason) + ": " + got.Attempts[0].Message
		}
		if !strings.HasPrefix(said, tc.words) || tc.words == "" && said != "" {
			t.Errorf("%s: %q, want %q", name, said, tc.words)
		}
		if got.Power != nil && got.Power.Time.After(clock.Now()) {
			t.Errorf("%s: the figure is of %s, by the agent's clock", name, got.Power.Time)
		}
	}
}

// An agent whose meter fails keeps the last good figure for a while, and says
// why.
func TestPowersTellAnAgentsDoubt(t *testing.T) {
	for message, want := range map[string]energy.Attempt{
		"Frozen: stands still: look":    {Type: v1alpha1.PowerRAPL, Reason: energy.ReasonFrozen, Message: "stands still: look"},
		"who knows: words":              {Type: v1alpha1.PowerRAPL, Reason: energy.ReasonStale, Message: "who knows: words"},
		": no reason":                   {Type: v1alpha1.PowerRAPL, Reason: energy.ReasonStale, Message: ": no reason"},
		strings.Repeat("A", 65) + ": a": {Type: v1alpha1.PowerRAPL, Reason: energy.ReasonStale, Message: strings.Repeat("A", 65) + ": a"},
		"Äh: words":                     {Type: v1alpha1.PowerRAPL, Reason: energy.ReasonStale, Message: "Äh: words"},
		"words":                         {Type: v1alpha1.PowerRAPL, Reason: energy.ReasonStale, Message: "words"},
	} {
		powers := &Powers{Rates: heard{agentRates(v1alpha1.PowerRAPL, 20*time.Second, message)}, Meters: server{}, Clock: testingclock.NewFakePassiveClock(at(0).Time)}
		got := powers.Of("n", agentSettings(), nil)
		if !got.Metered || got.Doubt == nil || *got.Doubt != want {
			t.Errorf("%q: %+v, doubt %+v", message, got, got.Doubt)
		}
	}
}

func TestPowersAskTheServerFirst(t *testing.T) {
	reading := &model.Power{Source: v1alpha1.PowerPrometheus, Scope: v1alpha1.PowerScopePlatform, Watts: 200, Time: at(0).Time}
	powers := &Powers{
		Rates: heard{agentRates(v1alpha1.PowerRAPL, 0, "")}, Meters: server{energy.Candidate{Reading: reading}},
		Clock: testingclock.NewFakePassiveClock(at(0).Time),
	}
	policy := &v1alpha1.EnergyPolicy{}
	fresh := &metav1.Duration{Duration: 2 * time.Minute}
	policy.Spec.Energy.Sources = []v1alpha1.EnergySource{
		{Type: v1alpha1.PowerPrometheus, Freshness: fresh, Prometheus: &v1alpha1.PrometheusSource{URL: "https://p"}}, {Type: v1alpha1.PowerRAPL, Freshness: fresh},
	}
	if got := powers.Of("n", EnergySettings(policy), nil); got.Power != reading || !got.Metered {
		t.Errorf("%+v", got)
	}
	powers.Meters = server{}
	if got := powers.Of("n", EnergySettings(policy), nil); got.Source != v1alpha1.PowerRAPL || len(got.Attempts) != 1 || got.Unknown {
		t.Errorf("while the server is awaited: %+v", got)
	}
}

func TestEnergySettings(t *testing.T) {
	seconds := func(n int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(n) * time.Second} }
	for name, tc := range map[string]struct {
		sources []v1alpha1.EnergySource
		want    []energy.Setting
	}{
		"everything": {
			[]v1alpha1.EnergySource{{Type: v1alpha1.PowerModel, Freshness: seconds(7)}, {
				Type: v1alpha1.PowerPrometheus, Freshness: seconds(90),
				Prometheus: &v1alpha1.PrometheusSource{
					URL: "https://p", Query: ptr.To("watts"),
					Secret: "reader", Matchers: map[string]v1alpha1.MatcherValue{"namespace": "kepler", "job": `a"b`},
				},
			}},
			[]energy.Setting{{Type: v1alpha1.PowerModel, Freshness: 7 * time.Second}, {
				Type: v1alpha1.PowerPrometheus, Freshness: 90 * time.Second,
				Server: energy.Server{
					URL: "https://p", Query: "watts", Secret: "reader", Matchers: `job="a\"b",namespace="kepler"`,
					Timeout: 10 * time.Second, Freshness: 90 * time.Second,
				},
			}},
		},
	} {
		policy := &v1alpha1.EnergyPolicy{}
		policy.Spec.Energy.Sources = tc.sources
		if diff := cmp.Diff(tc.want, EnergySettings(policy)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestMeterPast(t *testing.T) {
	now := at(0).Time
	meters := []energy.Setting{{Type: v1alpha1.PowerPrometheus}, {Type: v1alpha1.PowerModel}}
	for name, tc := range map[string]struct {
		ago      time.Duration
		settings []energy.Setting
		choice   energy.Choice
		lost     bool
	}{
		"for an hour":                {time.Hour, meters, energy.Choice{}, true},
		"and modelled":               {time.Hour, meters, energy.Choice{Source: v1alpha1.PowerModel}, true},
		"for almost a day":           {lostFor - time.Second, meters, energy.Choice{}, true},
		"for a day":                  {lostFor, meters, energy.Choice{}, false},
		"never had one":              {-1, meters, energy.Choice{}, false},
		"has one":                    {time.Hour, meters, energy.Choice{Metered: true}, false},
		"too early to tell":          {time.Hour, meters, energy.Choice{Unknown: true}, false},
		"the policy wants no meters": {time.Hour, meters[1:], energy.Choice{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			past := NewMeterPast()
			past.Metered("another", now)
			if tc.ago >= 0 {
				past.Metered("n", now.Add(-tc.ago))
			}
			want := time.Time{}
			if tc.lost {
				want = now.Add(-tc.ago)
			}
			if got := past.Lose("n", tc.settings, &tc.choice, now); !got.Equal(want) {
				t.Errorf("lost since %v, want %v", got, want)
			}
			past.Retain(map[string]bool{"another": true})
			if got := past.Lose("n", tc.settings, &tc.choice, now); !got.IsZero() {
				t.Errorf("a node that is gone lost its meter at %v", got)
			}
		})
	}
	var none *MeterPast
	none.Metered("n", now)
	none.Retain(nil)
	if !none.Lose("n", meters, &energy.Choice{}, now).IsZero() {
		t.Error("without a memory a meter is lost")
	}
}
