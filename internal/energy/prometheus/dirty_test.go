package prometheus

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/internal/energy"
)

func TestDirtyRates(t *testing.T) {
	sample := func(namespace, name string, rate float64) *model.Sample {
		return &model.Sample{Metric: model.Metric{"namespace": model.LabelValue(namespace), "name": model.LabelValue(name)}, Value: model.SampleValue(rate)}
	}
	moved := sample("kubevirt", "moved", 5e6)
	moved.Metric["exported_namespace"] = "shop"
	s := serve(t, map[string]any{
		// The first and the last of 60 nodes.
		`node-00|`: model.Vector{sample("shop", "web", 1e6), moved, sample("shop", "wrong", math.Inf(1)), sample("shop", "none", math.NaN()), sample("shop", "below", -1)},
		`|node-59`: model.Vector{sample("shop", "moved", 7e6), {Metric: model.Metric{"namespace": "shop", "name": "histogram"}, Histogram: &model.SampleHistogram{}}},
	})
	var nodes []string
	for i := range 60 {
		nodes = append(nodes, fmt.Sprintf("node-%02d", i))
	}
	source := newTestSource(t, energy.Server{URL: s.URL}, "")
	got, err := source.DirtyRates(t.Context(), nodes)
	if err != nil {
		t.Fatal(err)
	}
	want := map[types.NamespacedName]float64{{Namespace: "shop", Name: "web"}: 1e6, {Namespace: "shop", Name: "moved"}: 7e6}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rates (-want +got):\n%s", diff)
	}
	if len(s.queries) != 2 {
		t.Errorf("%d queries, want one for each 50 nodes: %q", len(s.queries), s.queries)
	}
	if _, err := source.DirtyRates(t.Context(), []string{"another"}); reasonOf(err) != energy.ReasonWrongType {
		t.Errorf("a matrix: %v, want %s", err, energy.ReasonWrongType)
	}
}
