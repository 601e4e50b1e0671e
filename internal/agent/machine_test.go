package agent

import (
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// shiftingHost is a host whose CPUs somebody gives away.
type shiftingHost struct {
	host.Host
	taken units.CPUSet
	err   error
}

func (h *shiftingHost) Topology() (model.Topology, error) {
	return model.Topology{Taken: h.taken}, h.err
}

func TestTopologyIsReadOnceAMinute(t *testing.T) {
	h := &shiftingHost{taken: units.NewCPUSet(1)}
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	m, err := newMachine(h, clock)
	if err != nil {
		t.Fatal(err)
	}
	want := func(why, taken string) {
		t.Helper()
		if got := m.now().Taken.String(); got != taken {
			t.Errorf("%s: %s, want %s", why, got, taken)
		}
	}
	h.taken = units.NewCPUSet(2)
	clock.SetTime(clock.Now().Add(machineInterval - time.Nanosecond))
	want("before a minute is over", "1")
	clock.SetTime(clock.Now().Add(time.Nanosecond))
	want("after a minute", "2")
	h.taken, h.err = units.NewCPUSet(3), errors.New("CPU 3 is going")
	clock.SetTime(clock.Now().Add(machineInterval))
	want("while it fails", "2")
	h.err = nil
	clock.SetTime(clock.Now().Add(machineInterval))
	want("a minute later", "3")
	h.err = errors.New("no CPUs")
	if _, err := newMachine(h, clock); err == nil {
		t.Error("an agent starts on a node without a topology")
	}
}
