package simulated

import (
	"math"
	"testing"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// TestPowerFallsWithSkew: the study's splits draw the less the higher sigma is, on
// all hosts, and everything is sent.
func TestPowerFallsWithSkew(t *testing.T) {
	t.Parallel()
	for _, s := range StudiedHosts(1) {
		var balanced, last Drawn
		for i, split := range StudiedSplits() {
			drawn, err := s.Draw(split)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				balanced = drawn
			} else if drawn.Sigma <= last.Sigma || drawn.Packages >= last.Packages || drawn.Platform >= last.Platform {
				t.Errorf("simulated %s: %v, no less than %v", s.Name, drawn, last)
			}
			if drawn.Served < 0.999 {
				t.Errorf("simulated %s: of %v only %.3f is sent", s.Name, split, drawn.Served)
			}
			t.Logf("simulated %-6s %v  %4.1f %% less", s.Name, drawn, 100*drawn.Saved(balanced))
			last = drawn
		}
	}
}

// TestPlannedTrafficSaves: the manager learns a host whose VMs' traffic is
// balanced, and brings it together step by step. What comes of it draws less than
// balanced traffic, and less than what somebody could have made by hand. On the
// way the group keeps what it demands.
func TestPlannedTrafficSaves(t *testing.T) {
	t.Parallel()
	for _, s := range StudiedHosts(1) {
		o, err := s.Plan()
		if err != nil {
			t.Fatal(err)
		}
		byHand, err := s.Draw([]units.BitsPerSecond{300 * mbit, 300 * mbit, 300 * mbit, 0, 0})
		if err != nil {
			t.Fatal(err)
		}
		last := o.Last()
		t.Logf("simulated %s: %d rounds\nbalanced %v\nby hand  %v\nplanned  %v\n%.1f %% less of the packages, and of the platform, which has a meter, %.2f W of %.2f W foretold",
			s.Name, len(o.Rounds), o.Balanced, byHand, o.Planned, 100*o.Planned.Saved(o.Balanced), o.Balanced.Platform-o.Planned.Platform, last.Saved)
		if last.Reason != model.ReasonSkewed || !(last.Saved > 0) {
			t.Errorf("simulated %s: %s: %s", s.Name, last.Reason, last.Message)
		}
		if !(o.Planned.Packages < byHand.Packages && byHand.Packages < o.Balanced.Packages) || o.Planned.Served < 0.999 {
			t.Errorf("simulated %s: planned %v, by hand %v, balanced %v", s.Name, o.Planned, byHand, o.Balanced)
		}
		before := make([]float64, s.VMs)
		for i := range before {
			before[i] = 1 / float64(s.VMs)
		}
		for n, round := range o.Rounds {
			moved, active := 0.0, 0
			for i, share := range round.Plan.Shares {
				moved += math.Abs(share.Share-before[i]) / 2
				before[i] = share.Share
				if share.Share > 0 {
					active++
				}
				// Plans in force may be somewhat beyond.
				if rate := units.BitsPerSecond(share.Share) * s.Total; rate > 1.05*round.Limit {
					t.Errorf("simulated %s, round %d: %s has %v bit/s, beyond %v", s.Name, n, share.Name, rate, round.Limit)
				}
			}
			if moved > 0.1+1e-6 || active < 2 || units.BitsPerSecond(active-1)*round.Limit < 0.95*s.Total {
				t.Errorf("simulated %s, round %d: %v moved, %d active with %v bit/s each", s.Name, n, moved, active, round.Limit)
			}
		}
	}
}
