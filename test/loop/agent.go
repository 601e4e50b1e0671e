package loop

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
)

// agentOf is the whole agent of a node, which makes a round when it is told to.
type agentOf struct {
	clock *roundClock
	board *publish.Board
	// inventory and plan are changed only while the agent waits.
	inventory *discover.Inventory
	plan      *v1alpha1.NodePlan
	// idle has an element when the agent has made a round and waits for the next.
	idle chan struct{}
	stop func() error
}

// startAgent of a node. dir is for its journal.
func startAgent(h *twins, s *spec, dir string, prior func(model.Topology) power.NodePrior) (*agentOf, error) {
	a := &agentOf{
		clock: newRoundClock(s.Tick, h.Now()), board: &publish.Board{}, idle: make(chan struct{}, 1),
		inventory: &discover.Inventory{},
	}
	j, err := journal.Open(dir, s.name)
	if err != nil {
		return nil, err
	}
	of, err := agent.New(agent.Options{
		Node: s.name, Interval: s.Tick, StaleAfter: time.Hour,
		Host: h, Cluster: a, Libvirt: noLibvirt{}, Statuses: a, Board: a.board,
		Prior: prior, Clock: a.clock, Log: logr.Discard(),
	}, j)
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- of.Run(ctx) }()
	<-a.idle
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
	<-a.idle
}

// follow replaces the plan's spec.
func (a *agentOf) follow(spec v1alpha1.NodePlanSpec) {
	next := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: "simulated", UID: "plan", Generation: 1}, Spec: spec}
	if a.plan != nil {
		next.Generation = a.plan.Generation + 1
	}
	a.plan = next
}

// runs tells the agent which VMs there are.
func (a *agentOf) runs(slots []slot) {
	inventory := &discover.Inventory{Pods: map[string]discover.Pod{}, VMIs: map[string]discover.VMI{}}
	for i := range slots {
		vm := &slots[i].vm
		if slots[i].absent {
			continue
		}
		uid := "vmi-" + vm.PodUID
		inventory.Pods[vm.PodUID] = discover.Pod{UID: vm.PodUID, Namespace: vm.Namespace, CreatedBy: uid}
		inventory.VMIs[uid] = discover.VMI{UID: uid, Namespace: vm.Namespace, Name: vm.Name}
	}
	a.inventory = inventory
}

// Synced implements agent.Cluster.
func (*agentOf) Synced() bool { return true }

// Changes implements agent.Cluster. The agent asks for it when it begins to wait.
func (a *agentOf) Changes() <-chan struct{} {
	a.idle <- struct{}{}
	return nil
}

// Inventory implements agent.Cluster.
func (a *agentOf) Inventory(context.Context) (*discover.Inventory, error) { return a.inventory, nil }

// Plan implements agent.Cluster.
func (a *agentOf) Plan(context.Context) (*v1alpha1.NodePlan, error) { return a.plan, nil }

// LeaseRenewed implements agent.Cluster.
func (a *agentOf) LeaseRenewed(context.Context) (time.Time, error) { return a.clock.Now(), nil }

// Offer implements agent.Statuses.
func (*agentOf) Offer(*v1alpha1.NodePlan, v1alpha1.NodePlanStatus) {}

// noLibvirt is a libvirt that answers nothing.
type noLibvirt struct{}

func (noLibvirt) Offer([]discover.VM)                  {}
func (noLibvirt) Facts(host.TaskID) *model.DomainFacts { return nil }
func (noLibvirt) Health() (int, int)                   { return 0, 0 }

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
