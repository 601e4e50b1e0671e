package prometheus

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
)

func TestLabels(t *testing.T) {
	many := make(model.Vector, mostNamed+1)
	for i := range many {
		many[i] = &model.Sample{Metric: model.Metric{"node": model.LabelValue(fmt.Sprint(i))}}
	}
	s := serve(t, map[string]any{
		"none":   model.Vector{},
		"two":    model.Vector{{Metric: model.Metric{"namespace": "shop", "name": "web"}}, {Metric: model.Metric{"node": "a"}, Value: 0}},
		"many":   many,
		"scalar": &model.Scalar{Value: 1},
	})
	asker := energy.Asker{NewSource: func(server energy.Server, credentials energy.Credentials) (energy.Source, error) {
		return New(Config{URL: server.URL, Credentials: credentials})
	}}
	server := energy.Server{URL: s.URL, Timeout: defaultTimeout}
	for query, want := range map[string][]map[string]string{
		"none": {}, "two": {{"namespace": "shop", "name": "web"}, {"node": "a"}},
	} {
		got, err := asker.Labels(t.Context(), server, query)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", query, err, diff)
		}
	}
	for query, want := range map[string]struct {
		reason energy.Reason
		text   string
	}{
		"many":   {energy.ReasonManySeries, "10001 series"},
		"scalar": {energy.ReasonWrongType, "scalar"},
		"other":  {energy.ReasonWrongType, "matrix"}, // the server's answer to what it does not know
	} {
		if _, err := asker.Labels(t.Context(), server, query); energy.ReasonOf(err) != want.reason || !strings.Contains(fmt.Sprint(err), want.text) {
			t.Errorf("%s: %v, want %s with %q", query, err, want.reason, want.text)
		}
	}
}
