package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
)

func planOf(cpus string, change func(*v1alpha1.NodePlan)) *v1alpha1.NodePlan {
	plan := &v1alpha1.NodePlan{
		ObjectMeta: metav1.ObjectMeta{Name: "node1", Generation: 7},
		Spec: v1alpha1.NodePlanSpec{Revision: "r2", Mode: v1alpha1.ModeEnforce, Apply: true, VMs: []v1alpha1.VMPlan{
			{VMReference: v1alpha1.VMReference{Namespace: "shop", Name: "idle", PodUID: "other"}},
			{
				VMReference: v1alpha1.VMReference{Namespace: "shop", Name: "web", PodUID: "pod"},
				Affinity:    &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{VCPU: 1, CPUs: cpus}}, EmulatorCPUs: "0"},
			},
		}},
	}
	if change != nil {
		change(plan)
	}
	return plan
}

func TestOrders(t *testing.T) {
	pins, planned := ordersOf(planOf("2-3", nil), false).pins("pod")
	if !planned || len(pins.VCPUs) != 1 || pins.VCPUs[0].CPUs.String() != "2-3" || pins.Threads.Emulator.String() != "0" {
		t.Errorf("pins %+v", pins)
	}
	if o := ordersOf(planOf("3-2", nil), false); len(o.refused) != 1 || o.refused[vmLever{"pod", v1alpha1.LeverAffinity}] == "" {
		t.Errorf("orders of a bad plan %+v", o)
	}
	for name, o := range map[string]*orders{
		"no plan":           ordersOf(nil, false),
		"not to be applied": ordersOf(planOf("2", func(p *v1alpha1.NodePlan) { p.Spec.Apply = false }), false),
		"a stale manager":   ordersOf(everything(trialOf(v1alpha1.LeverAffinity, nil)), true),
	} {
		if len(o.vms)+len(o.refused)+len(o.schedules) != 0 {
			t.Errorf("%s: orders %+v", name, o)
		}
	}
}

// resultOf is the outcome of one lever for VM web.
func resultOf(lever v1alpha1.Lever, out actuate.Outcome) applied {
	result := actuate.Result{VM: discover.VM{PodUID: "pod"}, Outcome: out, Message: "why"}
	return applied{
		results:   map[vmLever]*actuate.Result{{"pod", lever}: &result},
		vcpus:     map[string][]v1alpha1.VCPUPin{"pod": {{VCPU: 1, CPUs: "2-3"}}},
		buffering: map[string]v1alpha1.BufferingReadBack{"pod": {WindowMicroseconds: 500}},
	}
}

// TestVMsBecomeKnownWhileALeverIsOff: the status does not say until the slot ends that no process of
// the VM is known.
func TestVMsBecomeKnownWhileALeverIsOff(t *testing.T) {
	plan, now := planOf("2-3", nil), time.Now()
	off := ordersOf(plan, false)
	off.switched = map[v1alpha1.Lever]switching{v1alpha1.LeverAffinity: {}}
	unknown := planStatus(plan, &v1alpha1.NodePlanStatus{}, outcome{orders: off}, now)
	known := planStatus(plan, &unknown, outcome{orders: off, applied: resultOf(v1alpha1.LeverAffinity, actuate.Undone)}, now)
	if was, is := unknown.VMs[0], known.VMs[0]; was.Reason != v1alpha1.ReasonNotRunning || is.State != v1alpha1.LeverIdle || is.Reason != reasonSwitchedOff {
		t.Errorf("status %+v, then %+v", was, is)
	}
}

func TestPlanStatus(t *testing.T) {
	pinned := func(out actuate.Outcome) outcome { return outcome{applied: resultOf(v1alpha1.LeverAffinity, out)} }
	broken, stale := pinned(actuate.Failed), pinned(actuate.Undone)
	broken.err, stale.stale = errors.New("disk full"), true
	stuck := pinned(actuate.Failed)
	stuck.held = 1
	mode := func(mode v1alpha1.PolicyMode) func(*v1alpha1.NodePlan) {
		return func(p *v1alpha1.NodePlan) { p.Spec.Apply, p.Spec.Mode = false, mode }
	}
	for name, test := range map[string]struct {
		plan    *v1alpha1.NodePlan
		outcome outcome
		state   v1alpha1.LeverState // of the VM; empty: not listed
		applied string              // reason of the condition
	}{
		"applied":     {planOf("2-3", nil), pinned(actuate.Applied), v1alpha1.LeverInForce, "Applied"},
		"not running": {planOf("2-3", nil), outcome{}, v1alpha1.LeverPending, "NotRunning"},
		"failed":      {planOf("2-3", nil), pinned(actuate.Failed), v1alpha1.LeverFailed, "ApplyFailed"},
		"contested":   {planOf("2-3", nil), pinned(actuate.Contested), v1alpha1.LeverBlocked, "Applied"},
		"gone":        {planOf("2-3", nil), pinned(actuate.Gone), v1alpha1.LeverIdle, "Applied"},
		"bad CPUs":    {planOf("9-1", nil), pinned(actuate.Undone), v1alpha1.LeverFailed, "BadPlan"},
		"no journal":  {planOf("2-3", nil), broken, v1alpha1.LeverFailed, "ApplyFailed"},
		"stale":       {planOf("2-3", nil), stale, "", "ManagerStale"},
		"recommended": {planOf("2-3", mode(v1alpha1.ModeRecommend)), pinned(actuate.Undone), "", "AwaitingApproval"},
		"observed":    {planOf("2-3", mode(v1alpha1.ModeObserve)), pinned(actuate.Undone), "", "NotToBeApplied"},
		"unreverted":  {planOf("2-3", mode(v1alpha1.ModeObserve)), stuck, "", "ApplyFailed"},
		"emptied":     {planOf("2-3", func(p *v1alpha1.NodePlan) { p.Spec.VMs = nil }), stuck, "", "ApplyFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			test.outcome.orders = ordersOf(test.plan, test.outcome.stale)
			status := planStatus(test.plan, &v1alpha1.NodePlanStatus{}, test.outcome, time.Unix(1000, 5))
			condition := status.Conditions[0]
			if condition.Reason != test.applied || (condition.Status == metav1.ConditionTrue) != (test.applied == "Applied") || condition.ObservedGeneration != 7 {
				t.Errorf("condition %+v", condition)
			}
			if (test.state == v1alpha1.LeverFailed || test.state == v1alpha1.LeverPending) && test.outcome.err == nil &&
				!strings.Contains(condition.Message, "Affinity of shop/web") {
				t.Errorf("message %q names neither the lever nor the VM", condition.Message)
			}
			if status.ObservedGeneration != 7 {
				t.Errorf("generation %d", status.ObservedGeneration)
			}
			if test.state == "" {
				if len(status.VMs) != 0 || status.VMsInForce != int32(test.outcome.held) {
					t.Errorf("%d VMs in force, VMs %+v", status.VMsInForce, status.VMs)
				}
				return
			}
			if vm := status.VMs[0]; len(status.VMs) != 1 || vm.State != test.state || vm.Name != "web" {
				t.Errorf("VMs %+v", status.VMs)
			}
			again := planStatus(test.plan, &status, test.outcome, time.Unix(2000, 0))
			if diff := cmp.Diff(status, again); test.applied == "Applied" && diff != "" {
				t.Errorf("another status without a change (-was +is):\n%s", diff)
			}
		})
	}
}

