package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// shiftingHost is a host whose CPUs somebody gives away.
type shiftingHost struct {
	host.Host
	exclusive   units.CPUSet
	topologyErr error
	actorsErr   error
}

func (h *shiftingHost) Topology() (model.Topology, error) {
	return model.Topology{Exclusive: h.exclusive}, h.topologyErr
}

func (h *shiftingHost) Actors() ([]host.Actor, error) {
	return []host.Actor{{Name: host.ActorCPUManager, CPUs: h.exclusive}}, h.actorsErr
}

func TestMachineIsLookedAtOnceAMinute(t *testing.T) {
	h := &shiftingHost{exclusive: units.NewCPUSet(1), actorsErr: errors.New("no processes")}
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	m, err := newMachine(h, clock)
	if err != nil {
		t.Fatal(err)
	}
	want := func(why, exclusive, actors string) {
		t.Helper()
		topology, found := m.now()
		got := ""
		for _, actor := range found {
			got += actor.CPUs.String()
		}
		if diff := cmp.Diff([]string{exclusive, actors}, []string{topology.Exclusive.String(), got}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", why, diff)
		}
	}
	want("a host whose processes cannot be listed at first", "1", "")
	h.exclusive, h.actorsErr = units.NewCPUSet(2), nil
	clock.SetTime(clock.Now().Add(machineInterval - time.Nanosecond))
	want("before a minute is over", "1", "")
	clock.SetTime(clock.Now().Add(time.Nanosecond))
	want("after a minute", "2", "2")
	h.exclusive, h.topologyErr, h.actorsErr = units.NewCPUSet(3), errors.New("CPU 3 is going"), errors.New("no processes")
	clock.SetTime(clock.Now().Add(machineInterval))
	want("while both fail", "2", "2")
	h.topologyErr, h.actorsErr = nil, nil
	clock.SetTime(clock.Now().Add(machineInterval))
	want("a minute later", "3", "3")
	h.topologyErr = errors.New("no CPUs")
	if _, err := newMachine(h, clock); err == nil {
		t.Error("an agent starts on a node without a topology")
	}
}
