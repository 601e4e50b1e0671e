package powercap

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// span is where the counters of most processors start over, in microjoules.
const span = 262143328850

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func at(seconds float64) time.Time {
	return noon().Add(time.Duration(seconds * float64(time.Second)))
}

func zone(id, name string, joules float64) host.EnergyZone {
	return host.EnergyZone{ID: id, Name: name, Microjoules: uint64(joules * 1e6), Range: span}
}

func pkg(n int, joules float64) host.EnergyZone {
	return zone(fmt.Sprintf("intel-rapl:%d", n), fmt.Sprintf("package-%d", n), joules)
}

func psys(joules float64) host.EnergyZone { return zone("intel-rapl:9", "psys", joules) }

func broken(z host.EnergyZone, err error) host.EnergyZone {
	z.Err = fmt.Errorf("energy counter %s: %w", z.ID, err)
	return z
}

func zones(z ...host.EnergyZone) []host.EnergyZone { return z }

func TestRead(t *testing.T) {
	unknown := errors.New("input/output error")
	for name, test := range map[string]struct {
		// readings of the zones at 0 s, 2 s, 4 s, ...
		readings [][]host.EnergyZone
		packages int
		// want is the power of the last one, without its source and time.
		want   model.Power
		reason energy.Reason
		words  string
	}{
		"one package": {
			readings: [][]host.EnergyZone{zones(pkg(0, 0)), zones(pkg(0, 100))},
			want:     model.Power{Scope: v1alpha1.PowerScopePackage, Watts: 50, IntervalSeconds: 2},
		},
		"packages are summed, their parts and memory are not": {
			readings: [][]host.EnergyZone{
				zones(pkg(0, 0), zone("intel-rapl:0:0", "core", 0), zone("intel-rapl:0:1", "dram", 0), pkg(1, 0), zone("intel-rapl:1:0", "dram", 0)),
				zones(pkg(0, 40), zone("intel-rapl:0:0", "core", 30), zone("intel-rapl:0:1", "dram", 4), pkg(1, 60), zone("intel-rapl:1:0", "dram", 6)),
			},
			packages: 2,
			want:     model.Power{Scope: v1alpha1.PowerScopePackage, Watts: 50, IntervalSeconds: 2},
		},
		"dies of one package": {
			readings: [][]host.EnergyZone{
				zones(zone("intel-rapl:0", "package-0-die-0", 0), zone("intel-rapl:1", "package-0-die-1", 0)),
				zones(zone("intel-rapl:0", "package-0-die-0", 40), zone("intel-rapl:1", "package-0-die-1", 60)),
			},
			packages: 1,
			want:     model.Power{Scope: v1alpha1.PowerScopePackage, Watts: 50, IntervalSeconds: 2},
		},
		"the same package through another driver": {
			readings: [][]host.EnergyZone{
				zones(zone("intel-rapl-mmio:0", "package-0", 7), pkg(0, 0)), zones(zone("intel-rapl-mmio:0", "package-0", 99), pkg(0, 100)),
			},
			want: model.Power{Scope: v1alpha1.PowerScopePackage, Watts: 50, IntervalSeconds: 2},
		},
		"another driver alone": {
			readings: [][]host.EnergyZone{zones(zone("intel-rapl-mmio:0", "package-0", 0)), zones(zone("intel-rapl-mmio:0", "package-0", 100))},
			want:     model.Power{Scope: v1alpha1.PowerScopePackage, Watts: 50, IntervalSeconds: 2},
		},
		"the platform, in which the memory is": {
			readings: [][]host.EnergyZone{
				zones(pkg(0, 0), zone("intel-rapl:0:0", "dram", 0), psys(0)), zones(pkg(0, 100), zone("intel-rapl:0:0", "dram", 8), psys(240)),
			},
			want: model.Power{Scope: v1alpha1.PowerScopePlatform, Watts: 120, IntervalSeconds: 2},
		},
		"the platform once more": {
			readings: [][]host.EnergyZone{
				zones(pkg(0, 0), pkg(1, 0), zone("intel-rapl:8", "psys-1", 0), psys(0)),
				zones(pkg(0, 100), pkg(1, 100), zone("intel-rapl:8", "psys-1", 400), psys(400)),
			},
			packages: 2,
			want:     model.Power{Scope: v1alpha1.PowerScopePlatform, Watts: 200, IntervalSeconds: 2},
		},
		"a counter that starts over": {
			readings: [][]host.EnergyZone{zones(pkg(0, span/1e6-60)), zones(pkg(0, 40))},
			want:     model.Power{Scope: v1alpha1.PowerScopePackage, Watts: 50, IntervalSeconds: 2},
		},
		"memory that fails, alone": {
			readings: [][]host.EnergyZone{
				zones(pkg(0, 0), zone("intel-rapl:0:0", "dram", 0)), zones(pkg(0, 100), broken(zone("intel-rapl:0:0", "dram", 0), unknown)),
			},
			want: model.Power{Scope: v1alpha1.PowerScopePackage, Watts: 50, IntervalSeconds: 2},
		},
		"a reading that failed is spanned": {
			readings: [][]host.EnergyZone{zones(pkg(0, 0)), zones(broken(pkg(0, 0), unknown)), zones(pkg(0, 200))},
			want:     model.Power{Scope: v1alpha1.PowerScopePackage, Watts: 50, IntervalSeconds: 4},
		},

		"the first reading": {
			readings: [][]host.EnergyZone{zones(pkg(0, 0))}, reason: energy.ReasonAwaiting, words: "next reading",
		},
		"no counter of a package": {
			readings: [][]host.EnergyZone{zones(zone("intel-rapl:0:0", "dram", 0)), zones(zone("intel-rapl:0:0", "dram", 9))},
			reason:   energy.ReasonNoCounters, words: "none of the 1 energy counters",
		},
		"a package that may not be read": {
			readings: [][]host.EnergyZone{zones(pkg(0, 0), pkg(1, 0)), zones(pkg(0, 100), broken(pkg(1, 0), fs.ErrPermission))},
			packages: 2, reason: energy.ReasonPermission, words: "intel-rapl:1: permission denied: the agent must be root",
		},
		"a package that cannot be read": {
			readings: [][]host.EnergyZone{zones(pkg(0, 0), pkg(1, 0)), zones(pkg(0, 100), broken(pkg(1, 0), unknown))},
			packages: 2, reason: energy.ReasonUnreachable, words: "intel-rapl:1: input/output error",
		},
		"a package without a name": {
			readings: [][]host.EnergyZone{zones(pkg(0, 0)), zones(pkg(0, 0), broken(host.EnergyZone{ID: "intel-rapl:1"}, unknown))},
			packages: 2, reason: energy.ReasonUnreachable, words: "intel-rapl:1",
		},
		"a package that vanished": {
			readings: [][]host.EnergyZone{zones(pkg(0, 0), pkg(1, 0)), zones(pkg(0, 100)), zones(pkg(0, 200))},
			packages: 2, reason: energy.ReasonNoCounters, words: "1 of 2 packages",
		},
		"a package that vanished with its CPUs": {
			readings: [][]host.EnergyZone{zones(pkg(0, 0), pkg(1, 0)), zones(pkg(0, 100)), zones(pkg(0, 200))},
			packages: 1,
			want:     model.Power{Scope: v1alpha1.PowerScopePackage, Watts: 50, IntervalSeconds: 2},
		},
		"a package that came": {
			readings: [][]host.EnergyZone{zones(pkg(0, 0)), zones(pkg(0, 100), pkg(1, 1e5))},
			reason:   energy.ReasonAwaiting, words: "since 2026-03-01T12:00:02Z",
		},
		"a counter that went back": {
			readings: [][]host.EnergyZone{zones(pkg(0, 500)), zones(pkg(0, 400))},
			reason:   energy.ReasonWentBack, words: "intel-rapl:0 (package-0) went from 500000000 to 400000000 uJ",
		},
		"a counter without a range that went back": {
			readings: [][]host.EnergyZone{
				zones(host.EnergyZone{ID: "intel-rapl:0", Name: "package-0", Microjoules: span - 1}),
				zones(host.EnergyZone{ID: "intel-rapl:0", Name: "package-0", Microjoules: 1}),
			}, reason: energy.ReasonWentBack,
		},
		"a counter that jumped": {
			readings: [][]host.EnergyZone{zones(pkg(0, 0)), zones(pkg(0, 100e3))},
			reason:   energy.ReasonJumped, words: "in 2s, which no processor uses",
		},
		"one of two counters jumped": {
			readings: [][]host.EnergyZone{zones(pkg(0, 0), pkg(1, 0)), zones(pkg(0, 100), pkg(1, 100e3))},
			packages: 2, reason: energy.ReasonJumped, words: "intel-rapl:1",
		},
		"shortly after a reading that was far off": {
			readings: [][]host.EnergyZone{zones(pkg(0, 1000)), zones(pkg(0, 0)), zones(pkg(0, 1200))},
			reason:   energy.ReasonWentBack, words: "went from 1000000000 to 0 uJ",
		},
		"some time after a reading that was far off": {
			readings: [][]host.EnergyZone{
				zones(pkg(0, 1000)), zones(pkg(0, 0)), zones(pkg(0, 1200)), zones(pkg(0, 1300)), zones(pkg(0, 1400)), zones(pkg(0, 1500)),
			},
			want: model.Power{Scope: v1alpha1.PowerScopePackage, Watts: 50, IntervalSeconds: 2},
		},
		"some time after a jump": {
			readings: [][]host.EnergyZone{
				zones(pkg(0, 0)), zones(pkg(0, 100e3)), zones(pkg(0, 100100)), zones(pkg(0, 100200)), zones(pkg(0, 100300)), zones(pkg(0, 100400)),
			},
			want: model.Power{Scope: v1alpha1.PowerScopePackage, Watts: 50, IntervalSeconds: 2},
		},
		"a counter that stands still": {
			readings: [][]host.EnergyZone{zones(pkg(0, 5), pkg(1, 0)), zones(pkg(0, 5), pkg(1, 100))},
			packages: 2, reason: energy.ReasonFrozen, words: "intel-rapl:0 (package-0) stands still at 5000000 uJ",
		},
		"a platform that fails, shortly": {
			readings: [][]host.EnergyZone{zones(pkg(0, 0), psys(0)), zones(pkg(0, 100), psys(0))},
			reason:   energy.ReasonFrozen, words: "psys",
		},
		"a platform that shows less than its packages": {
			readings: [][]host.EnergyZone{zones(pkg(0, 0), psys(0)), zones(pkg(0, 100), psys(10))},
			reason:   energy.ReasonImplausible, words: "intel-rapl:9 (psys) shows 5.0 W where the packages draw 50.0 W",
		},
		"a platform without packages": {
			readings: [][]host.EnergyZone{zones(psys(0)), zones(psys(100))},
			packages: 1,
			want:     model.Power{Scope: v1alpha1.PowerScopePlatform, Watts: 50, IntervalSeconds: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var meter Meter
			var got Reading
			var refusal *energy.Refusal
			for i, reading := range test.readings {
				got, refusal = meter.Read(Counters{Zones: reading, Time: at(2 * float64(i))}, test.packages)
			}
			if test.reason != "" {
				if refusal == nil || refusal.Reason != test.reason || !strings.Contains(refusal.Message, test.words) {
					t.Fatalf("%+v, %v; want %s with %q", got, refusal, test.reason, test.words)
				}
				return
			}
			if refusal != nil {
				t.Fatal(refusal)
			}
			test.want.Source, test.want.Time = v1alpha1.PowerRAPL, at(2*float64(len(test.readings)-1))
			if diff := cmp.Diff(test.want, got.Power, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if want := float64(test.want.Watts) * test.want.IntervalSeconds; math.Abs(float64(got.Joules)-want) > 1e-6 {
				t.Errorf("%v J, want %v", got.Joules, want)
			}
		})
	}
}

func TestRefusedAsAWhole(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		reason energy.Reason
	}{
		"no counters":   {fmt.Errorf("no energy counters: %w", host.ErrUnsupported), energy.ReasonNoCounters},
		"no permission": {&fs.PathError{Op: "open", Path: "powercap", Err: fs.ErrPermission}, energy.ReasonPermission},
		"other":         {errors.New("too many open files"), energy.ReasonUnreachable},
	} {
		var meter Meter
		if _, refusal := meter.Read(Counters{Err: test.err, Time: noon()}, 1); refusal == nil || refusal.Reason != test.reason {
			t.Errorf("%s: %v", name, refusal)
		}
	}
}

