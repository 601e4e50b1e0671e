package loop

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/internal/agent"
	"github.com/joulevirt/joulevirt/internal/agent/agenttest"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
)

// agentOf is the whole agent of a node, which makes a round when it is told to.
type agentOf struct {
	clock *roundClock
	board *publish.Board
	*agenttest.Loopback
	stop func() error
}

// startAgent of a node. dir is for its journal.
func startAgent(h *twins, s *spec, dir string, prior func(model.Topology) power.NodePrior) (*agentOf, error) {
	clock := newRoundClock(s.Tick, h.Now())
	a := &agentOf{clock: clock, board: &publish.Board{}, Loopback: agenttest.NewLoopback(clock)}
	j, err := journal.Open(dir, s.name)
	if err != nil {
		return nil, err
	}
	of, err := agent.New(agent.Options{
		Node: s.name, Interval: s.Tick, StaleAfter: time.Hour,
		Host: h, Cluster: a, Libvirt: agenttest.NoLibvirt{}, Statuses: a, Board: a.board,
		Prior: prior, Clock: a.clock, Log: logr.Discard(),
	}, j)
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- of.Run(ctx) }()
	a.WaitIdle()
	a.stop = func() error {
		cancel()
		return errors.Join(<-ended, j.Close())
	}
	return a, nil
}

// round lets the agent make one, at a time.
func (a *agentOf) round(now time.Time) {
	a.clock.SetTime(now)
	a.clock.rounds <- now
	a.WaitIdle()
}

// runs tells the agent which VMs there are.
func (a *agentOf) runs(slots []slot) {
	inventory := &discover.Inventory{}
	for i := range slots {
		if vm := &slots[i].vm; !slots[i].absent {
			agenttest.AddVM(inventory, vm.PodUID, vm.Namespace, vm.Name)
		}
	}
	a.Runs(inventory)
}

// roundClock ticks only when a round is wanted. Nothing else that waits for it ever goes on:
// the loop does itself what an agent does between two rounds.
type roundClock struct {
	*clocktesting.FakeClock
	interval time.Duration
	rounds   chan time.Time
	taken    atomic.Bool
}

func newRoundClock(interval time.Duration, now time.Time) *roundClock {
	return &roundClock{FakeClock: clocktesting.NewFakeClock(now), interval: interval, rounds: make(chan time.Time)}
}

// NewTicker implements clock.WithTicker. The first of the agent's interval is that of its
// rounds.
func (c *roundClock) NewTicker(d time.Duration) clock.Ticker {
	if d == c.interval && c.taken.CompareAndSwap(false, true) {
		return ticker{c.rounds}
	}
	return ticker{nil}
}

// NewTimer implements clock.Clock.
func (*roundClock) NewTimer(time.Duration) clock.Timer { return timer{} }

type ticker struct{ c <-chan time.Time }

func (t ticker) C() <-chan time.Time { return t.c }
func (ticker) Stop()                 {}

type timer struct{}

func (timer) C() <-chan time.Time      { return nil }
func (timer) Stop() bool               { return true }
func (timer) Reset(time.Duration) bool { return true }
