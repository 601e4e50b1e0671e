package page

import (
	"math"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/explain"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/figures"
	"github.com/joulevirt/joulevirt/internal/cli/savings"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// heard is what a leader hears.
type heard struct{ powers map[string]model.PowerSource }

func (heard) Heard(string) (*model.NodeRates, time.Time) { return nil, time.Time{} }

func (heard) Potential(string, float64) map[model.Lever]ledger.Range {
	return map[model.Lever]ledger.Range{model.LeverAffinity: {Value: 5, Low: -1, High: 11}, model.LeverBuffering: {}}
}

func (heard) Proven(policy, node string) map[model.Lever]ledger.Range {
	if policy != "p" || node != "a" {
		return nil
	}
	return map[model.Lever]ledger.Range{model.LeverAffinity: {Value: 4, Low: 3, High: 5}}
}

func (heard) Booked(_, node string, confidence float64) []ledger.UnitSaving {
	return []ledger.UnitSaving{{Unit: node, Lever: model.LeverBuffering, Modelled: true, Saved: ledger.Range{Value: 3.6e6 * confidence}}}
}

func (h heard) EachPower(call func(string, model.Power, bool)) {
	for node, source := range h.powers {
		call(node, model.Power{Source: source, Watts: 100}, source != model.SourceModel)
	}
}

func TestPoints(t *testing.T) {
	f := &facts.Facts{Now: noon, Policies: []v1alpha1.EnergyPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Status: v1alpha1.EnergyPolicyStatus{Watts: ptr.To(int64(500)), Proven: []v1alpha1.Saving{
			{Milliwatts: 20000, LowMilliwatts: 10000, HighMilliwatts: 30000}, {Milliwatts: 5000, LowMilliwatts: -1000, HighMilliwatts: 9000},
			{Modelled: true, Milliwatts: 99000},
		}},
	}, {ObjectMeta: metav1.ObjectMeta{Name: "empty"}}, {
		ObjectMeta: metav1.ObjectMeta{Name: "unproven"}, Status: v1alpha1.EnergyPolicyStatus{Watts: ptr.To(int64(300))},
	}}}
	for _, node := range []string{"a", "b", "c"} {
		f.Plans = append(f.Plans, v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: v1alpha1.NodePlanSpec{Policy: "p"}})
	}
	live := heard{map[string]model.PowerSource{"a": model.SourcePrometheus, "b": model.SourceModel, "c": model.SourceModel, "other": model.SourceModel}}
	number := func(v float32) any {
		if math.IsNaN(float64(v)) {
			return "unknown"
		}
		return v
	}
	for name, tc := range map[string]struct {
		led  bool
		want []any
	}{
		"led":          {true, []any{float32(500), float32(200), float32(25), float32(9), float32(39)}},
		"no one leads": {false, []any{"unknown", float32(200), "unknown", "unknown", "unknown"}},
	} {
		points := pointsOf(f, live, tc.led)
		p := points["p"]
		got := []any{number(p.measured), number(p.modelled), number(p.saved), number(p.low), number(p.high)}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if e := points["empty"]; number(e.measured) != "unknown" || number(e.modelled) != "unknown" || number(e.saved) != "unknown" {
			t.Errorf("%s: a policy of which nothing is known has %+v, want no zeros", name, e)
		}
		if u := points["unproven"]; tc.led && (u.measured != 300 || u.saved != 0 || u.low != 0 || u.high != 0) {
			t.Errorf("%s: a policy with nothing proven has %+v, want what it draws without savings", name, u)
		}
	}
}

