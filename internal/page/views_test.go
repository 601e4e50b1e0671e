package page

import (
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/top"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// leader is what a leader knows.
type leader struct {
	powers map[string]v1alpha1.PowerSource
	rates  map[string]*model.NodeRates
}

func (l leader) Rates(node string) (*model.NodeRates, time.Time) { return l.rates[node], time.Time{} }

func (l leader) EachPower(call func(string, model.Power, bool)) {
	for node, source := range l.powers {
		call(node, model.Power{Source: source, Watts: 100}, source != v1alpha1.PowerModel)
	}
}

func TestPoints(t *testing.T) {
	f := &facts.Facts{Now: noon, Policies: []v1alpha1.EnergyPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Status: v1alpha1.EnergyPolicyStatus{Watts: ptr.To(int64(500)), Proven: []v1alpha1.Saving{
			{Watts: v1alpha1.Estimate{Value: "20", Low: "10", High: "30"}}, {Watts: v1alpha1.Estimate{Value: "5", Low: "-1", High: "9"}},
		}},
	}, {ObjectMeta: metav1.ObjectMeta{Name: "empty"}}, {
		ObjectMeta: metav1.ObjectMeta{Name: "unproven"}, Status: v1alpha1.EnergyPolicyStatus{Watts: ptr.To(int64(300))},
	}}}
	for _, node := range []string{"a", "b", "c"} {
		f.Plans = append(f.Plans, v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: v1alpha1.NodePlanSpec{Policy: "p"}})
	}
	live := leader{powers: map[string]v1alpha1.PowerSource{"a": v1alpha1.PowerPrometheus, "b": v1alpha1.PowerModel, "c": v1alpha1.PowerModel, "other": v1alpha1.PowerModel}}
	number := func(v *float64) any {
		if v == nil {
			return "unknown"
		}
		return *v
	}
	for name, tc := range map[string]struct {
		led  bool
		want []any
	}{
		"led":          {true, []any{float64(500), float64(200), float64(25), float64(9), float64(39)}},
		"no one leads": {false, []any{"unknown", float64(200), "unknown", "unknown", "unknown"}},
	} {
		points := pointsOf(f, live, tc.led)
		p := points["p"]
		got := []any{number(p.Measured), number(p.Modelled), number(p.Saved), number(p.Low), number(p.High)}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if e := points["empty"]; number(e.Measured) != "unknown" || number(e.Modelled) != "unknown" || number(e.Saved) != "unknown" {
			t.Errorf("%s: a policy of which nothing is known has %+v, want no zeros", name, e)
		}
		if u := points["unproven"]; tc.led && (*u.Measured != 300 || *u.Saved != 0 || *u.Low != 0 || *u.High != 0) {
			t.Errorf("%s: a policy with nothing proven has %+v, want what it draws without savings", name, u)
		}
	}
}

// TestJoulesPerGB: without watts, or with too little traffic, there is no figure.
func TestJoulesPerGB(t *testing.T) {
	rates := func(bits units.BitsPerSecond) *model.NodeRates {
		return &model.NodeRates{VMs: []model.VMRates{{Taps: []model.TapRates{{ToVM: model.TrafficRates{BitsPerSecond: bits}}}}}}
	}
	if got := joulesPerGB(ptr.To(181.5), rates(1e9)); got == nil || *got != 1452 {
		t.Errorf("181.5 W at 1 Gbit/s: %v, want 1452", got)
	}
	if joulesPerGB(nil, rates(1e9)) != nil || joulesPerGB(ptr.To(1.0), nil) != nil || joulesPerGB(ptr.To(1.0), rates(100)) != nil {
		t.Error("a figure without watts, rates or traffic")
	}
}

// TestTrendExpires: an hour is stored, and nothing of deleted policies.
func TestTrendExpires(t *testing.T) {
	trend := newTrend(noon)
	for i := range 3000 {
		at := noon.Add(time.Duration(i) * step).Unix()
		points := map[string]point{"stays": {Time: at, Measured: ptr.To(float64(i))}}
		if i < 100 {
			points["goes"] = point{Time: at}
		}
		trend.add(points)
	}
	got := trend.of("stays")
	if last := *got[len(got)-1].Measured; len(got) != int(span/step)+1 || last != 2999 {
		t.Errorf("%d points until %v, want an hour's until the last", len(got), last)
	}
	if left := trend.of("goes"); left != nil {
		t.Errorf("%d points of a policy that is gone", len(left))
	}
}

