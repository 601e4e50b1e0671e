package tuning

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Agents tell of drops up to half a minute late: those of a flood count for no window.
func TestLossAfterAFlood(t *testing.T) {
	h := newHeard()
	h.hear(20, ratesOf("a", 250*us), every())
	h.hear(1, ratesOf("a", 250*us, func(v *model.VMRates) { v.Buffering.Flood = &model.Flood{} }), every())
	h.hear(2, ratesOf("a", 250*us, drops(500)), every())
	if got := h.Of("a", profile()).Hurts; len(got) > 0 {
		t.Errorf("in the half minute after: %+v", got)
	}
	h.hear(1, ratesOf("a", 250*us, drops(500)), every())
	if got := h.Of("a", profile()).Hurts; len(got) != 1 {
		t.Errorf("later: %+v", got)
	}
}

// Nor do those of a longer window count for the shorter one that follows.
func TestLossAfterALongerWindow(t *testing.T) {
	h := newHeard()
	h.hear(20, ratesOf("a", 0), every())
	h.hear(10, ratesOf("a", 500*us), every())
	h.hear(1, ratesOf("a", 500*us, drops(500)), every())
	h.hear(2, ratesOf("a", 250*us, drops(250)), every())
	if got := h.Of("a", profile()).Hurts; len(got) != 1 || got[0].Window != 500*us {
		t.Errorf("in the half minute after: %+v", got)
	}
	h.hear(1, ratesOf("a", 250*us, drops(250)), every())
	if got := h.Of("a", profile()).Hurts; len(got) != 2 || got[0].Window != 250*us {
		t.Errorf("later: %+v", got)
	}
}

// Of a window that hurts VMs of a profile it is told once which profile that is.
func TestHurtProfilesAreNews(t *testing.T) {
	h := newHeard()
	h.hear(20, ratesOf("a", 0), every())
	h.hear(3, ratesOf("a", 250*us), every())
	for round, want := range [][]types.NamespacedName{nil, {profile()}, nil} {
		h.clock.SetTime(h.clock.Now().Add(15 * time.Second))
		news := h.Add(ratesOf("a", 250*us, drops(units.PacketsPerSecond(500*min(round, 1)))), every())
		if diff := cmp.Diff(want, news.Hurt); diff != "" {
			t.Errorf("round %d (-want +got):\n%s", round, diff)
		}
	}
}
