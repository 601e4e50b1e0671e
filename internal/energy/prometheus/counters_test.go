package prometheus

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/units"
)

// counting is a series of node-a whose counter goes on at a power, scraped each
// 5 s from noon to 20 s past it.
func counting(watts float64, labels ...string) *model.SampleStream {
	var all []at
	for seconds := 0.0; seconds <= 20; seconds += 5 {
		all = append(all, at{seconds, 1000 + watts*seconds})
	}
	return stream(all, labels...)
}

// stream is a series of node-a with labels, given as names and values.
func stream(all []at, labels ...string) *model.SampleStream {
	metric := model.Metric{"node_name": "node-a"}
	for i := 0; i < len(labels); i += 2 {
		metric[model.LabelName(labels[i])] = model.LabelValue(labels[i+1])
	}
	return &model.SampleStream{Metric: metric, Values: samples(all...)}
}

func zone(watts float64, zone, path string, labels ...string) *model.SampleStream {
	return counting(watts, append(labels, "zone", zone, "path", path)...)
}

func reading(scope v1alpha1.PowerScope, watts float64) nodePower {
	return nodePower{Source: v1alpha1.PowerPrometheus, Scope: scope, Watts: units.Watts(watts), Time: noon().Add(20 * time.Second), IntervalSeconds: 10}
}

// TestCounters judges series of node-a.
func TestCounters(t *testing.T) {
	const platform, packages = v1alpha1.PowerScopePlatform, v1alpha1.PowerScopePackage
	still := []at{{0, 7}, {5, 7}, {10, 7}, {15, 7}, {20, 7}}
	tests := map[string]struct {
		matrix model.Matrix
		want   nodePower
		reason energy.Reason
		texts  []string
	}{
		"one package":          {matrix: model.Matrix{zone(80, "package", "0")}, want: reading(packages, 80)},
		"packages add up":      {matrix: model.Matrix{zone(80, "package", "0"), zone(70, "package", "1")}, want: reading(packages, 150)},
		"memory is no part":    {matrix: model.Matrix{zone(80, "package", "0"), zone(9, "dram", "0:1"), zone(8, "dram", "1:1")}, want: reading(packages, 80)},
		"zones never add up":   {matrix: model.Matrix{zone(80, "package", "0"), zone(60, "core", "0:0"), zone(5, "uncore", "0:1")}, want: reading(packages, 80)},
		"psys first":           {matrix: model.Matrix{zone(80, "package", "0"), zone(9, "dram", "0:1"), zone(200, "psys", "1")}, want: reading(platform, 200)},
		"psys below packages":  {matrix: model.Matrix{zone(80, "package", "0"), zone(9, "dram", "0:1"), zone(30, "psys", "1")}, want: reading(packages, 80)},
		"psys that stands":     {matrix: model.Matrix{zone(80, "package", "0"), stream(still, "zone", "psys", "path", "1")}, want: reading(packages, 80)},
		"psys alone":           {matrix: model.Matrix{zone(200, "psys", "1")}, want: reading(platform, 200)},
		"psys, package stands": {matrix: model.Matrix{stream(still, "zone", "package", "path", "0"), zone(200, "psys", "1")}, want: reading(platform, 200)},
		"psys not a number": {
			matrix: model.Matrix{zone(80, "package", "0"), stream([]at{{20, -1}}, "zone", "psys", "path", "1")},
			reason: energy.ReasonImplausible, texts: []string{`zone="psys"`},
		},
		"memory alone":        {matrix: model.Matrix{zone(9, "dram", "0:1")}, reason: energy.ReasonNoSeries, texts: []string{"zone package"}},
		"a package stands":    {matrix: model.Matrix{zone(80, "package", "0"), stream(still, "zone", "package", "path", "1")}, reason: energy.ReasonFrozen, texts: []string{`path="1"`, "for 10s"}},
		"too young to tell":   {matrix: model.Matrix{stream(still[3:], "zone", "package", "path", "1")}, reason: energy.ReasonAwaiting, texts: []string{`path="1"`}},
		"one sample":          {matrix: model.Matrix{stream(still[4:], "zone", "package", "path", "1")}, reason: energy.ReasonAwaiting, texts: []string{`path="1"`, "one sample"}},
		"a package has ended": {matrix: model.Matrix{zone(80, "package", "0"), stream([]at{{0, 0}, {5, 500}, {10, 1000}}, "zone", "package", "path", "1")}, reason: energy.ReasonAwaiting, texts: []string{"lost a socket"}},
		"scraped twice": {
			matrix: model.Matrix{zone(80, "package", "0", "job", "a"), zone(80, "package", "0", "job", "b")},
			reason: energy.ReasonManySeries, texts: []string{`{job="a"} and {job="b"}`, "matchers"},
		},
		"psys of another target": {
			matrix: model.Matrix{zone(80, "package", "0", "job", "kepler"), zone(200, "psys", "1", "job", "tenant")},
			reason: energy.ReasonManySeries, texts: []string{`{job="kepler"} and {job="tenant"}`},
		},
		"a socket of another target": {
			matrix: model.Matrix{zone(80, "package", "0", "job", "kepler"), zone(80, "package", "1", "job", "tenant")},
			reason: energy.ReasonManySeries, texts: []string{`{job="kepler"} and {job="tenant"}`},
		},
		"a new pod": {
			matrix: model.Matrix{
				stream([]at{{12, 500}, {16, 900}, {20, 1300}}, "zone", "package", "path", "0", "pod", "b"),
				stream([]at{{0, 7000}, {4, 7800}, {8, 8600}}, "zone", "package", "path", "0", "pod", "a"),
			},
			want: nodePower{Source: v1alpha1.PowerPrometheus, Scope: packages, Watts: 100, Time: noon().Add(20 * time.Second), IntervalSeconds: 8},
		},
		"a very new pod": {
			matrix: model.Matrix{
				stream([]at{{12, 500}}, "zone", "package", "path", "0", "pod", "b"),
				stream([]at{{0, 7000}, {4, 7800}, {8, 8600}}, "zone", "package", "path", "0", "pod", "a"),
			},
			want: nodePower{Source: v1alpha1.PowerPrometheus, Scope: packages, Watts: 200, Time: noon().Add(8 * time.Second), IntervalSeconds: 8},
		},
		"labels that differ": {
			matrix: model.Matrix{zone(80, "package", "0", "node", "node-b")},
			reason: energy.ReasonManySeries, texts: []string{"node-a and node-b", "make them agree"},
		},
		"good, and labels that differ": {
			matrix: model.Matrix{zone(80, "package", "0"), zone(80, "package", "1", "node", "node-b")},
			reason: energy.ReasonManySeries, texts: []string{"make them agree"},
		},
		"a histogram": {
			matrix: model.Matrix{{Metric: zone(1, "package", "0").Metric, Histograms: []model.SampleHistogramPair{{}}}, zone(80, "package", "1")},
			reason: energy.ReasonWrongType, texts: []string{"histogram"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := counters{}.decode(test.matrix, newIndex(cluster()))
			refusal, read := got.Refused["node-a"], got.Readings
			if test.reason == "" {
				if refusal != nil {
					t.Fatal(refusal)
				}
				if diff := cmp.Diff(map[string]nodePower{"node-a": test.want}, read); diff != "" {
					t.Errorf("readings (-want +got):\n%s", diff)
				}
				return
			}
			if len(read) > 0 || refusal == nil || refusal.Reason != test.reason {
				t.Fatalf("readings %v, refusal %v, want %s", read, refusal, test.reason)
			}
			for _, text := range test.texts {
				if !strings.Contains(refusal.Message, text) {
					t.Errorf("message %q lacks %q", refusal.Message, text)
				}
			}
		})
	}
}