func TestCores(t *testing.T) {
	topology := &v1alpha1.Topology{
		CoreGroups: []v1alpha1.CoreGroup{{Cores: []string{"0,2", "1,3", "a newer way"}}},
		TakenCPUs:  "0",
	}
	plan := &v1alpha1.NodePlan{
		Spec: v1alpha1.NodePlanSpec{NetworkCPUs: "1,3", ComputeCPUs: "0,2"},
		Status: v1alpha1.NodePlanStatus{VMs: []v1alpha1.VMApplied{
			{VMReference: v1alpha1.VMReference{Namespace: "n", Name: "in"}, LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverAffinity}, State: v1alpha1.LeverInForce, VCPUs: []v1alpha1.VCPUPin{{VCPU: 0, CPUs: "1,3"}, {VCPU: 1, CPUs: "0-3"}}},
			{VMReference: v1alpha1.VMReference{Namespace: "n", Name: "failed"}, LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverAffinity}, State: v1alpha1.LeverFailed, VCPUs: []v1alpha1.VCPUPin{{CPUs: "1,3"}}},
		}},
	}
	rates := &model.NodeRates{CPUs: []model.CPURates{{CPU: 1, BusyCores: .5}, {CPU: 3, BusyCores: .25}, {CPU: 0, BusyCores: 1}}}
	got := viewCores(topology, plan, rates)
	want := &coresView{Groups: []coreGroup{{Cores: []coreView{
		{CPUs: "0,2", Pool: v1alpha1.PoolCompute, Excluded: "kept for others by the kernel or the kubelet", Pins: []string{"n/in vCPU 1"}, Count: 1}, // the load of CPU 2 is unknown
		{CPUs: "1,3", BusyPercent: ptr.To(37.5), Pool: v1alpha1.PoolNetwork, Pins: []string{"n/in vCPU 0", "n/in vCPU 1"}, Count: 2},
	}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cores (-want +got):\n%s", diff)
	}
	if viewCores(&v1alpha1.Topology{}, nil, nil) != nil {
		t.Error("a node without cores has some")
	}
	if got := viewCores(topology, nil, nil); got.Groups[0].Cores[1].BusyPercent != nil || got.Groups[0].Cores[1].Count != 0 {
		t.Errorf("without plan and rates: %+v", got.Groups[0].Cores[1])
	}
}

// Of gateways, those are shown that are withdrawn now.
func TestWithdrawnGateways(t *testing.T) {
	f := &facts.Facts{Hybrids: []v1alpha1.HybridWorkload{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "render"},
		Status: v1alpha1.HybridWorkloadStatus{Gateways: []v1alpha1.GatewayStatus{
			{VM: "serves", Ready: true, Reason: v1alpha1.ReasonGatewayServes}, {VM: "bad", Node: "n", Reason: v1alpha1.ReasonGuardWithdrawn, Message: "errors"},
		}},
	}}}
	got := viewGroups(f, url.Values{}).Withdrawn
	if len(got) != 1 || got[0].HybridWorkload != "render" || got[0].VM != "bad" || got[0].Node != "n" || got[0].Why.Message != "errors" || got[0].Why.Next == "" {
		t.Errorf("withdrawn %+v", got)
	}
}

// FuzzPart: whatever is asked for, what is sent is a part of the list, and small.
func FuzzPart(f *testing.F) {
	for _, from := range []string{"0", "49", "-1", "9223372036854775807", "1e3", ""} {
		f.Add(from, 120)
	}
	f.Fuzz(func(t *testing.T, from string, length int) {
		all := make([]int, min(max(length, 0), 10_000))
		for i := range all {
			all[i] = i
		}
		got := partOf(all, url.Values{"from": {from}}, pageSize)
		if len(got.Items) > pageSize || got.Total != len(all) || got.From < 0 || got.From > got.Total || got.Items == nil {
			t.Fatalf("%d items from %d of %d", len(got.Items), got.From, got.Total)
		}
		for i, item := range got.Items {
			if item != got.From+i {
				t.Fatalf("item %d is %d", i, item)
			}
		}
	})
}

// The watts of VMs add up to a part of the node's power that policies use, whichever meter that is.
func TestLiveWattsAreOfThePowerThatPoliciesUse(t *testing.T) {
	report := func(node string, source v1alpha1.PowerSource) *v1alpha1.NodeReport {
		return &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: v1alpha1.NodeReportStatus{
			Power: v1alpha1.Power{Source: source, Watts: ptr.To(int64(50))},
		}}
	}
	rates := func(node string) *model.NodeRates {
		return &model.NodeRates{Node: node, VMs: []model.VMRates{{Namespace: "shop", Name: "on-" + node, Watts: ptr.To(units.Watts(5))}, {Namespace: "shop", Name: "new"}}}
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	p := New(Options{
		Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
			report("metered", v1alpha1.PowerModel), report("rapl", v1alpha1.PowerRAPL), report("ungoverned", v1alpha1.PowerModel), report("silent", v1alpha1.PowerModel)).Build(),
		Live: leader{
			powers: map[string]v1alpha1.PowerSource{"metered": v1alpha1.PowerPrometheus, "rapl": v1alpha1.PowerRAPL},
			rates:  map[string]*model.NodeRates{"metered": rates("metered"), "rapl": rates("rapl"), "ungoverned": rates("ungoverned")},
		},
		Clock: clocktesting.NewFakeClock(noon),
	})
	answer, err := p.live(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := answer.(top.Live)
	want := []top.VMPower{
		{Namespace: "shop", Name: "on-metered", Node: "metered", Watts: 10}, {Namespace: "shop", Name: "on-rapl", Node: "rapl", Watts: 5},
		{Namespace: "shop", Name: "on-ungoverned", Node: "ungoverned", Watts: 5},
	}
	if diff := cmp.Diff(want, got.VMs); diff != "" {
		t.Errorf("VMs (-want +got):\n%s", diff)
	}
	if node := got.Nodes["metered"]; len(got.Nodes) != 2 || *node.Watts != 100 || node.Basis != v1alpha1.BasisMeasured {
		t.Errorf("nodes %+v", got.Nodes)
	}
}
