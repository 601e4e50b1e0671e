package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
	power "github.com/joulevirt/joulevirt/internal/model"
)

// pod is the series of a launcher pod of Kepler 0.10, on node-a.
func pod(all []at, vmi, uid string, labels ...string) *model.SampleStream {
	return stream(all, append([]string{
		"job", "kepler", "instance", "10.0.0.1:28282", "zone", "package", "state", "running",
		"pod_id", uid, "pod_name", "virt-launcher-" + vmi + "-abcde", "pod_namespace", "shop",
	}, labels...)...)
}

// container is a series of a launcher pod of Kepler 0.9, on node-a.
func container(all []at, vmi, id string, labels ...string) *model.SampleStream {
	return stream(all, append([]string{
		"job", "kepler", "instance", "10.0.0.1:9102", "mode", "dynamic", "source", "rapl-sysfs", "container_id", id,
		"container_name", "compute", "pod_name", "virt-launcher-" + vmi + "-abcde", "container_namespace", "shop",
	}, labels...)...)
}

// climbing are the samples of a counter that goes on at a power.
func climbing(watts float64) []at {
	var all []at
	for seconds := 0.0; seconds <= 20; seconds += 5 {
		all = append(all, at{seconds, 100 + watts*seconds})
	}
	return all
}

func vmReading(watts float64) power.Power { return reading(power.ScopePackage, watts) }

// earlier is a reading of one scrape before.
func earlier(reading power.Power) power.Power {
	reading.Time = reading.Time.Add(-5 * time.Second)
	return reading
}

// until cuts samples off.
func until(all []at, seconds float64) []at {
	var out []at
	for _, a := range all {
		if a.seconds <= seconds {
			out = append(out, a)
		}
	}
	return out
}

