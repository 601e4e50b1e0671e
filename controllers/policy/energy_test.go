package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

func measured(watts units.Watts, scope v1alpha1.PowerScope, age time.Duration) *model.Power {
	return &model.Power{Source: v1alpha1.PowerPrometheus, Scope: scope, Watts: watts, Time: controllertest.StatusTime().Add(-age)}
}

// energyScene has nodes a to d, of which d has an agent that reads RAPL, with
// 50 W and a VM that sends a gigabyte a second.
func energyScene(policy v1alpha1.EnergyPolicy, meters controllertest.MetersByNode) policyView {
	clock := testingclock.NewFakePassiveClock(controllertest.StatusTime())
	store := rates.NewStore(clock, time.Minute, time.Minute)
	store.Put(&model.NodeRates{
		Node: "d", Time: controllertest.StatusTime(),
		Power: &model.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage, Watts: 50, Time: controllertest.StatusTime()},
		VMs:   []model.VMRates{{Taps: []model.TapRates{{FromVM: model.TrafficRates{BitsPerSecond: 6e9}, ToVM: model.TrafficRates{BitsPerSecond: 2e9}}}}},
	})
	view := policyView{
		policies: observe.NewPolicies([]v1alpha1.EnergyPolicy{policy}), now: controllertest.StatusTime(),
		powers:  &observe.Powers{Rates: store, Meters: meters, Clock: clock},
		reports: map[string]*v1alpha1.NodeReport{"d": controllertest.ReportOf(v1alpha1.PowerRAPL, nil, 0, 1)},
	}
	view.reports["d"].Status.RatesAddress = "192.0.2.1:8443"
	for _, name := range []string{"a", "b", "c", "d"} {
		view.nodes = append(view.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return view
}

func TestPolicyEnergy(t *testing.T) {
	denied := energy.Refuse(energy.ReasonUnauthorized, "the server says 401: renew the token")
	long := controllertest.StatusTime().Add(-time.Hour)
	for name, tc := range map[string]struct {
		meters  controllertest.MetersByNode
		metered int32
		watts   int64
		// joules per GB, as the status shows it.
		joules string
		// sources are their words in short.
		sources []string
		// condition is its status and reason, words are of its message.
		condition string
		words     []string
	}{
		"all by the server": {
			controllertest.MetersByNode{
				"a": {Reading: measured(100, v1alpha1.PowerScopePlatform, 0)}, "b": {Reading: measured(200.4, v1alpha1.PowerScopePlatform, 0)},
				"c": {Reading: measured(300.3, v1alpha1.PowerScopePlatform, 0)}, "d": {Reading: measured(123.456, v1alpha1.PowerScopePlatform, 0)},
			},
			4, 724, "123", []string{"Prometheus 4", "RAPL 0", "Model 0"}, "True NoMatchers", []string{"4 of 4"},
		},
		"the rest by RAPL": {
			controllertest.MetersByNode{
				"a": {Reading: measured(100, v1alpha1.PowerScopePackage, 0)}, "b": {Reading: measured(100, v1alpha1.PowerScopePackage, 0)},
				"c": {Reading: measured(100, v1alpha1.PowerScopePackage, 0)}, "d": {Refused: denied, Since: long},
			},
			4, 350, "50", []string{"Prometheus 3 Unauthorized node d: the server says 401: renew the token", "RAPL 1", "Model 0"},
			"True NoMatchers", []string{"4 of 4"},
		},
		"scopes differ": {
			controllertest.MetersByNode{
				"a": {Reading: measured(100, v1alpha1.PowerScopePlatform, 0)}, "b": {Reading: measured(100, v1alpha1.PowerScopePlatform, 0)},
				"c": {Reading: measured(100, v1alpha1.PowerScopePlatform, 0)}, "d": {Refused: denied, Since: long},
			},
			4, 350, "50", []string{"Prometheus 3 Unauthorized node d: the server says 401: renew the token", "RAPL 1", "Model 0"},
			"True NoMatchers", []string{"adds figures of different parts", "CPU packages on 1", "whole machine on 3"},
		},
		"one not": {
			controllertest.MetersByNode{
				"a": {Reading: measured(100, v1alpha1.PowerScopePackage, 0)}, "b": {Refused: denied, Since: long},
				"c": {Refused: energy.Refuse(energy.ReasonNoSeries, "none"), Since: long}, "d": {Since: long, Refused: denied},
			},
			2, 150, "50", []string{
				"Prometheus 1 Unauthorized node b: the server says 401: renew the token",
				"RAPL 1 NoMeter node b: the node's agent does not report: look whether it runs there, and at NodeReport b",
				"Model 0 NoModel node b: the node's agent does not report: look whether it runs there, and at NodeReport b",
			},
			"False Unauthorized", []string{"2 of 4", "such as b, c, mode Enforce", "allowModelled", "source Prometheus of node b", "renew the token"},
		},
		"refused, and not yet old": {
			controllertest.MetersByNode{
				"a": {Reading: measured(100, v1alpha1.PowerScopePackage, 0)}, "b": {Reading: measured(100, v1alpha1.PowerScopePackage, 30*time.Second), Refused: denied},
				"c": {Reading: measured(100, v1alpha1.PowerScopePackage, 0)}, "d": {Reading: measured(100, v1alpha1.PowerScopePackage, 0)},
			},
			4, 400, "100", []string{"Prometheus 4 Unauthorized node b: the server says 401: renew the token", "RAPL 0", "Model 0"},
			"True NoMatchers", []string{"4 of 4", "Prometheus of node b gives nothing newer", "Unauthorized", "renew the token"},
		},
	} {
		policy := controllertest.WithPrometheus(controllertest.PolicyOf("p", 0, ""))
		status := policyStatus(&policy, energyScene(policy, tc.meters))
		var sources []string
		for _, s := range status.EnergySources {
			sources = append(sources, strings.TrimSpace(fmt.Sprintf("%s %d %s %s", s.Type, s.Nodes, s.Reason, s.Message)))
		}
		if diff := cmp.Diff(tc.sources, sources); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if status.Nodes.Metered != tc.metered || status.Watts == nil || *status.Watts != tc.watts || string(status.JoulesPerGB) != tc.joules {
			t.Errorf("%s: %d metered, %v W, %v J/GB", name, status.Nodes.Metered, status.Watts, status.JoulesPerGB)
		}
		controllertest.CheckConditions(t, name, status.Conditions, map[string]string{"MeterAvailable": tc.condition}, tc.words)
	}
}

// Without a word of the meter, the status of before stands; with another spec it
// does not.
func TestPolicyEnergyOfANewLeader(t *testing.T) {
	policy := controllertest.WithPrometheus(controllertest.PolicyOf("p", 0, ""))
	before := controllertest.MetersByNode{"a": {Reading: measured(100, v1alpha1.PowerScopePackage, 0)}}
	policy.Status = policyStatus(&policy, energyScene(policy, before))
	awaited := policyStatus(&policy, energyScene(policy, nil))
	if diff := cmp.Diff(policy.Status, awaited); diff != "" {
		t.Errorf("a new leader changes the status (-was +is):\n%s", diff)
	}
	unheard := energyScene(policy, before)
	unheard.powers.Rates = rates.NewStore(unheard.powers.Clock, time.Minute, time.Minute)
	if diff := cmp.Diff(policy.Status, policyStatus(&policy, unheard)); diff != "" {
		t.Errorf("a new leader that heard no agent changes the status (-was +is):\n%s", diff)
	}
	policy.Status.ObservedGeneration-- // as if the spec was changed meanwhile
	status := policyStatus(&policy, energyScene(policy, nil))
	controllertest.CheckConditions(t, "another spec", status.Conditions, map[string]string{"MeterAvailable": "False Awaiting"}, []string{"1 of 4"})
	if status.Nodes.Metered != 1 || *status.Watts != 50 {
		t.Errorf("another spec: %+v", status)
	}
}

// TestMatchersOfMeters: who may speak for the meters is said until the policy names them.
func TestMatchersOfMeters(t *testing.T) {
	known := controllertest.MetersByNode{}
	for _, node := range []string{"a", "b", "c", "d"} {
		known[node] = energy.Candidate{Reading: measured(100, v1alpha1.PowerScopePackage, 0)}
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.PrometheusSource)
		want   string
		words  []string
	}{
		"none":     {func(*v1alpha1.PrometheusSource) {}, "True NoMatchers", []string{"prometheus.matchers", "Everybody"}},
		"matchers": {func(p *v1alpha1.PrometheusSource) { p.Matchers = map[string]v1alpha1.MatcherValue{"job": "kepler"} }, "True MeterFound", nil},
		"a query":  {func(p *v1alpha1.PrometheusSource) { p.Query = ptr.To("watts") }, "True MeterFound", nil},
	} {
		policy := controllertest.WithPrometheus(controllertest.PolicyOf("p", 0, ""))
		tc.change(policy.Spec.Energy.Sources[0].Prometheus)
		status := policyStatus(&policy, energyScene(policy, known))
		controllertest.CheckConditions(t, name, status.Conditions, map[string]string{"MeterAvailable": tc.want}, tc.words)
	}
}

