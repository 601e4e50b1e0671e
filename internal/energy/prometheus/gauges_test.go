package prometheus

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/units"
)

// gauge is a reading of node-a's management controller at 15 s and 20 s past
// noon.
func gauge(watts float64, kind, id string, labels ...string) *model.SampleStream {
	return stream([]at{{15, 1}, {20, watts}}, append([]string{"bmc_id", "b", "chassis_id", "c", "source_type", kind, "source_id", id}, labels...)...)
}

func TestPlatform(t *testing.T) {
	ended := gauge(0, "PowerSupply", "2")
	ended.Values = ended.Values[:1]
	tests := map[string]struct {
		matrix model.Matrix
		watts  units.Watts
		reason energy.Reason
		text   string
	}{
		"one supply":          {matrix: model.Matrix{gauge(200, "PowerSupply", "1")}, watts: 200},
		"supplies add up":     {matrix: model.Matrix{gauge(120, "PowerSupply", "1"), gauge(90, "PowerSupply", "2")}, watts: 210},
		"a supply is off":     {matrix: model.Matrix{gauge(210, "PowerSupply", "1"), ended}, watts: 210},
		"controls do not":     {matrix: model.Matrix{gauge(210, "PowerControl", "0"), gauge(90, "PowerControl", "1")}, watts: 210},
		"control over supply": {matrix: model.Matrix{gauge(230, "PowerControl", "0"), gauge(210, "PowerSupply", "1")}, watts: 230},
		"in other chassis":    {matrix: model.Matrix{gauge(120, "PowerSupply", "1"), gauge(90, "PowerSupply", "1", "chassis_id", "d")}, watts: 210},
		"without labels":      {matrix: model.Matrix{stream([]at{{20, 70}})}, watts: 70},
		"zero":                {matrix: model.Matrix{gauge(0, "PowerSupply", "1")}, watts: 0},
		"not a number":        {matrix: model.Matrix{gauge(math.NaN(), "PowerSupply", "1"), gauge(90, "PowerSupply", "2")}, reason: energy.ReasonNotFinite, text: `source_id="1"`},
		"negative":            {matrix: model.Matrix{gauge(-3, "PowerSupply", "1")}, reason: energy.ReasonImplausible, text: `source_id="1"`},
		"scraped twice":       {matrix: model.Matrix{gauge(90, "PowerSupply", "1", "job", "a"), gauge(90, "PowerSupply", "1", "job", "b")}, reason: energy.ReasonManySeries, text: `job="b"`},
		"labels that differ":  {matrix: model.Matrix{gauge(90, "PowerSupply", "1", "node", "node-b")}, reason: energy.ReasonManySeries, text: "node-b"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := platform{}.decode(test.matrix, newIndex(cluster()))
			if test.reason != "" {
				refusal := got.Refused["node-a"]
				if len(got.Readings) > 0 || refusal == nil || refusal.Reason != test.reason || !strings.Contains(refusal.Message, test.text) {
					t.Errorf("readings %v, refusal %v, want %s with %q", got.Readings, refusal, test.reason, test.text)
				}
				return
			}
			want := map[string]nodePower{"node-a": {
				Source: v1alpha1.PowerPrometheus, Scope: v1alpha1.PowerScopePlatform, Watts: test.watts, Time: noon().Add(20 * time.Second),
			}}
			if diff := cmp.Diff(want, got.Readings); diff != "" {
				t.Errorf("readings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOwnTimes(t *testing.T) {
	evaluated := model.TimeFromUnixNano(noon().UnixNano())
	vector := model.Vector{
		{Metric: model.Metric{"node": "node-a"}, Value: 100, Timestamp: evaluated},
		{Metric: model.Metric{"node": "10.0.0.2"}, Value: 90, Timestamp: evaluated},
		{Metric: model.Metric{"node_name": "node-c"}, Value: 80, Timestamp: evaluated},
	}
	times := model.Vector{
		{Metric: model.Metric{"node": "node-a"}, Value: model.SampleValue(float64(noon().UnixMilli())/1000 - 12.345)},
		// Later than its evaluation no sample can be.
		{Metric: model.Metric{"node": "10.0.0.2"}, Value: model.SampleValue(float64(noon().UnixMilli())/1000 + 100)},
	}
	got := ownQuery{}.decode(vector, times, newIndex(cluster()))
	want := map[string]nodePower{
		"node-a": {Source: v1alpha1.PowerPrometheus, Scope: v1alpha1.PowerScopePlatform, Watts: 100, Time: noon().Add(-12345 * time.Millisecond)},
		"node-b": {Source: v1alpha1.PowerPrometheus, Scope: v1alpha1.PowerScopePlatform, Watts: 90, Time: noon()},
	}
	if diff := cmp.Diff(want, got.Readings); diff != "" {
		t.Errorf("readings (-want +got):\n%s", diff)
	}
	if got.unmatched != 1 {
		t.Errorf("%d unmatched, want that without a label node", got.unmatched)
	}
}