// TestMeter: a leader tells of the node's own energy, with the policy's confidence; one that
// stands by says so.
func TestMeter(t *testing.T) {
	policy := &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	leads := true
	p := &Page{Options: Options{
		Live: heard{map[string]model.PowerSource{"a": model.SourcePrometheus, "b": model.SourceModel}}, Leads: func() bool { return leads },
		Clock: clocktesting.NewFakeClock(noon),
	}}
	got, gaps := p.meter(t.Context(), policy, "a", types.NamespacedName{})
	got.Now.Node.AgeSeconds = nil
	want := explain.Energy{
		Now: &figures.Detail{
			Node:   figures.Node{Watts: ptr.To(100.0), Source: "Prometheus"},
			Proven: []figures.LeverWatts{{Lever: v1alpha1.LeverAffinity, Watts: 4, LowWatts: ptr.To(3.0), HighWatts: ptr.To(5.0)}},
			Potential: []figures.LeverWatts{
				{Lever: v1alpha1.LeverAffinity, Watts: 5, LowWatts: ptr.To(-1.0), HighWatts: ptr.To(11.0)}, {Lever: v1alpha1.LeverBuffering, LowWatts: ptr.To(0.0), HighWatts: ptr.To(0.0)},
			},
		},
		Booked: []savings.Unit{{Unit: "a", Lever: v1alpha1.LeverBuffering, Basis: v1alpha1.BasisModelled, KilowattHours: 0.95}},
	}
	if diff := cmp.Diff(want, got); diff != "" || len(gaps) > 0 {
		t.Errorf("%v (-want +got):\n%s", gaps, diff)
	}
	leads = false
	if got, _ := p.meter(t.Context(), policy, "a", types.NamespacedName{}); got.Now != nil || got.Unknown == "" {
		t.Errorf("a manager that stands by tells %+v", got)
	}
}

// TestTrendForgets: a day is kept, and policies that are gone are not.
func TestTrendForgets(t *testing.T) {
	trend := newTrend(noon)
	for i := range 3000 {
		at := noon.Add(time.Duration(i) * step)
		points := map[string]point{"stays": {at: at, measured: float32(i)}}
		if i < 100 {
			points["goes"] = point{at: at}
		}
		trend.add(points)
	}
	got := seriesOf(trend.of("stays"), noon)
	if len(got.Times) != int(span/step) || *got.Measured[len(got.Measured)-1] != 2999 {
		t.Errorf("%d points until %v, want a day's until the last", len(got.Times), *got.Measured[len(got.Measured)-1])
	}
	if left := trend.of("goes"); left != nil {
		t.Errorf("%d points of a policy that is gone", len(left))
	}
	many := map[string]point{}
	for i := range 2 * mostPolicies {
		many[strconv.Itoa(i)] = point{at: noon}
	}
	trend.add(many)
	if n := len(trend.by); n > mostPolicies {
		t.Errorf("%d policies are remembered, want at most %d", n, mostPolicies)
	}
}

func TestCores(t *testing.T) {
	topology := &v1alpha1.Topology{
		CoreGroups:   []v1alpha1.CoreGroup{{Cores: []string{"0,2", "1,3", "a newer way"}}},
		ReservedCPUs: "0",
	}
	plan := &v1alpha1.NodePlan{
		Spec: v1alpha1.NodePlanSpec{Pools: &v1alpha1.PoolCores{NetworkCPUs: "1,3", ComputeCPUs: "0,2"}},
		Status: v1alpha1.NodePlanStatus{VMs: []v1alpha1.VMApplied{
			{Namespace: "n", Name: "in", Lever: v1alpha1.LeverAffinity, State: v1alpha1.LeverInForce, VCPUs: []v1alpha1.ThreadReadBack{{VCPU: 0, CPUs: "1,3"}, {VCPU: 1, CPUs: "0-3"}}},
			{Namespace: "n", Name: "failed", Lever: v1alpha1.LeverAffinity, State: v1alpha1.LeverFailed, VCPUs: []v1alpha1.ThreadReadBack{{CPUs: "1,3"}}},
		}},
	}
	rates := &model.NodeRates{CPUs: []model.CPURates{{CPU: 1, BusyCores: .5}, {CPU: 3, BusyCores: .25}, {CPU: 0, BusyCores: 1}}}
	got := viewCores(topology, plan, rates)
	want := &coresView{Groups: []coreGroup{{Cores: []coreView{
		{CPUs: "0,2", Pool: v1alpha1.PoolCompute, Kept: "reserved by the kubelet", Pins: []string{"n/in vCPU 1"}, Count: 1}, // CPU 2 was not heard of
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

// FuzzSlice: whatever is asked for, what is sent is a part of the list, and small.
func FuzzSlice(f *testing.F) {
	for _, from := range []string{"0", "49", "-1", "9223372036854775807", "1e3", ""} {
		f.Add(from, 120)
	}
	f.Fuzz(func(t *testing.T, from string, length int) {
		all := make([]int, min(max(length, 0), 10_000))
		for i := range all {
			all[i] = i
		}
		got := sliceOf(all, url.Values{"from": {from}})
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