// A platform's counter that is connected to nothing does not keep those of the
// packages from being used, but a single bad reading does not change the scope.
func TestPlatformIsGivenUp(t *testing.T) {
	for name, platform := range map[string]func(i int) host.EnergyZone{
		"gone":                   func(int) host.EnergyZone { return zone("intel-rapl:9", "another", 0) },
		"frozen":                 func(int) host.EnergyZone { return psys(0) },
		"less than the packages": func(i int) host.EnergyZone { return psys(float64(i)) },
		"unreadable":             func(int) host.EnergyZone { return broken(psys(0), fs.ErrPermission) },
	} {
		t.Run(name, func(t *testing.T) {
			var meter Meter
			scopes := ""
			for i := range 15 {
				second := 2 * float64(i)
				all := zones(pkg(0, 50*second), platform(i))
				if i < 3 {
					all[1] = psys(80 * second) // at first it is well
				}
				reading, refusal := meter.Read(Counters{Zones: all, Time: at(second)}, 1)
				switch {
				case refusal != nil:
					scopes += "-"
				case reading.Power.Scope == v1alpha1.PowerScopePlatform:
					scopes += "A" // all
				default:
					scopes += "P"
				}
			}
			if want := "-AA---------PPP"; scopes != want {
				t.Errorf("%s, want %s", scopes, want)
			}
		})
	}
}

