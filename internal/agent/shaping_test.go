package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/shape"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

func turnAction() *v1alpha1.ShapingAction {
	return &v1alpha1.ShapingAction{Turn: &v1alpha1.TurnAction{
		PeriodMilliseconds: 10_000, OffsetMilliseconds: 2000, LengthMilliseconds: 3000, TrickleBitsPerSecond: 256_000,
	}}
}

// networked is a bench whose VM has a pod's network.
type networked struct {
	*bench
	network *hosttest.Network
	reader  *linux.Host
}

func newNetworked(t *testing.T) *networked {
	b := newBench(t)
	pod := hosttest.NewPod(t, b.both().String())
	n := &networked{bench: b, network: hosttest.NewOutside(t).NewVM("shop", "backup", hosttest.Bridge)}
	pod.Add(n.network.VM)
	b.cluster.inventory.Pods[pod.UID] = discover.Pod{UID: pod.UID, Namespace: "shop", CreatedBy: "backup"}
	b.cluster.inventory.VMIs["backup"] = discover.VMI{UID: "backup", Namespace: "shop", Name: "backup"}
	b.cluster.plan.Spec.VMs = append(b.cluster.plan.Spec.VMs, v1alpha1.VMPlan{
		VMReference: v1alpha1.VMReference{Namespace: "shop", Name: "backup", PodUID: types.UID(pod.UID)},
		Shaping:     turnAction(),
	})
	var err error
	if n.reader, err = linux.New(linux.Options{ProcRoot: "/proc", SysRoot: "/sys"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.reader.Close() })
	return n
}

func (n *networked) wantQueue(what, queue string) {
	n.Helper()
	hosttest.Eventually(n, what, func() bool {
		uplinks, err := n.reader.Uplinks(n.network.VM.ID())
		if err != nil {
			n.Fatal(err)
		}
		return len(uplinks) == 1 && uplinks[0].Queue == queue
	})
}

const (
	kernelsQueue = "noqueue 0:"
	agentsQueue  = "htb 4a56:"
)

func TestShapingIsFollowedAndUndoneAtTheEnd(t *testing.T) {
	n := newNetworked(t)
	stop := n.start()
	defer stop()
	n.wantQueue("the shaping", agentsQueue)
	n.wantApplied(metav1.ConditionTrue, v1alpha1.ReasonApplied)
	n.rounds(2)
	if s := n.board.Latest(); s.Shaped != 1 || s.Gates != 1 || s.ShapingWrites != 1 || s.GateChanges == 0 {
		t.Errorf("state %+v", s)
	}
	n.cluster.mu.Lock()
	vms := n.cluster.status.VMs
	n.cluster.mu.Unlock()
	if len(vms) != 2 || vms[1].Lever != v1alpha1.LeverShaping || vms[1].State != v1alpha1.LeverInForce || vms[1].Name != "backup" {
		t.Errorf("status %+v", vms)
	}
	plan := n.cluster.plan
	n.cluster.change(func() { n.cluster.plan = nil })
	n.wantQueue("the shaping to go with the plan", kernelsQueue)
	n.cluster.change(func() { n.cluster.plan = plan })
	n.wantQueue("the shaping to come back", agentsQueue)
	n.cluster.change(func() { n.cluster.renewed = time.Now().Add(-2 * time.Hour) })
	n.wantQueue("the shaping to go with the manager", kernelsQueue)
	n.cluster.change(func() { n.cluster.renewed = time.Now() })
	n.wantQueue("the shaping to come back", agentsQueue)
	stop()
	n.wantQueue("the shaping to go with the agent", kernelsQueue)
	n.wantApplied(metav1.ConditionFalse, reasonAgentEnded)
}

// killed shapes the VM as an agent does that is killed afterwards.
func (n *networked) killed() {
	n.Helper()
	h, err := linux.New(linux.Options{ProcRoot: "/proc", SysRoot: "/sys"})
	if err != nil {
		n.Fatal(err)
	}
	defer h.Close()
	j := n.openJournal()
	defer j.Close()
	a := shape.New(h, j, nil, shape.NewTurns(h, clock.RealClock{}))
	vm := discover.VM{Process: n.network.VM.ID(), PodUID: "backup", Namespace: "shop", Name: "backup"}
	want := model.Shaping{Turn: &model.Turn{Period: 10 * time.Second, Length: time.Second, Trickle: model.LeastRate}}
	if results, err := a.Apply([]discover.VM{vm}, map[string]model.Shaping{"backup": want}); err != nil || results[0].Outcome != shape.Applied {
		n.Fatalf("%+v, %v", results, err)
	}
	if err := h.SetGate(vm.Process, n.network.Uplink, model.LeastRate); err != nil {
		n.Fatal(err)
	}
}

