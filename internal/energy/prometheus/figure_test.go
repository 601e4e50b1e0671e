package prometheus

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
)

func TestFigure(t *testing.T) {
	sample := func(zone string, value float64) *model.Sample {
		return &model.Sample{Metric: model.Metric{"zone": model.LabelValue(zone)}, Value: model.SampleValue(value)}
	}
	s := serve(t, map[string]any{
		"scalar": &model.Scalar{Value: 0.28},
		"one":    model.Vector{sample("DE", 380)},
		"two":    model.Vector{sample("DE", 380), sample("FR", 50)},
		"empty":  model.Vector{},
		"shape":  model.Vector{{Histogram: &model.SampleHistogram{Count: 1}}},
		"nan":    &model.Scalar{Value: model.SampleValue(math.NaN())},
		"paid":   &model.Scalar{Value: -0.05},
		"free":   &model.Scalar{Value: 0},
	})
	asker := energy.Asker{NewSource: func(server energy.Server, credentials energy.Credentials) (energy.Source, error) {
		return New(Config{URL: server.URL, Credentials: credentials})
	}}
	server := energy.Server{URL: s.URL, Timeout: defaultTimeout}
	for query, want := range map[string]float64{"scalar": 0.28, "one": 380, "free": 0} {
		if got, err := asker.Figure(t.Context(), server, query); got != want || err != nil {
			t.Errorf("%s: %g, %v, want %g", query, got, err, want)
		}
	}
	for query, want := range map[string]struct {
		reason energy.Reason
		text   string
	}{
		"two":         {energy.ReasonManySeries, "yields 2 samples: aggregate"},
		"empty":       {energy.ReasonNoSeries, "yields nothing"},
		"shape":       {energy.ReasonWrongType, "no number"},
		"nan":         {energy.ReasonNotFinite, "NaN"},
		"paid":        {energy.ReasonImplausible, "avg_over_time"},
		"other range": {energy.ReasonWrongType, "matrix"}, // the server's answer to what it does not know
	} {
		_, err := asker.Figure(t.Context(), server, query)
		if energy.ReasonOf(err) != want.reason || !strings.Contains(fmt.Sprint(err), want.text) {
			t.Errorf("%s: %v, want %s with %q", query, err, want.reason, want.text)
		}
	}
}

func TestFigureOfServersThatAreNone(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer s.Close()
	asker := energy.Asker{NewSource: func(server energy.Server, _ energy.Credentials) (energy.Source, error) {
		return New(Config{URL: server.URL})
	}}
	for address, want := range map[string]energy.Reason{s.URL: energy.ReasonUnauthorized, "gopher://prices": energy.ReasonUnreachable} {
		_, err := asker.Figure(t.Context(), energy.Server{URL: address, Timeout: defaultTimeout}, "price")
		if energy.RefusalIn(err) == nil || energy.ReasonOf(err) != want {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
	}
}
