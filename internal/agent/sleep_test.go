package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// sleepingHost has idle states that a test changes.
type sleepingHost struct {
	host.Host
	states  host.IdleStates
	err     error
	asked   int
	holders []string
}

func (h *sleepingHost) IdleStates() (host.IdleStates, error) { return h.states, h.err }

func (h *sleepingHost) LatencyHolders() ([]string, error) {
	h.asked++
	return h.holders, nil
}

// states of two CPUs with times in seconds.
func states(shallow, deep float64) host.IdleStates {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return host.IdleStates{CPUs: units.NewCPUSet(0, 1), States: []host.IdleState{{Name: "C1", Time: seconds(shallow)}, {Name: "C6", Time: seconds(deep)}}}
}

func TestSleepIsWatched(t *testing.T) {
	h := &sleepingHost{states: states(1000, 5000), holders: []string{"tuned"}}
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	lines := 0
	s := sleep{host: h, clock: clock, log: funcr.New(func(_, _ string) { lines++ }, funcr.Options{})}
	look := func(why string, after time.Duration, is host.IdleStates, want *model.Sleep) {
		t.Helper()
		clock.SetTime(clock.Now().Add(after))
		h.states = is
		if diff := cmp.Diff(want, s.now()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", why, diff)
		}
	}
	slept := func(shallow, deep float64, heldBy ...string) *model.Sleep {
		return &model.Sleep{States: []model.SleepState{{Name: "C1", Share: shallow}, {Name: "C6", Share: deep}}, HeldBy: heldBy}
	}
	look("at first", 0, states(1000, 5000), nil)
	look("before a minute is over", 59*time.Second, states(1010, 5090), nil)
	look("after a minute", time.Second, states(1012, 5096), slept(0.1, 0.8))
	look("until the next", 30*time.Second, states(1100, 5100), slept(0.1, 0.8))
	if h.asked != 0 {
		t.Error("all processes were looked at, of CPUs that sleep well")
	}
	look("shallow", 30*time.Second, states(1132, 5096), slept(1, 0, "tuned"))
	look("after a CPU was counted anew", time.Minute, states(600, 3000), nil)
	other := states(700, 3000)
	other.CPUs = units.NewCPUSet(0)
	look("with another CPU", time.Minute, other, nil)
	other.States = nil
	look("without states", time.Minute, other, nil)
	h.err = errors.New("no permission")
	for range 61 {
		look("while it fails", time.Minute, host.IdleStates{}, nil)
	}
	if lines != 2 {
		t.Errorf("%d lines in the log of an hour and a minute, want 2", lines)
	}
}
