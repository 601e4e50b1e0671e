package figures

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
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

func TestOfOne(t *testing.T) {
	lever := func(name, watts string) string {
		return `{"metric":{"lever":"` + name + `"},"value":[1,"` + watts + `"]}`
	}
	answers := map[string]string{
		`max by (source) (joulevirt_node_power_watts{node="a"})`:                                    `{"metric":{"source":"RAPL"},"value":[1,"180.5"]}`,
		`max by (node) (joulevirt_node_power_age_seconds{node="a"})`:                                `{"metric":{"node":"a"},"value":[1,"2"]}`,
		`max by (lever) (joulevirt_node_proven_watts{node="a"})`:                                    lever("Affinity", "9"),
		`max by (lever) (joulevirt_node_proven_low_watts{node="a"})`:                                lever("Affinity", "7"),
		`max by (lever) (joulevirt_node_proven_high_watts{node="a"})`:                               lever("Affinity", "11"),
		`max by (lever) (joulevirt_node_potential_watts{node="a"})`:                                 lever("Slice", "NaN") + "," + lever("Buffering", "-3") + "," + lever("Affinity", "12.5"),
		`max by (lever) (joulevirt_node_potential_low_watts{node="a"})`:                             lever("Affinity", "-1"),
		`max by (lever) (joulevirt_node_potential_high_watts{node="a"})`:                            lever("Affinity", "26"),
		`max by (node) (joulevirt_vm_power_watts{node="a",namespace="shop",name="web-0"})`:          `{"metric":{"node":"a"},"value":[1,"4.5"]}`,
		`max by (node) (joulevirt_vm_exported_power_watts{node="a",namespace="shop",name="web-0"})`: "",
	}
	ask := func(_ context.Context, query string) ([]byte, error) {
		answer, known := answers[query]
		if !known {
			return nil, fmt.Errorf("query %s is not expected", query)
		}
		return []byte(vector(answer)), nil
	}
	want := &Detail{
		Node: Node{Watts: ptr.To(180.5), Source: "RAPL", AgeSeconds: ptr.To(2.0)}, VMWatts: ptr.To(4.5),
		Proven:    []LeverWatts{{Lever: "Affinity", Watts: 9, LowWatts: ptr.To(7.0), HighWatts: ptr.To(11.0)}},
		Potential: []LeverWatts{{Lever: "Affinity", Watts: 12.5, LowWatts: ptr.To(-1.0), HighWatts: ptr.To(26.0)}, {Lever: "Buffering", Watts: -3}},
	}
	got, err := OfOne(t.Context(), ask, "a", types.NamespacedName{Namespace: "shop", Name: "web-0"})
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("VM: %v (-want +got):\n%s", err, diff)
	}
	want.VMWatts = nil
	got, err = OfOne(t.Context(), ask, "a", types.NamespacedName{})
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("node: %v (-want +got):\n%s", err, diff)
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
