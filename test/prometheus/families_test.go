package prometheus_test

import (
	"fmt"
	"testing"
	"time"

	power "github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

// rapl is a path of powercap, as Kepler shows it.
func rapl(zone string) string { return "/sys/class/powercap/intel-rapl:" + zone }

func kepler(zone, unit string, watts float64) prometheus.Meter {
	return prometheus.Meter{Family: prometheus.Kepler, Zone: zone, Unit: unit, Watts: watts, Joules: 1000}
}

func legacy(zone, unit string, watts float64) prometheus.Meter {
	return prometheus.Meter{Family: prometheus.KeplerLegacy, Zone: zone, Unit: unit, Watts: watts, Joules: 1000}
}

func outlet(kind, unit string, watts float64) prometheus.Meter {
	return prometheus.Meter{Family: prometheus.Platform, Zone: kind, Unit: unit, Watts: watts}
}

// twoSockets are the zones of a server as Kepler shows them.
func twoSockets() []prometheus.Meter {
	return []prometheus.Meter{
		kepler("package", rapl("0"), 80), kepler("package", rapl("1"), 70),
		kepler("core", rapl("0:0"), 50), kepler("core", rapl("1:0"), 45),
		kepler("dram", rapl("0:1"), 12), kepler("dram", rapl("1:1"), 8),
	}
}

func TestFamilies(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	tests := map[string]struct {
		series string
		meters []prometheus.Meter
		honor  bool
		scope  power.PowerScope
		watts  float64
		dram   float64
	}{
		"kepler-packages": {series: "Kepler", meters: twoSockets(), scope: power.ScopePackage, watts: 150, dram: 20},
		"kepler-psys": {
			series: "Kepler", meters: append(twoSockets(), kepler("psys", rapl("2"), 240)),
			scope: power.ScopePlatform, watts: 240,
		},
		"kepler-psys-of-nothing": {
			series: "Kepler", meters: append(twoSockets(), kepler("psys", rapl("2"), 0.3)),
			scope: power.ScopePackage, watts: 150, dram: 20,
		},
		"legacy-packages": {
			series: "KeplerLegacy",
			meters: []prometheus.Meter{legacy("package", "0", 80), legacy("package", "1", 70), legacy("core", "0", 60), legacy("dram", "0", 12), legacy("dram", "1", 8)},
			scope:  power.ScopePackage, watts: 150, dram: 20,
		},
		"legacy-platform": {
			series: "KeplerLegacy", honor: true,
			meters: []prometheus.Meter{legacy("package", "0", 80), legacy("platform", "sensor0", 230)},
			scope:  power.ScopePlatform, watts: 230,
		},
		"platform-supplies": {
			series: "Platform", meters: []prometheus.Meter{outlet("PowerSupply", "PSU.Slot.1", 110), outlet("PowerSupply", "PSU.Slot.2", 95)},
			scope: power.ScopePlatform, watts: 205,
		},
		"platform-controls": {
			series: "Platform", meters: []prometheus.Meter{outlet("PowerControl", "0", 205), outlet("PowerControl", "1", 120)},
			scope: power.ScopePlatform, watts: 205,
		},
		"auto-platform": {
			meters: append(twoSockets(), outlet("PowerControl", "0", 260)),
			scope:  power.ScopePlatform, watts: 260,
		},
		"auto-kepler": {meters: append(twoSockets(), legacy("package", "0", 60)), scope: power.ScopePackage, watts: 150, dram: 20},
		"auto-legacy": {meters: []prometheus.Meter{legacy("package", "0", 60)}, scope: power.ScopePackage, watts: 60},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t, server, name)
			s.exporter.Set(name, test.meters...)
			if test.honor {
				s.relabel(func(target *prometheus.Target) { target.HonorLabels = true })
			}
			counts := test.series != "Platform" && name != "auto-platform"
			full := anyReading
			if counts {
				full = meanFull
			}
			// Awaited, for a busy machine may miss some scrapes.
			got := *s.await("a reading of the last scrape", s.source(test.series), func(a answer) bool {
				return full(a) && time.Since(a.reading.Time) < 3*time.Second
			}, nil).reading
			s.within("watts", float64(got.Watts), test.watts, got.IntervalSeconds)
			if got.Source != power.SourcePrometheus || got.Scope != test.scope || (got.IntervalSeconds > 0) != counts {
				t.Errorf("reading %+v, want one of a meter, scope %s, over a time: %v", got, test.scope, counts)
			}
			switch {
			case (got.DRAMWatts != nil) != (test.dram > 0):
				t.Errorf("memory: %v W, want %v W", got.DRAMWatts, test.dram)
			case test.dram > 0:
				s.within("memory", float64(*got.DRAMWatts), test.dram, got.IntervalSeconds)
			}
			if age := time.Since(got.Time); age < 0 {
				t.Errorf("the reading is of a time in %s", -age)
			}
		})
	}
}

// relabel scrapes the story's page otherwise.
func (s *story) relabel(change func(*prometheus.Target)) {
	s.Helper()
	if err := s.server.Drop(s.node.Name); err != nil {
		s.Fatal(err)
	}
	target := s.exporter.Target(s.node.Name, s.node.Name)
	change(&target)
	s.scrape(target)
}

func TestRecordedPage(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	s := newStory(t, server, prometheus.RecordedNode)
	s.relabel(func(target *prometheus.Target) { *target = s.exporter.Recorded(s.node.Name) })
	from := s.source("Auto")
	got := *s.await("a reading", from, meanFull, nil).reading
	if got.Scope != power.ScopePackage || got.DRAMWatts == nil {
		t.Fatalf("reading %+v, want the package's and the memory's", got)
	}
	s.within("package", float64(got.Watts), 3.289609489476676e-05, got.IntervalSeconds)
	s.within("memory", float64(*got.DRAMWatts), 2.2401635173736874e-05, got.IntervalSeconds)
	if last := from.Last(); last.Series != 2 || last.Unmatched != 0 {
		t.Errorf("round %+v, want the two zones that matter of all that is on the page", last)
	}
}

func TestOwnQuery(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	s := newStory(t, server, "own", outlet("PowerSupply", "1", 110), outlet("PowerSupply", "2", 95))
	s.relabel(func(target *prometheus.Target) { target.Labels = map[string]string{"node": "own"} })
	plain := s.query(`kepler_platform_watts{job="own",source_id="1"} # the first supply`)
	s.within("plain", float64(s.await("a reading", plain, anyReading, nil).reading.Watts), 110, 0)

	// Awaited, for a busy machine may miss a scrape now and then.
	sum := s.query(`sum by (node) (kepler_platform_watts{job="own"})`)
	if got := s.await("a reading", sum, anyReading, nil); got.reading.Scope != power.ScopePlatform || got.reading.Watts != 205 {
		t.Errorf("sum: %v", got)
	}

	t.Run("time is that of the sample", func(t *testing.T) {
		s.exporter.Fail("own", prometheus.Slow)
		var before time.Time
		s.await("an ageing reading", plain, func(a answer) bool {
			return a.reading == nil || time.Since(a.reading.Time) > 1500*time.Millisecond
		}, func(a answer) {
			if a.reading.Time.Before(before) {
				t.Errorf("time went back from %s to %s", before, a.reading.Time)
			}
			before = a.reading.Time
		})
		s.exporter.Fail("own", prometheus.Working)
		s.await("a reading again", plain, anyReading, nil)
	})
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
	if got := s.ask(s.query(`kepler_platform_watts{job="nobody"}`)); got != (answer{}) {
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