// What the status says of each outcome of each lever, and what was read back with it.
func TestStatusOfLevers(t *testing.T) {
	const inForce, idle, blocked, failed, pending = v1alpha1.LeverInForce, v1alpha1.LeverIdle, v1alpha1.LeverBlocked, v1alpha1.LeverFailed, v1alpha1.LeverPending
	type shown struct {
		state  v1alpha1.LeverState
		reason string
	}
	everywhere := map[actuate.Outcome]shown{
		actuate.Applied: {inForce, "Applied"}, actuate.Undone: {idle, "NothingToDo"}, actuate.Contested: {blocked, "Contested"},
		actuate.Gone: {idle, "VMGone"}, actuate.Failed: {failed, "ApplyFailed"},
	}
	plan := everything()
	plan.Spec.VMs = plan.Spec.VMs[1:]
	for lever, own := range map[v1alpha1.Lever]map[actuate.Outcome]shown{
		v1alpha1.LeverAffinity: {
			actuate.Incomplete: {pending, "NotRunning"}, actuate.Dedicated: {blocked, "DedicatedCPUs"}, actuate.NoAllowedCore: {failed, "NoAllowedCore"},
		},
		v1alpha1.LeverSlice:   {actuate.Unsupported: {blocked, "SlicesUnsupported"}, actuate.Dedicated: {blocked, "DedicatedCPUs"}},
		v1alpha1.LeverShaping: {actuate.NoDevice: {blocked, "ShapingUnsupported"}, actuate.Unsupported: {blocked, "ShapingUnsupported"}, actuate.Foreign: {blocked, "ForeignQueue"}},
		v1alpha1.LeverBuffering: {
			actuate.NoDevice: {blocked, "NoTap"}, actuate.Unsupported: {blocked, "BufferingUnsupported"}, actuate.Foreign: {blocked, "ForeignQueue"},
		},
	} {
		for out, want := range everywhere {
			own[out] = want
		}
		for out, want := range own {
			o := outcome{orders: ordersOf(plan, false), applied: resultOf(lever, out)}
			for _, one := range planStatus(plan, &v1alpha1.NodePlanStatus{}, o, time.Unix(1000, 0)).VMs {
				if one.Lever != lever {
					if one.Reason != v1alpha1.ReasonNotRunning {
						t.Errorf("%s of a VM that is not there: %+v", one.Lever, one)
					}
					continue
				}
				if (shown{one.State, one.Reason}) != want {
					t.Errorf("%s %s: %+v", lever, out, one)
				}
				read := one.State == inForce
				if (one.Buffering != nil) != (read && lever == v1alpha1.LeverBuffering) ||
					lever == v1alpha1.LeverAffinity && (one.VCPUs != nil) == (one.State == blocked) {
					t.Errorf("%s %s: read back %+v", lever, out, one)
				}
			}
		}
	}
}

// A lever that the guard tripped is blocked, unless it could not be reverted.
func TestStatusOfATrip(t *testing.T) {
	plan := planOf("2", nil)
	o := ordersOf(plan, false)
	o.tripped[vmLever{"pod", v1alpha1.LeverAffinity}] = "tripped"
	for out, reason := range map[actuate.Outcome]string{
		actuate.Undone: v1alpha1.ReasonGuardTripped, actuate.Contested: v1alpha1.ReasonGuardTripped, actuate.Failed: v1alpha1.ReasonApplyFailed,
	} {
		status := planStatus(plan, &v1alpha1.NodePlanStatus{}, outcome{orders: o, applied: resultOf(v1alpha1.LeverAffinity, out)}, time.Unix(1000, 0))
		if got := status.VMs[0]; got.Reason != reason || (got.Message == "tripped") != (reason == v1alpha1.ReasonGuardTripped) {
			t.Errorf("%s: %+v", out, got)
		}
	}
}
