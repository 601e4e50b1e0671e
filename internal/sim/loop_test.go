package sim

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent"
	"github.com/joulevirt/joulevirt/internal/agent/agenttest"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

// oneNode is a cluster with one node, whose plan stays as it is.
type oneNode struct {
	inventory *discover.Inventory
	plan      *v1alpha1.NodePlan
	clock     *clocktesting.FakeClock

	mu     sync.Mutex
	status v1alpha1.NodePlanStatus
}

func (*oneNode) Synced() bool             { return true }
func (*oneNode) Changes() <-chan struct{} { return nil }

func (c *oneNode) Inventory(context.Context) (*discover.Inventory, error) { return c.inventory, nil }
func (c *oneNode) Plan(context.Context) (*v1alpha1.NodePlan, error)       { return c.plan, nil }
func (c *oneNode) LeaseRenewed(context.Context) (time.Time, error)        { return c.clock.Now(), nil }

func (c *oneNode) Offer(_ *v1alpha1.NodePlan, status v1alpha1.NodePlanStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

// TestTheAgentsLoopWorksOnIt runs the whole agent, unmodified, for a simulated
// minute: it follows a plan, meters the node, and puts everything back.
func TestTheAgentsLoopWorksOnIt(t *testing.T) {
	h := server(t, nil)
	populate(t, h, 12)
	pinned := h.vms[3]
	clock := clocktesting.NewFakeClock(h.Now())
	cluster := &oneNode{clock: clock, inventory: inventory(h), plan: &v1alpha1.NodePlan{
		ObjectMeta: metav1.ObjectMeta{Name: h.Name(), UID: "plan", Generation: 1},
		Spec: v1alpha1.NodePlanSpec{Revision: "r1", Apply: true, VMs: []v1alpha1.VMPlan{{
			VMReference: v1alpha1.VMReference{Namespace: pinned.Namespace, Name: pinned.Name, PodUID: types.UID(pinned.PodUID)},
			Affinity:    &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{VCPU: 0, CPUs: "2,18"}}},
		}}},
	}}
	j, err := journal.Open(t.TempDir(), "boot")
	if err != nil {
		t.Fatal(err)
	}
	board := &publish.Board{}
	a, err := agent.New(agent.Options{
		Node: h.Name(), Interval: time.Second, StaleAfter: time.Hour,
		Host: h, Cluster: cluster, Libvirt: agenttest.NoLibvirt{}, Statuses: cluster, Board: board,
		Prior: func(model.Topology) power.NodePrior { return power.NodePrior{} },
		Clock: clock, Log: logr.Discard(),
	}, j)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	rounds := func(n uint64) {
		t.Helper()
		hosttest.Eventually(t, "a round of samples", func() bool {
			state := board.Latest()
			return state != nil && state.Rounds >= n
		})
	}
	rounds(1)
	for n := range uint64(60) {
		h.Advance(time.Second)
		clock.Step(time.Second)
		rounds(n + 2)
	}
	state := board.Latest()
	if state.RoundErrors != 0 || state.Pinned != 1 || len(state.Rates.VMs) != 12 {
		t.Errorf("%d errors (%v), %d VMs pinned, %d VMs", state.RoundErrors, state.RoundError, state.Pinned, len(state.Rates.VMs))
	}
	truth := float64(h.Truth().Platform)
	if p := state.Rates.Power; p == nil || p.Source != model.SourceRAPL || math.Abs(relative(float64(p.Watts), truth)) > 3 {
		t.Errorf("power %+v, the platform draws %.1f W", p, truth)
	}
	vcpu := pinned.threads[2].id // after the emulator and an IO thread
	if cpus, err := h.Affinity(vcpu); err != nil || !cpus.Equal(units.NewCPUSet(2, 18)) {
		t.Errorf("vCPU on %s, %v", cpus, err)
	}
	cancel()
	if err := errors.Join(<-ended, j.Close()); err != nil {
		t.Error(err)
	}
	if cpus, err := h.Affinity(vcpu); err != nil || !cpus.Equal(h.online) {
		t.Errorf("vCPU on %s after the agent's end, %v", cpus, err)
	}
}
