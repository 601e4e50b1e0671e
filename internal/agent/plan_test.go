package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/slice"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/thread"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
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
	if o := ordersOf(planOf("2-3", nil), false); len(o.pins) != 1 || o.pins["pod"].VCPUs[1].String() != "2-3" || o.pins["pod"].Emulator.String() != "0" {
		t.Errorf("orders %+v", o)
	}
	if o := ordersOf(planOf("3-2", nil), false); len(o.pins) != 0 || o.refused[refusal{"pod", v1alpha1.LeverAffinity}] == "" {
		t.Errorf("orders of a bad plan %+v", o)
	}
	twice := map[string]func(*v1alpha1.NodePlan){
		"a pod twice": func(p *v1alpha1.NodePlan) { p.Spec.VMs = append(p.Spec.VMs, p.Spec.VMs[1]) },
		"a pod twice, the second time without pins": func(p *v1alpha1.NodePlan) {
			p.Spec.VMs = append(p.Spec.VMs, v1alpha1.VMPlan{VMReference: p.Spec.VMs[1].VMReference})
		},
		"a vCPU twice": func(p *v1alpha1.NodePlan) {
			pins := p.Spec.VMs[1].Affinity
			pins.VCPUs = append(pins.VCPUs, v1alpha1.VCPUPin{VCPU: 1, CPUs: "4"})
		},
	}
	for name, change := range twice {
		if o := ordersOf(planOf("2", change), false); len(o.pins) != 0 || !strings.Contains(o.refused[refusal{"pod", v1alpha1.LeverAffinity}], "twice") {
			t.Errorf("%s: orders %+v", name, o)
		}
	}
	for name, o := range map[string]orders{
		"no plan":           ordersOf(nil, false),
		"not to be applied": ordersOf(planOf("2", func(p *v1alpha1.NodePlan) { p.Spec.Apply = false }), false),
		"a stale manager":   ordersOf(planOf("2", nil), true),
	} {
		if len(o.pins)+len(o.refused) != 0 {
			t.Errorf("%s: orders %+v", name, o)
		}
	}
}

func TestPlanStatus(t *testing.T) {
	result := func(outcome thread.Outcome) []affinity.Result {
		return []affinity.Result{{PodUID: "pod", Outcome: outcome, Held: []affinity.Thread{
			{Role: discover.Role{Kind: discover.VCPU, VCPU: 1}, Value: units.NewCPUSet(2, 3)}, {Value: units.NewCPUSet(0)},
		}}}
	}
	for name, test := range map[string]struct {
		plan     *v1alpha1.NodePlan
		outcome  outcome
		state    v1alpha1.LeverState // of the VM; empty: not listed
		reason   string              // of the VM
		applied  string              // reason of the condition
		revision string
	}{
		"applied":         {planOf("2-3", nil), outcome{applied: applied{pins: result(thread.Applied)}}, v1alpha1.LeverInForce, "Applied", "Applied", "r2"},
		"not running":     {planOf("2-3", nil), outcome{}, v1alpha1.LeverPending, "NotRunning", "NotRunning", "r1"},
		"a vCPU too many": {planOf("2-3", nil), outcome{applied: applied{pins: result(thread.Incomplete)}}, v1alpha1.LeverPending, "NotRunning", "NotRunning", "r1"},
		"failed":          {planOf("2-3", nil), outcome{applied: applied{pins: result(thread.Failed)}}, v1alpha1.LeverFailed, "ApplyFailed", "ApplyFailed", "r1"},
		"no core":         {planOf("2-3", nil), outcome{applied: applied{pins: result(thread.NoAllowedCore)}}, v1alpha1.LeverFailed, "NoAllowedCore", "NoAllowedCore", "r1"},
		"contested":       {planOf("2-3", nil), outcome{applied: applied{pins: result(thread.Contested)}}, v1alpha1.LeverBlocked, "Contested", "Applied", "r2"},
		"dedicated":       {planOf("2-3", nil), outcome{applied: applied{pins: result(thread.Dedicated)}}, v1alpha1.LeverBlocked, "DedicatedCPUs", "Applied", "r2"},
		"gone":            {planOf("2-3", nil), outcome{applied: applied{pins: result(thread.Gone)}}, v1alpha1.LeverIdle, "VMGone", "Applied", "r2"},
		"bad CPUs":        {planOf("9-1", nil), outcome{applied: applied{pins: result(thread.Undone)}}, v1alpha1.LeverFailed, "BadPlan", "BadPlan", "r1"},
		"no journal":      {planOf("2-3", nil), outcome{err: errors.New("disk full"), applied: applied{pins: result(thread.Failed)}}, v1alpha1.LeverFailed, "ApplyFailed", "ApplyFailed", "r1"},
		"stale":           {planOf("2-3", nil), outcome{stale: true, applied: applied{pins: result(thread.Undone)}}, "", "", "ManagerStale", "r1"},
		"recommended": {planOf("2-3", func(p *v1alpha1.NodePlan) { p.Spec.Apply, p.Spec.Mode = false, v1alpha1.ModeRecommend }),
			outcome{applied: applied{pins: result(thread.Undone)}}, "", "", "AwaitingApproval", "r1"},
		"observed": {planOf("2-3", func(p *v1alpha1.NodePlan) { p.Spec.Apply, p.Spec.Mode = false, v1alpha1.ModeObserve }),
			outcome{applied: applied{pins: result(thread.Undone)}}, "", "", "NotToBeApplied", "r1"},
	} {
		t.Run(name, func(t *testing.T) {
			test.outcome.orders = ordersOf(test.plan, test.outcome.stale)
			status := planStatus(test.plan, &v1alpha1.NodePlanStatus{AppliedRevision: "r1"}, test.outcome, time.Unix(1000, 5))
			condition := status.Conditions[0]
			if condition.Reason != test.applied || (condition.Status == metav1.ConditionTrue) != (test.applied == "Applied") || condition.ObservedGeneration != 7 {
				t.Errorf("condition %+v", condition)
			}
			if status.AppliedRevision != test.revision || status.ObservedGeneration != 7 {
				t.Errorf("revision %s of generation %d", status.AppliedRevision, status.ObservedGeneration)
			}
			if test.state == "" {
				if len(status.VMs) != 0 {
					t.Errorf("VMs %+v", status.VMs)
				}
				return
			}
			if vm := status.VMs[0]; len(status.VMs) != 1 || vm.State != test.state || vm.Reason != test.reason || vm.Name != "web" {
				t.Errorf("VMs %+v", status.VMs)
			}
			again := planStatus(test.plan, &status, test.outcome, time.Unix(2000, 0))
			if diff := cmp.Diff(status, again); test.revision == "r2" && diff != "" {
				t.Errorf("another status without a change (-was +is):\n%s", diff)
			}
		})
	}
}

