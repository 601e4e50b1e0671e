package offload

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/internal/planner/offload/guard"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

// TestFailures counts how often gateways of a VM failed, by what their pods say.
func TestFailures(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	pod := func(name string, readySince time.Duration, restarts int32) *gateway {
		p := podOf(name, readySince > 0, pods.Mark{})
		p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(readySince))
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: restarts}}
		return &gateway{Pod: p}
	}
	ended := func(name string) *gateway {
		g := pod(name, 0, 0)
		g.Status.Phase = corev1.PodFailed
		return g
	}
	for name, test := range map[string]struct {
		seen               []*gateway
		restarted, unready int
	}{
		"it starts": {seen: []*gateway{pod("a", 0, 0), pod("a", 1, 0), pod("a", 1, 0)}},
		"it was restarted before it was observed":   {seen: []*gateway{pod("a", 1, 7), pod("a", 1, 7)}},
		"it is restarted":                           {seen: []*gateway{pod("a", 1, 0), pod("a", 0, 0), pod("a", 2, 1)}, restarted: 1, unready: 1},
		"it is restarted twice between two looks":   {seen: []*gateway{pod("a", 1, 0), pod("a", 1, 2)}, restarted: 2},
		"it was not ready for less than a look":     {seen: []*gateway{pod("a", 1, 0), pod("a", 5, 0)}, unready: 1},
		"nodes evict one after the other":           {seen: []*gateway{ended("a"), ended("a"), ended("b"), pod("c", 0, 0), ended("c")}, restarted: 3},
		"another follows when the template changes": {seen: []*gateway{pod("a", 1, 0), pod("b", 0, 0), pod("a", 1, 0), pod("b", 2, 0)}},
	} {
		w := &watched{pods: map[types.UID]*podSeen{}}
		for _, g := range test.seen {
			w.observe(g, nil, noon)
		}
		if len(w.restarted) != test.restarted || len(w.unready) != test.unready {
			t.Errorf("%s: restarted %d times and unready %d times, want %d and %d", name, len(w.restarted), len(w.unready), test.restarted, test.unready)
		}
		if w.forget(noon.Add(guard.FailureWindow + time.Second)); len(w.restarted)+len(w.unready) > 0 {
			t.Errorf("%s: remembered for ever", name)
		}
	}
}

// TestSpans are between two pages of the same process.
func TestSpans(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w := &watched{pods: map[types.UID]*podSeen{}}
	g := &gateway{Pod: podOf("a", true, pods.Mark{})}
	for i, c := range []*counters{{hits: 5, errors: 9}, nil, {hits: 8, answers: 2, errors: 10, firstByte: 0.5, delay: 0.25}, {hits: 1}, {hits: 3}} {
		w.observe(g, c, noon.Add(time.Duration(i)*time.Minute))
	}
	want := []timedSpan{
		{guard.Span{Hits: 3, Answers: 2, Errors: 1, FirstByte: 500 * time.Millisecond, Delay: 250 * time.Millisecond}, noon.Add(2 * time.Minute)},
		{guard.Span{Hits: 2}, noon.Add(4 * time.Minute)},
	}
	if diff := cmp.Diff(want, w.spans, cmp.AllowUnexported(timedSpan{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if w.forget(noon.Add(8 * time.Minute)); len(w.spans) != 1 {
		t.Errorf("spans %v are remembered", w.spans)
	}
}

// TestReadCounters reads what gateways show by internal/metrics.
func TestReadCounters(t *testing.T) {
	var page strings.Builder
	value := 0.5
	for _, m := range metrics.Gateway() {
		fmt.Fprintf(&page, "# TYPE %s %s\n", m.Name, m.Type)
		if len(m.Labels) == 0 {
			fmt.Fprintf(&page, "%s %g\n", m.Name, value)
			continue
		}
		for _, label := range []string{"hit", "miss"} {
			fmt.Fprintf(&page, "%s{%s=%q} %g\n", m.Name, m.Labels[0], label, value)
		}
	}
	got, err := readCounters(strings.NewReader(page.String()))
	if err != nil || *got != (counters{value, value, value, value, value, 2 * value, value}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"x {", "# TYPE joulevirt_gateway_errors_total counter\njoulevirt_gateway_errors_total NaN\n", "# TYPE joulevirt_gateway_errors_total counter\njoulevirt_gateway_errors_total -1\n"} {
		if got, err := readCounters(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}
