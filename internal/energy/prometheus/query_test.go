package prometheus

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

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