func (n *networked) openJournal() *journal.Journal {
	n.Helper()
	facts, err := n.reader.Facts()
	if err != nil {
		n.Fatal(err)
	}
	j, err := journal.Open(n.dir, facts.BootID)
	if err != nil {
		n.Fatal(err)
	}
	return j
}

func TestRestoreAfterAKill(t *testing.T) {
	n := newNetworked(t)
	n.killed()
	n.wantQueue("the shaping", agentsQueue)
	j := n.openJournal()
	defer j.Close()
	for _, want := range []Restored{{Uplinks: 1}, {}} {
		if got, err := Restore(n.reader, j); err != nil || got != want {
			t.Errorf("restored %+v, %v; want %+v", got, err, want)
		}
		n.wantQueue("the kernel's default", kernelsQueue)
	}
}

func TestTheNextAgentUndoesWhatIsNotPlanned(t *testing.T) {
	for _, journal := range []string{"kept", "lost", "corrupt"} {
		t.Run("journal "+journal, func(t *testing.T) {
			n := newNetworked(t)
			n.killed()
			switch journal {
			case "lost":
				if err := os.Remove(filepath.Join(n.dir, "journal.json")); err != nil {
					t.Fatal(err)
				}
			case "corrupt":
				n.write("journal.json", []byte(`{"version":2,"upl`))
			}
			n.cluster.plan.Spec.VMs = n.cluster.plan.Spec.VMs[:1]
			stop := n.start()
			defer stop()
			n.wantQueue("the shaping to go", kernelsQueue)
		})
	}
}

func TestShapingOrders(t *testing.T) {
	ceiling := func(bits int64) *v1alpha1.ShapingAction { return &v1alpha1.ShapingAction{CeilingBitsPerSecond: &bits} }
	turn := func(change func(*v1alpha1.TurnAction)) *v1alpha1.ShapingAction {
		a := turnAction()
		change(a.Turn)
		return a
	}
	for name, test := range map[string]struct {
		action  *v1alpha1.ShapingAction
		want    model.Shaping
		refused string
	}{
		"a ceiling": {action: ceiling(1e6), want: model.Shaping{Ceiling: 1e6}},
		"a turn": {action: turnAction(), want: model.Shaping{Turn: &model.Turn{
			Period: 10 * time.Second, Offset: 2 * time.Second, Length: 3 * time.Second, Trickle: 256_000,
		}}},
		"a ceiling that no device reaches": {action: ceiling(1e15), want: model.Shaping{}},
		"a trickle that holds nothing":     {action: turn(func(a *v1alpha1.TurnAction) { a.TrickleBitsPerSecond = 1e18 }), refused: "from 256000 to"},
		"a ceiling too low":                {action: ceiling(1000), refused: "ceilingBitsPerSecond 1000"},
		"a turn beyond its end":            {action: turn(func(a *v1alpha1.TurnAction) { a.OffsetMilliseconds = 8000 }), refused: "within its period"},
		"a turn without a period":          {action: turn(func(a *v1alpha1.TurnAction) { a.PeriodMilliseconds = 0 }), refused: "within its period"},
		"no trickle":                       {action: turn(func(a *v1alpha1.TurnAction) { a.TrickleBitsPerSecond = 0 }), refused: "trickle of 0"},
	} {
		o := ordersOf(planOf("2", func(p *v1alpha1.NodePlan) { p.Spec.VMs[1].Shaping = test.action }), false)
		got, planned := o.shaping["pod"]
		why := o.refused[refusal{"pod", v1alpha1.LeverShaping}]
		if planned != (test.refused == "") || !got.Equal(test.want) || !strings.Contains(why, test.refused) || (why == "") != planned {
			t.Errorf("%s: %+v, refused %q", name, got, why)
		}
		if len(o.pins) != 1 {
			t.Errorf("%s: the pins went with it: %+v", name, o)
		}
	}
}

