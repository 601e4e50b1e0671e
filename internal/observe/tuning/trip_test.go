package tuning

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// TestTrips: a window that a node's guard let go of hurt the VM, and VMs of its profile
// when a shorter one was seen not to; each trip counts once, and old ones not at all.
func TestTrips(t *testing.T) {
	trip := func(pod string, lever model.Lever, ago time.Duration) func(*model.NodeRates) {
		return func(r *model.NodeRates) {
			r.Time = noon()
			r.Trips = []model.Trip{{PodUID: pod, Lever: lever, Symptom: model.SymptomRingOverrun, Time: noon().Add(-ago)}}
		}
	}
	for name, tc := range map[string]struct {
		trip func(*model.NodeRates)
		// before is how many rounds without packets held were seen.
		before     int
		window     time.Duration
		own, other int
	}{
		"a shorter one is known":    {trip("a", model.LeverBuffering, time.Second), 20, 250 * us, 1, 1},
		"none is":                   {trip("a", model.LeverBuffering, time.Second), 0, 250 * us, 1, 0},
		"of another lever":          {trip("a", model.LeverAffinity, time.Second), 20, 250 * us, 0, 0},
		"of another VM":             {trip("b", model.LeverBuffering, time.Second), 20, 250 * us, 0, 0},
		"of the node":               {trip("", model.LeverBuffering, time.Second), 20, 250 * us, 0, 0},
		"of long ago":               {trip("a", model.LeverBuffering, time.Hour), 20, 250 * us, 0, 0},
		"of the future":             {trip("a", model.LeverBuffering, -time.Hour), 20, 250 * us, 0, 0},
		"without a window in force": {trip("a", model.LeverBuffering, time.Second), 20, 0, 0, 0},
	} {
		h := newHeard()
		h.hear(tc.before, ratesOf("a", 0), every())
		h.hear(5, ratesOf("a", tc.window), every())
		round := ratesOf("a", -1) // nothing is held any more
		tc.trip(round)
		news := h.hear(3, round, every())
		if got := h.Of("a", profile()).Hurts; len(got) != tc.own || tc.own > 0 && (got[0].Window != tc.window || got[0].Why != signTrip) {
			t.Errorf("%s: hurts %+v of the VM", name, got)
		}
		if got := h.Of("c", profile()).Hurts; len(got) != tc.other {
			t.Errorf("%s: hurts %+v of another VM of the profile", name, got)
		}
		if (news > 0) != (tc.own > 0) || news > 1 {
			t.Errorf("%s: %d news", name, news)
		}
	}
}