func TestStatusOfSlices(t *testing.T) {
	plan := planOf("2", func(p *v1alpha1.NodePlan) {
		p.Spec.VMs[1].Affinity, p.Spec.VMs[1].Slice = nil, &v1alpha1.SliceAction{Microseconds: 500}
	})
	for name, test := range map[string]struct {
		outcome thread.Outcome
		state   v1alpha1.LeverState
		reason  string
		reads   int32
	}{
		"set":                {thread.Applied, v1alpha1.LeverInForce, "Applied", 500},
		"an old kernel":      {thread.Unsupported, v1alpha1.LeverBlocked, "SlicesUnsupported", 0},
		"contested":          {thread.Contested, v1alpha1.LeverBlocked, "Contested", 0},
		"dedicated":          {thread.Dedicated, v1alpha1.LeverBlocked, "DedicatedCPUs", 0},
		"another comes back": {thread.Failed, v1alpha1.LeverFailed, "ApplyFailed", 0},
	} {
		done := applied{slices: []slice.Result{{PodUID: "pod", Outcome: test.outcome, Message: "why"}}}
		if test.reads != 0 {
			done.slices[0].Held = []thread.Thread[journal.Slice]{{Value: journal.Slice(500 * time.Microsecond)}}
		}
		status := planStatus(plan, &v1alpha1.NodePlanStatus{}, outcome{orders: ordersOf(plan, false), applied: done}, time.Unix(1000, 0))
		if len(status.VMs) != 1 || status.VMs[0].Lever != v1alpha1.LeverSlice || status.VMs[0].State != test.state || status.VMs[0].Reason != test.reason {
			t.Fatalf("%s: status %+v", name, status.VMs)
		}
		var reads int32
		if got := status.VMs[0].SliceMicroseconds; got != nil {
			reads = *got
		}
		if reads != test.reads {
			t.Errorf("%s: reads back %d us, want %d", name, reads, test.reads)
		}
	}
}

func TestSlicesOutOfBoundsAreRefused(t *testing.T) {
	for microseconds, taken := range map[int32]bool{99: false, 100: true, 100_000: true, 100_001: false, -1: false, 0: false} {
		plan := planOf("2", func(p *v1alpha1.NodePlan) { p.Spec.VMs[1].Slice = &v1alpha1.SliceAction{Microseconds: microseconds} })
		o := ordersOf(plan, false)
		why, refused := o.refused[refusal{"pod", v1alpha1.LeverSlice}]
		if _, ordered := o.slices["pod"]; ordered != taken || refused == taken || len(o.pins) != 1 {
			t.Errorf("%d us: orders %+v", microseconds, o)
		}
		if refused && !strings.Contains(why, "slice.microseconds") {
			t.Errorf("%d us: %q does not name the field", microseconds, why)
		}
	}
}