func TestPods(t *testing.T) {
	still := []at{{0, 7}, {5, 7}, {10, 7}, {15, 7}, {20, 7}}
	uid := func(uid string) energy.Launcher { return energy.Launcher{UID: uid} }
	web := energy.Launcher{Namespace: "shop", Base: "virt-launcher-web-"}
	type readings = map[energy.Launcher]power.Power
	tests := map[string]struct {
		kind    podKind
		matrix  model.Matrix
		want    readings
		leftOut energy.Reason
		// elsewhere is how many VMs other nodes have.
		elsewhere int
	}{
		"one":          {kind: keplerPods{}, matrix: model.Matrix{pod(climbing(5), "web", "1")}, want: readings{uid("1"): vmReading(5)}},
		"two":          {kind: keplerPods{}, matrix: model.Matrix{pod(climbing(5), "web", "1"), pod(climbing(7), "db", "2")}, want: readings{uid("1"): vmReading(5), uid("2"): vmReading(7)}},
		"two sockets":  {kind: keplerPods{}, matrix: model.Matrix{pod(climbing(5), "web", "1", "path", "0"), pod(climbing(2), "web", "1", "path", "1")}, want: readings{uid("1"): vmReading(7)}},
		"a small draw": {kind: keplerPods{}, matrix: model.Matrix{pod(climbing(0.0625), "web", "1")}, want: readings{uid("1"): vmReading(0.0625)}},
		"no UID":       {kind: keplerPods{}, matrix: model.Matrix{pod(climbing(5), "web", "")}, want: readings{web: vmReading(5)}},
		"no launcher":  {kind: keplerPods{}, matrix: model.Matrix{pod(climbing(5), "web", "1", "pod_name", "virt-launcher-x")}},
		"a pod ended":  {kind: keplerPods{}, matrix: model.Matrix{pod(climbing(5), "web", "1"), pod(until(climbing(7), 15), "db", "2")}, want: readings{uid("1"): vmReading(5)}},
		"neither job nor instance": {kind: keplerPods{}, matrix: model.Matrix{
			pod(until(climbing(5), 15), "web", "1", "job", "", "instance", ""), pod(climbing(7), "db", "2", "job", "", "instance", "", "node_name", "node-b"),
		}, want: readings{uid("1"): earlier(vmReading(5))}, elsewhere: 1},
		"exporter restarted": {kind: keplerPods{}, matrix: model.Matrix{
			pod(until(climbing(5), 15), "web", "1", "pod", "kepler-1"), pod([]at{{20, 1}}, "web", "1", "pod", "kepler-2"),
		}, want: readings{uid("1"): earlier(vmReading(5))}},
		"started over":         {kind: keplerPods{}, matrix: model.Matrix{pod([]at{{0, 900}, {5, 1000}, {10, 0}, {15, 50}, {20, 100}}, "web", "1")}, want: readings{uid("1"): vmReading(10)}},
		"stands still":         {kind: keplerPods{}, matrix: model.Matrix{pod(still, "web", "1")}, leftOut: energy.ReasonFrozen},
		"not a number":         {kind: keplerPods{}, matrix: model.Matrix{pod(append(until(climbing(5), 15), at{20, math.NaN()}), "web", "1")}, leftOut: energy.ReasonNotFinite},
		"negative":             {kind: keplerPods{}, matrix: model.Matrix{pod(append(until(climbing(5), 15), at{20, -1}), "web", "1")}, leftOut: energy.ReasonImplausible},
		"above any machine":    {kind: keplerPods{}, matrix: model.Matrix{pod(climbing(1e6), "web", "1")}, leftOut: energy.ReasonImplausible},
		"went back":            {kind: keplerPods{}, matrix: model.Matrix{pod(append(until(climbing(5), 15), at{20, 170}), "web", "1")}, leftOut: energy.ReasonWentBack},
		"one sample":           {kind: keplerPods{}, matrix: model.Matrix{pod(until(climbing(5), 0), "web", "1")}, leftOut: energy.ReasonAwaiting},
		"two jobs":             {kind: keplerPods{}, matrix: model.Matrix{pod(climbing(5), "web", "1"), pod(climbing(5), "web", "1", "job", "other")}, leftOut: energy.ReasonManySeries},
		"two jobs, apart":      {kind: keplerPods{}, matrix: model.Matrix{pod(until(climbing(5), 15), "web", "1"), pod(climbing(5), "web", "1", "job", "other")}, leftOut: energy.ReasonManySeries},
		"two nodes":            {kind: keplerPods{}, matrix: model.Matrix{pod(climbing(5), "web", "1", "node", "node-a", "node_name", "node-a", "instance", "node-a", "kubernetes_node", "node-b")}, leftOut: energy.ReasonManySeries},
		"another cluster's":    {kind: keplerPods{}, matrix: model.Matrix{pod(climbing(5), "web", "1", "node_name", "elsewhere")}},
		"old":                  {kind: legacyPods{}, matrix: model.Matrix{container(climbing(5), "web", "c1")}, want: readings{web: vmReading(5)}},
		"old, two containers":  {kind: legacyPods{}, matrix: model.Matrix{container(climbing(5), "web", "c1"), container(climbing(1), "web", "c2")}, want: readings{web: vmReading(6)}},
		"old, one idle":        {kind: legacyPods{}, matrix: model.Matrix{container(climbing(5), "web", "c1"), container(still, "web", "c2")}, want: readings{web: vmReading(5)}},
		"old, one ended":       {kind: legacyPods{}, matrix: model.Matrix{container(climbing(5), "web", "c1"), container(until(climbing(9), 15), "web", "init")}, want: readings{web: vmReading(5)}},
		"old, all idle":        {kind: legacyPods{}, matrix: model.Matrix{container(still, "web", "c1"), container(still, "web", "c2")}, leftOut: energy.ReasonFrozen},
		"old, modelled":        {kind: legacyPods{}, matrix: model.Matrix{container(climbing(5), "web", "c1", "source", "trained_power_model")}, leftOut: energy.ReasonNoCounters},
		"old, same name":       {kind: legacyPods{}, matrix: model.Matrix{container(climbing(5), "web", "c1"), container(climbing(7), "web", "c2", "container_namespace", "lab")}, want: readings{web: vmReading(5), {Namespace: "lab", Base: "virt-launcher-web-"}: vmReading(7)}},
		"old, started again":   {kind: legacyPods{}, matrix: model.Matrix{container(climbing(5), "web", "c2"), container(until(climbing(9), 15), "web", "c1", "pod_name", "virt-launcher-web-zzzzz")}, want: readings{web: vmReading(5)}},
		"old, names alike":     {kind: legacyPods{}, matrix: model.Matrix{container(climbing(5), "web", "c1"), container(climbing(7), "web", "c2", "pod_name", "virt-launcher-web-zzzzz")}, leftOut: energy.ReasonManySeries},
		"old, without a space": {kind: legacyPods{}, matrix: model.Matrix{container(climbing(5), "web", "c1", "container_namespace", "")}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := pods{kind: test.kind, interval: 10 * time.Second}.judge(test.matrix, newIndex(cluster()))
			read := readings{}
			for at, reading := range got.readings {
				if at.node == "node-a" {
					read[at.launcher] = reading
				}
			}
			if test.want == nil {
				test.want = readings{}
			}
			if diff := cmp.Diff(test.want, read); diff != "" {
				t.Errorf("readings (-want +got):\n%s", diff)
			}
			if others := len(got.readings) - len(read); others != test.elsewhere {
				t.Errorf("%d VMs on other nodes, want %d", others, test.elsewhere)
			}
			for at, refusal := range got.leftOut {
				if refusal.Reason != test.leftOut {
					t.Errorf("%v is left out for %v, want %q", at, refusal, test.leftOut)
				}
			}
			if (len(got.leftOut) > 0) != (test.leftOut != "") {
				t.Errorf("left out %v, want for %q", got.leftOut, test.leftOut)
			}
		})
	}
}