func TestPolicyWithoutMeters(t *testing.T) {
	policy := controllertest.PolicyOf("p", 0, "")
	policy.Spec.Energy.Sources = []v1alpha1.EnergySource{{Type: v1alpha1.PowerModel, Freshness: &metav1.Duration{Duration: 2 * time.Minute}}}
	status := policyStatus(&policy, energyScene(policy, nil))
	controllertest.CheckConditions(t, "only a model", status.Conditions, map[string]string{"MeterAvailable": "False NoMeter"}, []string{"0 of 4", "name a meter"})
	if status.Watts != nil || status.JoulesPerGB != "" || status.Nodes.Metered != 0 {
		t.Errorf("only a model: %+v", status)
	}
}

// A node that lost its meter is distinguished from one that has none, for a day.
func TestPolicyEnergyOfLostMeters(t *testing.T) {
	policy := controllertest.WithPrometheus(controllertest.PolicyOf("p", 0, ""))
	good := energy.Candidate{Reading: measured(100, v1alpha1.PowerScopePackage, 0)}
	gone := energy.Candidate{Refused: energy.Refuse(energy.ReasonUnreachable, "no answer"), Since: controllertest.StatusTime().Add(-time.Hour)}
	for since, want := range map[time.Duration]string{time.Hour: "False MeterLost", 25 * time.Hour: "False Unreachable"} {
		view := energyScene(policy, controllertest.MetersByNode{"a": good, "b": gone, "c": good, "d": good})
		view.powers.Past = observe.NewMeterPast()
		view.powers.Past.Metered("b", controllertest.StatusTime().Add(-since))
		words := []string{"3 of 4", "source Prometheus of node b"}
		if since < 24*time.Hour {
			words = append(words, "Node b was metered until "+controllertest.StatusTime().Add(-since).UTC().Format(time.RFC3339), "what acts stays")
		}
		status := policyStatus(&policy, view)
		controllertest.CheckConditions(t, since.String(), status.Conditions, map[string]string{"MeterAvailable": want}, words)
	}
}
