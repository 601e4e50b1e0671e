package figures

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/internal/cli/access"
)

func vector(result string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + result + `]}}`
}

func TestOfNodes(t *testing.T) {
	ask := func(_ context.Context, query string) ([]byte, error) {
		switch query {
		case nodeWatts:
			return []byte(vector(`{"metric":{"node":"a","source":"RAPL"},"value":[1,"180.5"]},{"metric":{"node":"b","source":"Model"},"value":[1,"NaN"]}`)), nil
		case nodeAge:
			return []byte(vector(`{"metric":{"node":"a"},"value":[1,"2"]}`)), nil
		case nodeBytes:
			return []byte(vector(`{"metric":{"node":"a"},"value":[1,"125000"]}`)), nil
		default:
			return nil, fmt.Errorf("query %s is not expected", query)
		}
	}
	got, err := OfNodes(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Node{"a": {Watts: ptr.To(180.5), Source: "RAPL", AgeSeconds: ptr.To(2.0), BytesPerSecond: ptr.To(125000.0)}, "b": {Source: "Model"}}
	if diff := cmp.Diff(want, got.Nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

func TestPotential(t *testing.T) {
	ask := func(_ context.Context, query string) ([]byte, error) {
		if !strings.Contains(query, `{node="a"}`) {
			return nil, fmt.Errorf("query %s is of no single node", query)
		}
		return []byte(vector(`{"metric":{"lever":"Affinity"},"value":[1,"12.5"]},{"metric":{"lever":"Buffering"},"value":[1,"-3"]},{"metric":{"lever":"Slice"},"value":[1,"NaN"]}`)), nil
	}
	got, err := Potential(t.Context(), ask, "a")
	if diff := cmp.Diff(map[string]float64{"Affinity": 12.5, "Buffering": -3}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestBadAnswers(t *testing.T) {
	for answer, want := range map[string]string{
		"<html>": "is no Prometheus server",
		`{"status":"error","error":"parse error"}`:                       "parse error",
		`{"status":"success","data":{"resultType":"matrix"}}`:            "refuses a query",
		`{"status":"success","data":{"resultType":"vector","result":3}}`: "read the answer",
	} {
		_, err := OfVMs(t.Context(), func(context.Context, string) ([]byte, error) { return []byte(answer), nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("answer %s: %v, want %q", answer, err, want)
		}
	}
	down := errors.New("down")
	if _, err := OfVMs(t.Context(), func(context.Context, string) ([]byte, error) { return nil, down }); !errors.Is(err, down) {
		t.Errorf("no answer: %v, want %v", err, down)
	}
}

func TestServiceOf(t *testing.T) {
	for address, want := range map[string]access.Service{
		"https://prometheus-k8s.monitoring.svc:9091":             {Name: "prometheus-k8s", Namespace: "monitoring", Port: "9091", TLS: true},
		"http://prometheus.monitoring.svc.cluster.local":         {Name: "prometheus", Namespace: "monitoring", Port: "80"},
		"https://prometheus.example.org":                         {},
		"http://prometheus.monitoring.svc:9090/behind/some/path": {},
		"://": {},
	} {
		got, ok := serviceOf(address)
		if got != want || ok != (want.Name != "") {
			t.Errorf("%s: %+v (%v), want %+v", address, got, ok, want)
		}
	}
}