// TestReadVMs holds that VMs cost one query a family, and never the nodes.
func TestReadVMs(t *testing.T) {
	onB := pod(climbing(9), "web", "9", "node_name", "node-b")
	legacyOnA := container(climbing(3), "web", "c1")
	legacyOnC := container(climbing(4), "db", "c2", "node_name", "node-c", "instance", "node-c")
	answers := map[string]any{
		"kepler_node_cpu":                       model.Matrix{zone(80, "package", "0")},
		"kepler_pod_cpu":                        model.Matrix{pod(climbing(5), "web", "1"), pod([]at{{20, 1}}, "new", "2"), onB},
		"kepler_container_package_joules_total": model.Matrix{legacyOnA, legacyOnC},
	}
	tests := map[string]struct {
		series  string
		off     bool
		queries int
		want    map[string]energy.VMs
	}{
		"auto": {queries: 5, want: map[string]energy.VMs{
			"node-a": {{UID: "1"}: vmReading(5)}, "node-b": {{UID: "9"}: vmReading(9)},
			"node-c": {{Namespace: "shop", Base: "virt-launcher-db-"}: vmReading(4)},
		}},
		"kepler": {series: "Kepler", queries: 2, want: map[string]energy.VMs{"node-a": {{UID: "1"}: vmReading(5)}, "node-b": {{UID: "9"}: vmReading(9)}}},
		"legacy": {series: "KeplerLegacy", queries: 2, want: map[string]energy.VMs{
			"node-a": {{Namespace: "shop", Base: "virt-launcher-web-"}: vmReading(3)},
			"node-c": {{Namespace: "shop", Base: "virt-launcher-db-"}: vmReading(4)},
		}},
		"platform":  {series: "Platform", queries: 1},
		"not asked": {series: "Kepler", off: true, queries: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := serve(t, answers)
			source := newTestSource(t, Config{URL: s.URL, Series: test.series, Interval: 10 * time.Second, VMs: !test.off})
			got, err := source.Read(t.Context(), cluster())
			if err != nil || got.VMsErr != nil {
				t.Fatal(err, got.VMsErr)
			}
			if diff := cmp.Diff(test.want, got.VMs); diff != "" {
				t.Errorf("VMs (-want +got):\n%s", diff)
			}
			last := source.Last()
			known := 0
			for _, vms := range got.VMs {
				known += len(vms)
			}
			if last.Queries != test.queries || last.VMs != known {
				t.Errorf("round %+v, want %d queries, %d VMs", last, test.queries, known)
			}
			if name == "auto" && last.VMsLeftOut[energy.ReasonAwaiting] != 1 {
				t.Errorf("left out %v, want the new VM", last.VMsLeftOut)
			}
		})
	}
}