func TestNarrowEmulatorMasksAreNotApplied(t *testing.T) {
	core := func(llc int, cpus ...int) model.Core { return model.Core{LLC: llc, CPUs: units.NewCPUSet(cpus...)} }
	topology := model.Topology{Cores: []model.Core{
		core(0, 0, 1), core(0, 2, 3), core(0, 4, 5), core(0, 6, 7), core(1, 8, 9), core(1, 10, 11),
	}}
	for name, test := range map[string]struct {
		cpuset, isolated, excluded, emulator string
		freed                                bool
	}{
		"a whole cache":                 {cpuset: "0-11", emulator: "0-7"},
		"another":                       {cpuset: "0-11", emulator: "8-11"},
		"both":                          {cpuset: "0-11", emulator: "0-11"},
		"a core of one":                 {cpuset: "0-11", emulator: "0-1", freed: true},
		"a core less":                   {cpuset: "0-11", emulator: "2-7", freed: true},
		"a CPU less":                    {cpuset: "0-11", emulator: "0-6", freed: true},
		"a core less, excluded":         {cpuset: "0-11", excluded: "0-1", emulator: "2-7"},
		"a core less, its sibling so":   {cpuset: "0-11", excluded: "1", emulator: "2-7"},
		"another one is excluded":       {cpuset: "0-11", excluded: "8", emulator: "2-7", freed: true},
		"nonsense is excluded":          {cpuset: "0-11", excluded: "0-", emulator: "2-7", freed: true},
		"narrow in both":                {cpuset: "0-11", emulator: "0-1,8", freed: true},
		"whole beside a part":           {cpuset: "0-11", emulator: "0-1,8-11"},
		"all that the cpuset has of it": {cpuset: "6-9", emulator: "6-7"},
		"half a core is no room":        {cpuset: "1-7", emulator: "2-7"},
		"nothing but half a core":       {cpuset: "1", emulator: "1", freed: true},
		"all that is not isolated":      {cpuset: "0-11", isolated: "2-7", emulator: "0-1"},
		"a cache that is all isolated":  {cpuset: "0-11", isolated: "0-7", emulator: "0-7", freed: true},
		"a cpuset that is wider by now": {cpuset: "0-7", emulator: "0-3", freed: true},
		"outside of the cpuset":         {cpuset: "0-3", emulator: "8-9"}, // the actuator says so
		"none":                          {cpuset: "0-11"},
	} {
		set := func(text string) units.CPUSet {
			cpus, err := units.ParseCPUSet(text)
			if err != nil {
				t.Fatal(err)
			}
			return cpus
		}
		topology.Isolated = set(test.isolated)
		plan := planOf("2-3", func(p *v1alpha1.NodePlan) {
			p.Spec.VMs[1].Affinity.EmulatorCPUs, p.Spec.ExcludedCPUs = test.emulator, test.excluded
		})
		o := ordersOf(plan, false)
		o.freeNarrow([]affinity.VM{{VM: discover.VM{PodUID: "pod"}, Cpuset: set(test.cpuset)}}, topology)
		pins, taken := o.pins["pod"]
		wanted := test.emulator
		if test.freed {
			wanted = ""
		}
		if !taken || len(pins.VCPUs) != 1 || pins.Emulator.String() != wanted || (o.freed["pod"] != "") != test.freed {
			t.Errorf("%s: pins %v, freed %q", name, pins, o.freed["pod"])
		}
		status := planStatus(plan, &v1alpha1.NodePlanStatus{}, outcome{orders: o,
			applied: applied{pins: []affinity.Result{{PodUID: "pod", Outcome: thread.Applied}}}}, time.Unix(1000, 0))
		one := status.VMs[0]
		if one.State != v1alpha1.LeverInForce || strings.Contains(one.Message, "affinity.emulatorCPUs "+test.emulator) != test.freed {
			t.Errorf("%s: status %+v", name, one)
		}
	}
}

func TestAnOrderThatIsRefusedIsSaid(t *testing.T) {
	plan := planOf("2", func(p *v1alpha1.NodePlan) { p.Spec.VMs[1].Buffering = &v1alpha1.BufferingAction{} })
	status := planStatus(plan, &v1alpha1.NodePlanStatus{}, outcome{orders: ordersOf(plan, false),
		applied: applied{pins: []affinity.Result{{PodUID: "pod", Outcome: thread.Applied}}}}, time.Unix(1000, 0))
	if len(status.VMs) != 2 || status.VMs[1].Reason != reasonBadPlan || status.Conditions[0].Status != metav1.ConditionFalse {
		t.Errorf("status %+v", status)
	}
	if !strings.Contains(status.Conditions[0].Message, "Buffering of shop/web") {
		t.Errorf("message %q does not name the lever and the VM", status.Conditions[0].Message)
	}
}
