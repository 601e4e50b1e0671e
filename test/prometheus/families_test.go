//go:build e2e

package prometheus_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

// rapl is a path of powercap, as in Kepler.
func rapl(zone string) string { return "/sys/class/powercap/intel-rapl:" + zone }

func kepler(zone, unit string, watts float64) prometheus.Meter {
	return prometheus.Meter{Family: prometheus.Kepler, Zone: zone, Unit: unit, Watts: watts}
}

func outlet(kind, unit string, watts float64) prometheus.Meter {
	return prometheus.Meter{Family: prometheus.Platform, Zone: kind, Unit: unit, Watts: watts}
}

// twoSockets are the zones of a server as in Kepler.
func twoSockets() []prometheus.Meter {
	return []prometheus.Meter{
		kepler("package", rapl("0"), 80), kepler("package", rapl("1"), 70),
		kepler("core", rapl("0:0"), 50), kepler("core", rapl("1:0"), 45),
		kepler("dram", rapl("0:1"), 12), kepler("dram", rapl("1:1"), 8),
	}
}

func TestKepler(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	tests := map[string]struct {
		meters []prometheus.Meter
		scope  v1alpha1.PowerScope
		watts  float64
	}{
		"kepler-packages": {meters: twoSockets(), scope: v1alpha1.PowerScopePackage, watts: 150},
		"kepler-psys": {
			meters: append(twoSockets(), kepler("psys", rapl("2"), 240)),
			scope:  v1alpha1.PowerScopePlatform, watts: 240,
		},
		"kepler-psys-of-nothing": {
			meters: append(twoSockets(), kepler("psys", rapl("2"), 0.3)),
			scope:  v1alpha1.PowerScopePackage, watts: 150,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t, server, name)
			s.exporter.Set(name, test.meters...)
			// A busy machine may miss some scrapes.
			got := *s.await("a reading of the last scrape", s.source(), func(a answer) bool {
				return isFull(a) && time.Since(a.reading.Time) < 3*time.Second
			}, nil).reading
			s.within("watts", float64(got.Watts), test.watts, got.IntervalSeconds)
			if got.Source != v1alpha1.PowerPrometheus || got.Scope != test.scope || got.IntervalSeconds <= 0 {
				t.Errorf("reading %+v, want one of a meter, scope %s, over a time", got, test.scope)
			}
			if age := time.Since(got.Time); age < 0 {
				t.Errorf("the reading is %s in the future", -age)
			}
		})
	}
}

func TestRecordedPage(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	s := newStory(t, server, prometheus.RecordedNode)
	s.rescrape(func(target *prometheus.Target) { *target = s.exporter.Recorded(s.node.Name) })
	from := s.source()
	got := *s.await("a reading", from, isFull, nil).reading
	if got.Scope != v1alpha1.PowerScopePackage {
		t.Fatalf("reading %+v, want the package's", got)
	}
	s.within("package", float64(got.Watts), 3.289609489476676e-05, got.IntervalSeconds)
}

// TestHostileExporter: an exporter beside Kepler that the same server scrapes speaks for the
// node's meter only as long as no matchers say whose series count.
func TestHostileExporter(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	s := newStory(t, server, "shared", twoSockets()...)
	tenant := prometheus.NewExporter()
	t.Cleanup(tenant.Close)
	tenant.Set("shared", kepler("package", rapl("0"), 40), kepler("psys", rapl("2"), 55))
	tenant.Set("tenant-only", kepler("psys", rapl("2"), 55))
	all := s.source()
	s.await("the node's own power", all, isFull, nil)
	s.scrape(tenant.Target("tenant/exporter", "shared"), tenant.Target("tenant/exporter", "tenant-only"))
	got := s.await("two targets", all, refusedFor(energy.ReasonManySeries), s.good)
	wantRefusal(t, got.refusal, string(energy.ReasonManySeries), "tenant/exporter")

	matched := newSource(t, energy.Server{URL: server.URL, Matchers: `job="shared"`}, energy.Credentials{})
	s.right(matched)
	spoken := &story{T: t, server: server, node: energy.Node{Name: "tenant-only"}}
	spoken.await("a node that only the tenant speaks for", all, isReading, nil)
	if got := spoken.read(matched); got.reading != nil {
		t.Errorf("%v, want nothing of a node of which Kepler says nothing", got)
	}
}

func TestOwnQuery(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	s := newStory(t, server, "own", outlet("PowerSupply", "1", 110), outlet("PowerSupply", "2", 95))
	s.rescrape(func(target *prometheus.Target) { target.Labels = map[string]string{"node": "own"} })
	plain := s.query(`kepler_platform_watts{job="own",source_id="1"} # the first supply`)
	s.within("plain", float64(s.await("a reading", plain, isReading, nil).reading.Watts), 110, 0)

	sum := s.query(`sum by (node) (kepler_platform_watts{job="own"})`)
	if got := s.await("a reading", sum, isReading, nil); got.reading.Scope != v1alpha1.PowerScopePlatform || got.reading.Watts != 205 {
		t.Errorf("sum: %v", got)
	}

	for name, test := range map[string]struct{ query, reason, text string }{
		"several":    {`kepler_platform_watts{job="own"}`, "ManySeries", `source_id="2"`},
		"no label":   {`sum(kepler_platform_watts{job="own"})`, "NoSeries", "node"},
		"not finite": {`sum by (node) (kepler_platform_watts{job="own"}) / 0`, "NotFinite", "+Inf"},
		"negative":   {`-sum by (node) (kepler_platform_watts{job="own"})`, "Implausible", "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.await("a refusal", s.query(test.query), func(a answer) bool { return a.refusal != nil }, nil)
			wantRefusal(t, got.refusal, test.reason, test.text)
		})
	}
	if got := s.read(s.query(`kepler_platform_watts{job="nobody"}`)); got != (answer{}) {
		t.Errorf("no series: %v, want nothing", got)
	}
	for query, want := range map[string][2]string{
		"1":                         {"WrongType", "scalar"},
		`"watts"`:                   {"WrongType", "string"},
		"kepler_platform_watts[1m]": {"WrongType", "matrix"},
		"sum by (node (x)":          {"QueryFailed", "parse error"},
		"rate(up)":                  {"QueryFailed", "range vector"},
	} {
		t.Run(fmt.Sprintf("%q", query), func(t *testing.T) {
			s.wantFailure(s.query(query), want[0], want[1])
		})
	}
}
