package proof_test

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
	"github.com/joulevirt/joulevirt/test/trials"
)

// BenchmarkFleets runs simulated fleets of 50 units for 72 hours, with a lever that saves
// 8 %, one that saves 1.5 % and one that costs 3 %: everywhere, and but on a fifth of the
// units, where each costs 3 %. It reports shares of units, in percent, on which a lever
// rightly acts or does not, hours to the first verdict, and how often the interval of what
// was booked covers what was saved.
func BenchmarkFleets(b *testing.B) {
	for _, bad := range []int{0, 5} {
		for _, world := range trials.Worlds() {
			b.Run(world.Name+map[int]string{0: "/alike", 5: "/a fifth"}[bad], func(b *testing.B) {
				var sum figures
				for seed := range b.N {
					sum.run(b, world, uint64(seed), bad)
				}
				sum.report(b)
			})
		}
	}
}

type figures struct {
	right, all, covered, runs map[string]int
	hours                     map[model.Lever]float64
	verdicts                  map[model.Lever]int
}

func (s *figures) run(b *testing.B, world trials.World, seed uint64, bad int) {
	if s.right == nil {
		*s = figures{map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}, map[model.Lever]float64{}, map[model.Lever]int{}}
	}
	effects := same(-0.08, -0.015, 0.03)
	f := newFleet(b, world, seed, map[string]int{"a": 50}, func(class string, n int, lever model.Lever) float64 {
		if bad > 0 && n%bad == 0 {
			return 0.03
		}
		return effects(class, n, lever)
	})
	for i := range f.units {
		f.units[i].Class = verify.Class{CPUModel: "a", Kernel: "6.12", Workload: "Mixed"}
	}
	first := map[model.Lever]bool{}
	for hour := 1; hour <= 72; hour++ {
		before := len(f.news)
		f.run(time.Hour)
		for _, n := range f.news[before:] {
			verdict := n.Kind == proof.Adopted || n.Kind == proof.Rejected
			if verdict && !first[n.Lever] {
				first[n.Lever] = true
				s.hours[n.Lever] += float64(hour)
				s.verdicts[n.Lever]++
			}
		}
		if hour%24 == 0 {
			s.look(f, hour)
		}
	}
	saved := f.statement()
	s.runs["gross"]++
	if saved.Low <= f.saved && f.saved <= saved.High {
		s.covered["gross"]++
	}
}

// look at which units have what they should.
func (s *figures) look(f *fleet, hour int) {
	for _, u := range f.units {
		for _, p := range f.proofs.Of(u.Name) {
			truth := f.truths[u.Name][p.Lever]
			key := string(p.Lever) + map[bool]string{true: "-saves", false: "-costs"}[truth < 0] + map[int]string{24: "-24h", 48: "-48h", 72: "-72h"}[hour]
			s.all[key]++
			acts := p.Use && p.Stance != model.StanceOnTrial
			if acts == (truth < 0) || p.Stance == model.StanceOnTrial && truth > 0 {
				s.right[key]++
			}
		}
	}
}

func (s *figures) report(b *testing.B) {
	for key, all := range s.all {
		b.ReportMetric(100*float64(s.right[key])/float64(all), "right%-"+key)
	}
	for lever, n := range s.verdicts {
		b.ReportMetric(s.hours[lever]/float64(n), "h-"+string(lever))
	}
	for key, n := range s.runs {
		b.ReportMetric(100*float64(s.covered[key])/float64(n), "covered%-"+key)
	}
}