func TestShapingStatus(t *testing.T) {
	plan := planOf("2", func(p *v1alpha1.NodePlan) { p.Spec.VMs[1].Affinity, p.Spec.VMs[1].Shaping = nil, turnAction() })
	checkStatus(t, v1alpha1.LeverShaping, plan, map[shape.Outcome]leverWords{
		shape.Applied:     {v1alpha1.LeverInForce, "Applied"},
		shape.Undone:      {v1alpha1.LeverIdle, "NothingToDo"},
		shape.NoUplink:    {v1alpha1.LeverBlocked, "NotSupported"},
		shape.Unsupported: {v1alpha1.LeverBlocked, "NotSupported"},
		shape.Foreign:     {v1alpha1.LeverBlocked, "ForeignQueue"},
		shape.Contested:   {v1alpha1.LeverBlocked, "Contested"},
		shape.Gone:        {v1alpha1.LeverIdle, "VMGone"},
		shape.Failed:      {v1alpha1.LeverFailed, "ApplyFailed"},
	}, func(out shape.Outcome) applied {
		return applied{shaping: []shape.Result{{PodUID: "pod", Outcome: out, Message: "why"}}}
	})
}

// leverWords are what a plan's status says of a lever for a VM.
type leverWords struct {
	state  v1alpha1.LeverState
	reason string
}

// checkStatus checks what the status of a plan, which has a lever for one VM, says of each
// outcome, and of a VM that is not there. It returns what it said of each.
func checkStatus[Outcome comparable](
	t *testing.T, lever v1alpha1.Lever, plan *v1alpha1.NodePlan, words map[Outcome]leverWords, appliedOf func(Outcome) applied,
) map[Outcome]v1alpha1.VMApplied {
	t.Helper()
	said := map[Outcome]v1alpha1.VMApplied{}
	for out, want := range words {
		o := outcome{orders: ordersOf(plan, false), applied: appliedOf(out)}
		status := planStatus(plan, &v1alpha1.NodePlanStatus{}, o, time.Unix(1000, 0))
		if len(status.VMs) != 1 {
			t.Fatalf("%v: %+v", out, status.VMs)
		}
		said[out] = status.VMs[0]
		if vm := status.VMs[0]; vm.Lever != lever || (leverWords{vm.State, vm.Reason}) != want {
			t.Errorf("%v: %+v", out, vm)
		}
	}
	status := planStatus(plan, &v1alpha1.NodePlanStatus{}, outcome{orders: ordersOf(plan, false)}, time.Unix(1000, 0))
	if status.VMs[0].Reason != v1alpha1.ReasonNotRunning {
		t.Errorf("a VM that is not there: %+v", status.VMs)
	}
	return said
}

// The same agent has VMs of a simulated node take turns.
func TestSimulatedVMsTakeTurns(t *testing.T) {
	s := newSimulated(t, sim.Config{Shape: sim.Shape{CoresPerPackage: 32}})
	c := s.agent.opts.Cluster.(*cluster)
	const vm, want = "0f9a3c52-7d1e-4b7a-9c55-000000000003", 60e6 // constant, from newSimulated
	c.plan = &v1alpha1.NodePlan{Spec: v1alpha1.NodePlanSpec{Apply: true, VMs: []v1alpha1.VMPlan{{
		VMReference: v1alpha1.VMReference{Namespace: "shop", Name: "vm-3", PodUID: vm}, Shaping: turnAction(),
	}}}}
	s.rounds(10)
	var sum, least, most units.BitsPerSecond
	for second := range 40 {
		rates := s.rounds(1)
		for i := range rates.VMs {
			if rates.VMs[i].PodUID != vm {
				continue
			}
			now := rates.VMs[i].Taps[0].FromVM.BitsPerSecond
			if sum += now; second == 0 {
				least, most = now, now
			}
			least, most = min(least, now), max(most, now)
		}
	}
	if mean := float64(sum) / 40; mean < 0.95*want || mean > 1.05*want || least > 300e3 || most < 1.5*want {
		t.Errorf("%.1f Mbit/s on average, from %.2f to %.1f", mean/1e6, float64(least)/1e6, float64(most)/1e6)
	}
	if state := s.board.Latest(); state.Shaped != 1 || state.GateChanges < 8 {
		t.Errorf("%d shaped, %d changes of gates", state.Shaped, state.GateChanges)
	}
}
