package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/credible"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/units"
)

// metersByNode says what the server says of each node.
type metersByNode map[string]energy.Candidate

func (m metersByNode) Candidate(_ energy.Server, node string) energy.Candidate { return m[node] }

func measured(watts units.Watts, scope model.PowerScope, age time.Duration) *model.Power {
	return &model.Power{Source: model.SourcePrometheus, Scope: scope, Watts: watts, Time: statusTime().Add(-age)}
}

func withPrometheus(policy v1alpha1.EnergyPolicy) v1alpha1.EnergyPolicy {
	policy.Spec.Energy.Sources = []v1alpha1.EnergySource{
		{Type: v1alpha1.EnergySourcePrometheus, Prometheus: &v1alpha1.PrometheusSource{URL: "https://p"}},
		{Type: v1alpha1.EnergySourceRAPL}, {Type: v1alpha1.EnergySourceModel},
	}
	return policy
}

// energyScene has nodes a to d, of which d has an agent that reads RAPL, with
// 50 W and a VM that sends a gigabyte a second.
func energyScene(policy v1alpha1.EnergyPolicy, meters metersByNode) policyView {
	clock := testingclock.NewFakePassiveClock(statusTime())
	store := rates.NewStore(clock, time.Minute, time.Minute)
	store.Put(&model.NodeRates{
		Node: "d", Time: statusTime(),
		Power: &model.Power{Source: model.SourceRAPL, Scope: model.ScopePackage, Watts: 50, Time: statusTime()},
		VMs:   []model.VMRates{{Taps: []model.TapRates{{FromVM: model.TrafficRates{BitsPerSecond: 6e9}, ToVM: model.TrafficRates{BitsPerSecond: 2e9}}}}},
	})
	view := policyView{
		policies: observe.NewPolicies([]v1alpha1.EnergyPolicy{policy}), now: statusTime(),
		powers:  &observe.Powers{Rates: store, Meters: meters, Clock: clock},
		reports: map[string]*v1alpha1.NodeReport{"d": reportOf(v1alpha1.PowerRAPL, nil, 0, 1)},
	}
	view.reports["d"].Status.RatesAddress = "192.0.2.1:8443"
	for _, name := range []string{"a", "b", "c", "d"} {
		view.nodes = append(view.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return view
}

func TestPolicyEnergy(t *testing.T) {
	denied := energy.Refuse(energy.ReasonUnauthorized, "the server says 401: renew the token")
	long := statusTime().Add(-time.Hour)
	for name, tc := range map[string]struct {
		meters  metersByNode
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
			metersByNode{
				"a": {Reading: measured(100, model.ScopePlatform, 0)}, "b": {Reading: measured(200.4, model.ScopePlatform, 0)},
				"c": {Reading: measured(300.3, model.ScopePlatform, 0)}, "d": {Reading: measured(123.456, model.ScopePlatform, 0)},
			},
			4, 724, "123", []string{"Prometheus 4", "RAPL 0", "Model 0"}, "True MeterFound", []string{"4 of 4"},
		},
		"the rest by RAPL": {
			metersByNode{
				"a": {Reading: measured(100, model.ScopePackage, 0)}, "b": {Reading: measured(100, model.ScopePackage, 0)},
				"c": {Reading: measured(100, model.ScopePackage, 0)}, "d": {Refused: denied, Since: long},
			},
			4, 350, "50", []string{"Prometheus 3 Unauthorized node d: the server says 401: renew the token", "RAPL 1", "Model 0"},
			"True MeterFound", []string{"4 of 4"},
		},
		"scopes differ": {
			metersByNode{
				"a": {Reading: measured(100, model.ScopePlatform, 0)}, "b": {Reading: measured(100, model.ScopePlatform, 0)},
				"c": {Reading: measured(100, model.ScopePlatform, 0)}, "d": {Refused: denied, Since: long},
			},
			4, 350, "50", []string{"Prometheus 3 Unauthorized node d: the server says 401: renew the token", "RAPL 1", "Model 0"},
			"True MeterFound", []string{"adds figures of different parts", "CPU packages on 1", "whole machine on 3"},
		},
		"one not": {
			metersByNode{
				"a": {Reading: measured(100, model.ScopePackage, 0)}, "b": {Refused: denied, Since: long},
				"c": {Refused: energy.Refuse(energy.ReasonNoSeries, "none"), Since: long}, "d": {Since: long, Refused: denied},
			},
			2, 150, "50", []string{
				"Prometheus 1 Unauthorized node b: the server says 401: renew the token",
				"RAPL 1 NoMeter node b: the node's agent does not report: look whether it runs there, and at NodeReport b",
				"Model 0 NoModel node b: the node's agent does not report: look whether it runs there, and at NodeReport b",
			},
			"False Unauthorized", []string{"2 of 4", "such as b, mode Enforce", "allowModelled", "source Prometheus of node b", "renew the token"},
		},
		"refused, and not yet old": {
			metersByNode{
				"a": {Reading: measured(100, model.ScopePackage, 0)}, "b": {Reading: measured(100, model.ScopePackage, 30*time.Second), Refused: denied},
				"c": {Reading: measured(100, model.ScopePackage, 0)}, "d": {Reading: measured(100, model.ScopePackage, 0)},
			},
			4, 400, "100", []string{"Prometheus 4 Unauthorized node b: the server says 401: renew the token", "RAPL 0", "Model 0"},
			"True MeterFound", []string{"4 of 4", "Prometheus of node b gives nothing newer", "Unauthorized", "renew the token"},
		},
	} {
		policy := withPrometheus(policyOf("p", 0, ""))
		status := policyStatus(&policy, energyScene(policy, tc.meters))
		var sources []string
		for _, s := range status.EnergySources {
			sources = append(sources, strings.TrimSpace(fmt.Sprintf("%s %d %s %s", s.Type, s.Nodes, s.Reason, s.Message)))
			if s.Available != (s.Nodes > 0) {
				t.Errorf("%s: %+v", name, s)
			}
		}
		if diff := cmp.Diff(tc.sources, sources); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if status.Nodes.Metered != tc.metered || status.Watts == nil || *status.Watts != tc.watts || status.JoulesPerGB == nil || status.JoulesPerGB.String() != tc.joules {
			t.Errorf("%s: %d metered, %v W, %v J/GB", name, status.Nodes.Metered, status.Watts, status.JoulesPerGB)
		}
		checkConditions(t, name, status.Conditions, map[string]string{"MeterAvailable": tc.condition}, tc.words)
		if got, want := len(status.UnmeteredNodes), 4-int(tc.metered); got != want {
			t.Errorf("%s: unmetered are %v, want %d nodes", name, status.UnmeteredNodes, want)
		}
	}
}

// A status names so many nodes without a meter, and counts all.
func TestUnmeteredNodes(t *testing.T) {
	tally := newEnergyTally(nil)
	for i := range 2 * maxUnmeteredNodes {
		tally.add(energyOfNode{name: fmt.Sprintf("node-%02d", i), choice: energy.Choice{Metered: i == 1, Power: measured(100, model.ScopePlatform, 0)}})
	}
	var status v1alpha1.EnergyPolicyStatus
	tally.write(&status)
	if got := status.UnmeteredNodes; len(got) != maxUnmeteredNodes || got[0] != "node-00" || got[1] != "node-02" {
		t.Errorf("unmetered are %v, want the first %d by name but node-01", got, maxUnmeteredNodes)
	}
}

// Without a word of the meter, the status of before stands; with another spec it
// does not.
func TestPolicyEnergyOfANewLeader(t *testing.T) {
	policy := withPrometheus(policyOf("p", 0, ""))
	before := metersByNode{"a": {Reading: measured(100, model.ScopePackage, 0)}}
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
	checkConditions(t, "another spec", status.Conditions, map[string]string{"MeterAvailable": "False Awaiting"}, []string{"1 of 4"})
	if status.Nodes.Metered != 1 || *status.Watts != 50 {
		t.Errorf("another spec: %+v", status)
	}
}

func TestPolicyWithoutMeters(t *testing.T) {
	policy := policyOf("p", 0, "")
	policy.Spec.Energy.Sources = []v1alpha1.EnergySource{{Type: v1alpha1.EnergySourceModel}}
	status := policyStatus(&policy, energyScene(policy, nil))
	checkConditions(t, "only a model", status.Conditions, map[string]string{"MeterAvailable": "False NoMeter"}, []string{"0 of 4", "name a meter"})
	if status.Watts != nil || status.JoulesPerGB != nil || status.Nodes.Metered != 0 {
		t.Errorf("only a model: %+v", status)
	}
}

// Figures that say nothing must not change a status.
func TestThreeDigits(t *testing.T) {
	for x, want := range map[float64]string{
		123.456: "123", 123456: "123k", 0.123456: "123m", 1.23456: "1230m", 999.6: "1k", 0.00123456: "1m", 123456789: "123M",
	} {
		if got := threeDigits(x); got == nil || got.String() != want {
			t.Errorf("%v: %v, want %s", x, got, want)
		}
	}
	for _, x := range []float64{0, -1, 1e-9, 1e15, 1e300} {
		if got := threeDigits(x); got != nil {
			t.Errorf("%v: %v, want none", x, got)
		}
	}
}

func TestSourceMessagesFit(t *testing.T) {
	policy := withPrometheus(policyOf("p", 0, ""))
	words := strings.Repeat("ü", 1000)
	status := policyStatus(&policy, energyScene(policy, metersByNode{"a": {Refused: energy.Refuse(energy.ReasonQueryFailed, "%s", words), Since: statusTime().Add(-time.Hour)}}))
	message := status.EnergySources[0].Message
	if len(message) > 512 || !strings.HasSuffix(message, "ü...") || !strings.HasPrefix(message, "node a: ü") {
		t.Errorf("%d bytes: %q", len(message), message)
	}
	if meter := meta.FindStatusCondition(status.Conditions, "MeterAvailable"); len(meter.Message) > 32768 {
		t.Errorf("the condition's message has %d bytes", len(meter.Message))
	}
}

// A node that lost its meter is told from one that has none, for a day.
func TestPolicyEnergyOfLostMeters(t *testing.T) {
	policy := withPrometheus(policyOf("p", 0, ""))
	good := energy.Candidate{Reading: measured(100, model.ScopePackage, 0)}
	gone := energy.Candidate{Refused: energy.Refuse(energy.ReasonUnreachable, "no answer"), Since: statusTime().Add(-time.Hour)}
	for since, want := range map[time.Duration]string{time.Hour: "False MeterLost", 25 * time.Hour: "False Unreachable"} {
		view := energyScene(policy, metersByNode{"a": good, "b": gone, "c": good, "d": good})
		view.powers.Past = observe.NewMeterPast()
		view.powers.Past.Metered("b", statusTime().Add(-since))
		words := []string{"3 of 4", "source Prometheus of node b"}
		if since < 24*time.Hour {
			words = append(words, "Node b was metered until "+statusTime().Add(-since).UTC().Format(time.RFC3339), "what acts stays")
		}
		status := policyStatus(&policy, view)
		checkConditions(t, since.String(), status.Conditions, map[string]string{"MeterAvailable": want}, words)
	}
}

// What is measured and not believed is said so, with the same words while the doubt lasts.
func TestPolicyEnergyOfDoubtedMeters(t *testing.T) {
	policy := withPrometheus(policyOf("p", 0, ""))
	good := energy.Candidate{Reading: measured(100, model.ScopePackage, 0)}
	view := energyScene(policy, metersByNode{"a": good, "b": good, "c": good, "d": good})
	view.powers.Doubts = doubtsOf{"c": {Suspect: []credible.Span{{From: statusTime()}}}, "a": {Suspect: []credible.Span{{From: statusTime(), To: statusTime()}}}}
	status := policyStatus(&policy, view)
	checkConditions(t, "doubted", status.Conditions, map[string]string{"MeterAvailable": "True MeterSuspect"},
		[]string{"4 of 4", "What source Prometheus says of node c is not believed", "since " + statusTime().UTC().Format(time.RFC3339)})
	if source := status.EnergySources[0]; source.Reason != "MeterSuspect" || !strings.HasPrefix(source.Message, "node c: ") || source.Nodes != 4 {
		t.Errorf("the source is told of as %+v", source)
	}
}

type doubtsOf map[string]credible.Verdict

func (d doubtsOf) Meter(node string) credible.Verdict { return d[node] }