// Whatever the counters do, the power is finite, not negative, and not more
// than the bounds.
func FuzzMeter(f *testing.F) {
	f.Add(uint64(0), uint64(100e6), uint64(200e6), uint64(span), 1.0, 1.0)
	f.Add(uint64(span-1), uint64(5), uint64(math.MaxUint64), uint64(0), 0.001, 7200.0)
	f.Add(uint64(5), uint64(5), uint64(4), uint64(3), -5.0, 1e6)
	f.Fuzz(func(t *testing.T, a, b, c, wrap uint64, first, second float64) {
		if math.IsNaN(first) || math.IsNaN(second) || math.Abs(first) > 1e8 || math.Abs(second) > 1e8 {
			return
		}
		var meter Meter
		when := noon()
		for i, value := range []uint64{a, b, c} {
			when = when.Add(time.Duration([]float64{0, first, second}[i] * float64(time.Second)))
			all := zones(
				host.EnergyZone{ID: "intel-rapl:0", Name: "package-0", Microjoules: value, Range: wrap},
				host.EnergyZone{ID: "intel-rapl:0:0", Name: "dram", Microjoules: value / 2, Range: wrap},
			)
			reading, refusal := meter.Read(Counters{Zones: all, Time: when}, 1)
			if refusal != nil {
				continue
			}
			w, j := float64(reading.Power.Watts), float64(reading.Joules)
			if !(w >= 0 && w <= float64(mostPackageWatts)*1.001) || !(j >= 0) || math.IsInf(j, 0) || !(reading.Power.IntervalSeconds > 0) {
				t.Fatalf("reading %d: %+v", i, reading)
			}
		}
	})
}