// TestCountersOfManyNodes: what is wrong with a node is no other's matter.
func TestCountersOfManyNodes(t *testing.T) {
	var nodes []energy.Node
	var matrix model.Matrix
	for i := range 3000 {
		name := fmt.Sprintf("node-%04d", i)
		nodes = append(nodes, energy.Node{Name: name})
		for socket := range 2 {
			s := zone(float64(10+i%7), "package", fmt.Sprint(socket))
			s.Metric["node_name"] = model.LabelValue(name)
			if i%10 == 0 {
				s.Values = s.Values[:1]
			}
			matrix = append(matrix, s)
		}
	}
	matrix = append(matrix, stream([]at{{0, 1}}, "node_name", "elsewhere", "zone", "package"))
	got := counters{}.decode(matrix, newIndex(nodes))
	if len(got.Readings) != 2700 || len(got.Refused) != 300 || got.unmatched != 1 {
		t.Errorf("%d read, %d refused, %d unmatched", len(got.Readings), len(got.Refused), got.unmatched)
	}
	if watts := got.Readings["node-0008"].Watts; watts != 2*(10+8%7) {
		t.Errorf("node-0008: %v W", watts)
	}
}

// TestOrderDoesNotMatter holds that the same series give the same answer, to the
// last bit and word, in whatever order a server sends them.
func TestOrderDoesNotMatter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 3))
	var matrix model.Matrix
	for i := range 8 {
		socket := fmt.Sprint(i)
		matrix = append(matrix, zone(10+math.Pi*float64(i), "package", socket), zone(1/(1+float64(i)), "dram", socket))
		stray := zone(1, "package", socket)
		stray.Metric["node_name"] = model.LabelValue("stray-" + socket)
		broken := stream([]at{{20, -1}}, "zone", "package", "path", socket)
		broken.Metric["node_name"] = "node-b"
		matrix = append(matrix, stray, broken)
	}
	nodes := newIndex(cluster())
	read := func() found {
		all := counters{}.decode(matrix, nodes)
		all.explain(cluster(), "")
		return all
	}
	want := read()
	for range 50 {
		random.Shuffle(len(matrix), func(i, j int) { matrix[i], matrix[j] = matrix[j], matrix[i] })
		if diff := cmp.Diff(want, read(), cmp.AllowUnexported(found{})); diff != "" {
			t.Fatalf("answers (-want +got):\n%s", diff)
		}
	}
}
