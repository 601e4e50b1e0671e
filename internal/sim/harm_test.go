package sim

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// TestHarm: a lever costs what the host's harm says while it acts, and only then.
func TestHarm(t *testing.T) {
	const harm = 0.07
	harms := map[string]Harm{
		"affinity": {Affinity: harm}, "slice": {Slice: harm}, "shaping": {Shaping: harm}, "buffering": {Buffering: harm},
		"shares": {TrafficShare: harm},
	}
	acts := map[string]func(*testing.T, *Host){
		"affinity": func(t *testing.T, h *Host) {
			must(t, h.SetAffinity(h.vms[0].threads[0].id, units.NewCPUSet(0, 1)))
		},
		"slice":   func(t *testing.T, h *Host) { must(t, h.SetSlice(h.vms[0].threads[0].id, 3*time.Millisecond)) },
		"shaping": func(t *testing.T, h *Host) { must(t, h.Shape(h.vms[0].id, uplink, model.Shaping{Ceiling: 1e11})) },
		"buffering": func(t *testing.T, h *Host) {
			must(t, h.KeepBuffering(time.Hour))
			must(t, h.Buffer(h.vms[0].id, tap, model.Buffering{Window: time.Millisecond, OnPackets: 1000}))
		},
		"shares": func(t *testing.T, h *Host) {
			steered := h.vms[0].Traffic
			steered.Steered = true
			must(t, h.SetTraffic(h.vms[0].PodUID, steered))
		},
	}
	watts := func(harm Harm, act func(*testing.T, *Host)) float64 {
		h := server(t, func(c *Config) { c.Harm, c.Off = harm, Temperature })
		populate(t, h, 10)
		act(t, h)
		h.Advance(time.Minute) // packets have to come fast for a while
		h.Advance(time.Minute)
		return float64(h.Truth().Packages)
	}
	for lever, harmful := range harms {
		for other, act := range acts {
			want := 1.0
			if other == lever {
				want += harm
			}
			if got := watts(harmful, act) / watts(Harm{}, act); math.Abs(got-want) > 1e-9 {
				t.Errorf("lever %s on a host with harm by %s: the power is %.4f of that without, want %.2f", other, lever, got, want)
			}
		}
	}
}

func TestImpossibleHarm(t *testing.T) {
	for _, harm := range []Harm{{Affinity: -0.6}, {Slice: 11}, {Shaping: math.NaN()}, {Buffering: math.Inf(1)}, {TrafficShare: -1}} {
		if _, err := NewHost(Config{Name: "a", Harm: harm}); err == nil || !strings.Contains(err.Error(), "harm") {
			t.Errorf("%+v: %v", harm, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
