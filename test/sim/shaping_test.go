package sim

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// sender is a host with one VM that wants to send 80 Mbit/s.
func sender(t *testing.T) (h *Host, id host.TaskID) {
	t.Helper()
	h = server(t, nil)
	id, err := h.AddVM(VM{
		Namespace: "shop", Name: "backup", PodUID: "0f9a3c52-7d1e-4b7a-9c55-000000000001", VCPUs: 2,
		Traffic: Traffic{Programme: Programme{Pattern: Constant}, FromVM: 80e6},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h, id
}

// sent is the rate over a time, in Mbit/s.
func sent(t *testing.T, h *Host, id host.TaskID, over time.Duration) float64 {
	t.Helper()
	count := func() float64 {
		sample, err := h.Sample(id)
		if err != nil {
			t.Fatal(err)
		}
		return float64(sample.Taps[0].FromVM.Bytes)
	}
	before := count()
	h.Advance(over)
	return (count() - before) * 8 / 1e6 / over.Seconds()
}

func TestSimulatedTurnsKeepTheAverage(t *testing.T) {
	h, id := sender(t)
	turn := &model.Turn{Period: 10 * time.Second, Length: 4 * time.Second, Trickle: 256_000}
	if err := errors.Join(h.Shape(id, uplink, model.Shaping{Turn: turn}), h.ExtendLease(time.Hour)); err != nil {
		t.Fatal(err)
	}
	var all, held float64
	const seconds = 104 // to the end of a turn, after which nothing waits
	for range seconds {
		now, err := h.Monotonic()
		if err != nil {
			t.Fatal(err)
		}
		open, _ := turn.Phase(now)
		rate := sent(t, h, id, time.Second)
		all += rate
		if !open {
			held = max(held, rate)
		}
	}
	if mean := all / seconds; math.Abs(mean/80-1) > 0.05 || held > 0.257 {
		t.Errorf("%.1f Mbit/s on average, at most %.3f between turns; want 80 and the trickle", mean, held)
	}
}

func TestSimulatedShapingFollowsTheKernel(t *testing.T) {
	h, id := sender(t)
	want := func(what string, mbit float64) {
		t.Helper()
		if got := sent(t, h, id, 10*time.Second); math.Abs(got-mbit) > 0.05*mbit {
			t.Errorf("%s: %.1f Mbit/s, want %v", what, got, mbit)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(h.Shape(id, uplink, model.Shaping{Ceiling: 20e6}))
	want("an agent that does not extend its lease", 80)
	must(h.ExtendLease(15 * time.Second))
	want("a ceiling", 20)
	must(h.Unshape(id, uplink))
	want("unshaped", 80)
	must(h.Shape(id, uplink, model.Shaping{Turn: &model.Turn{Period: time.Hour, Length: time.Minute, Trickle: 256_000}}))
	h.Advance(time.Minute)
	must(h.ExtendLease(5 * time.Second))
	want("five seconds held, and sent afterwards", 80)
	must(h.RemoveVM(h.vms[0].PodUID))
	if _, err := h.Uplinks(id); !errors.Is(err, host.ErrGone) {
		t.Errorf("uplinks of a VM that ended: %v", err)
	}
}