func TestReadVMsFailsAlone(t *testing.T) {
	s := serve(t, map[string]any{"kepler_node_cpu": model.Matrix{zone(80, "package", "0")}, "kepler_pod_cpu": model.Vector{}})
	source := newTestSource(t, Config{URL: s.URL, Series: "Kepler", VMs: true})
	got, err := source.Read(t.Context(), cluster())
	if err != nil || got.Readings["node-a"].Watts != 80 || len(got.VMs) != 0 {
		t.Errorf("readings %v, VMs %v, %v: want the node's", got.Readings, got.VMs, err)
	}
	if energy.ReasonOf(got.VMsErr) != energy.ReasonWrongType {
		t.Errorf("VMsErr = %v, want %s", got.VMsErr, energy.ReasonWrongType)
	}
	if last := source.Last(); len(last.Warnings) != 1 || !strings.Contains(last.Warnings[0], "power of VMs") {
		t.Errorf("round %+v, want a warning", last)
	}
}

// A server that takes too long over VMs has still told the nodes.
func TestReadVMsHangsAlone(t *testing.T) {
	ended := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.FormValue("query"), "kepler_pod_cpu") {
			<-ended
			return
		}
		reply(w, model.Matrix{zone(80, "package", "0")}, nil)
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(ended) })
	source := newTestSource(t, Config{URL: s.URL, Series: "Kepler", VMs: true, Timeout: 3 * time.Second})
	got, err := source.Read(t.Context(), cluster())
	if err != nil || got.Readings["node-a"].Watts != 80 {
		t.Errorf("readings %v, %v: want the node's", got.Readings, err)
	}
	if energy.ReasonOf(got.VMsErr) != energy.ReasonUnreachable || !strings.Contains(got.VMsErr.Error(), "power of VMs") {
		t.Errorf("VMsErr = %v, want that VMs are not known in time", got.VMsErr)
	}
}

// FuzzPods lets servers say anything of pods: figures are finite, not negative,
// of one pod, and of a time.
func FuzzPods(f *testing.F) {
	const labels = `"node_name":"node-a","zone":"package","pod_id":"%s","pod_name":"virt-launcher-web-abcde","pod_namespace":"shop","container_namespace":"shop"`
	for _, values := range []string{`[1,"10"],[6,"70"],[11,"130"]`, `[1,"10"],[2,"NaN"]`, `[2,"5"],[1,"5"]`, `[1,"-1"],[9,"1e300"]`, ``} {
		f.Add(fmt.Appendf(nil, `[{"metric":{`+labels+`},"values":[%s]}]`, "1", values))
		f.Add(fmt.Appendf(nil, `[{"metric":{`+labels+`},"values":[%s]}, {"metric":{`+labels+`,"job":"b"},"values":[[1,"1"]]}]`, "", values, "1"))
	}
	f.Add([]byte(`[null]`))
	nodes := newIndex(cluster())
	f.Fuzz(func(t *testing.T, text []byte) {
		var matrix model.Matrix
		if json.Unmarshal(text, &matrix) != nil {
			return
		}
		answer := func(context.Context, string, time.Time) (model.Value, error) { return matrix, nil }
		for _, kind := range []podKind{keplerPods{}, legacyPods{}} {
			got, err := pods{kind: kind, window: time.Minute, interval: 10 * time.Second}.read(t.Context(), answer, nodes)
			if err != nil && energy.ReasonOf(err) != energy.ReasonWrongType {
				t.Error(err)
			}
			for at, r := range got.readings {
				if watts := float64(r.Watts); !(watts > 0) || watts > float64(mostWatts) || r.Time.IsZero() || !(r.IntervalSeconds > 0) {
					t.Errorf("%v: %+v", at, r)
				}
				if got.leftOut[at] != nil {
					t.Errorf("%v is both known and left out", at)
				}
			}
		}
	})
}
