package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// works are the rates of a VM with two vCPUs.
func works(vmi *virtv1.VirtualMachineInstance, vcpu model.ThreadRates, packets units.PacketsPerSecond) model.VMRates {
	all := units.NewCPUSet(0, 1, 2, 3, 4, 5, 6, 7)
	vm := model.VMRates{
		PodUID: string(podOf(vmi)), Namespace: vmi.Namespace, Name: vmi.Name, AllowedCPUs: all, Weight: 1024,
		Taps: []model.TapRates{{Name: "tap0", ToVM: model.TrafficRates{PacketsPerSecond: packets, BitsPerSecond: units.BitsPerSecond(1500 * packets)}}},
	}
	for i := range 2 {
		vm.VCPUs = append(vm.VCPUs, model.VCPURates{Index: i, CPUs: all, ThreadRates: vcpu})
	}
	return vm
}

func (s *scene) rates(node string, vms ...model.VMRates) {
	s.Helper()
	r := model.NodeRates{VMs: vms}
	for cpu := range 8 {
		r.CPUs = append(r.CPUs, model.CPURates{CPU: cpu, BusyCores: 0.1})
	}
	s.must(suite.agents.SetRates(node, r))
}

// kernel lets a node's report say whether it has slices.
func (s *scene) kernel(node string, hasSlices bool) {
	s.Helper()
	s.capability(node, "SchedSlice", hasSlices)
}

// planned returns what a plan says of a VM.
func planned(plan *v1alpha1.NodePlan, vmi *virtv1.VirtualMachineInstance) v1alpha1.VMPlan {
	at := slices.IndexFunc(plan.Spec.VMs, func(vm v1alpha1.VMPlan) bool { return vm.PodUID == podOf(vmi) })
	if at < 0 {
		return v1alpha1.VMPlan{}
	}
	return plan.Spec.VMs[at]
}

func sliceOf(vm v1alpha1.VMPlan) int32 {
	if vm.Slice == nil {
		return 0
	}
	return vm.Slice.Microseconds
}

// From what VMs do to pools and slices in the node's plan, and from what the agent
// says of them to the statuses.
func TestPoolsAndSlices(t *testing.T) {
	s := newScene(t, "pools", 1)
	node := s.nodes[0]
	web, batch := s.vms("web", 1, node)[0], s.vms("batch", 1, node)[0]
	s.agent(node, v1alpha1.PowerRAPL, web, batch)
	s.rates(node, works(web, model.ThreadRates{RunCores: 0.1}, 20_000), works(batch, model.ThreadRates{RunCores: 0.95}, 0))
	s.kernel(node, true)
	profile, other := s.profile("web", "web"), s.profile("batch", "batch")
	policy := s.policy("enforce", v1alpha1.ModeEnforce, func(p *v1alpha1.EnergyPolicySpec) {
		p.Levers = []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice}
	})
	plan := s.plan(node, "a slice for each pool", func(p *v1alpha1.NodePlan) bool {
		w, b := planned(p, web), planned(p, batch)
		return w.Pool == v1alpha1.PoolNetwork && b.Pool == v1alpha1.PoolCompute && sliceOf(w) > 0 && sliceOf(b) > sliceOf(w)
	})
	plan.Status = v1alpha1.NodePlanStatus{ObservedGeneration: plan.Generation, AppliedRevision: plan.Spec.Revision, VMsInForce: 2}
	for _, vmi := range []*virtv1.VirtualMachineInstance{web, batch} {
		slice := sliceOf(planned(plan, vmi))
		plan.Status.VMs = append(plan.Status.VMs, v1alpha1.VMApplied{
			PodUID: podOf(vmi), Name: vmi.Name, Namespace: vmi.Namespace, Lever: v1alpha1.LeverSlice,
			State: v1alpha1.LeverInForce, Reason: v1alpha1.ReasonApplied, SliceMicroseconds: &slice,
		})
	}
	s.must(suite.client.Status().Update(t.Context(), plan))
	s.eventually("in force in all statuses", func(ctx context.Context) error {
		for _, p := range []*v1alpha1.VMNetworkProfile{profile, other} {
			if err := suite.client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			want := v1alpha1.LeverCount{Lever: v1alpha1.LeverSlice, State: v1alpha1.LeverInForce, Reason: v1alpha1.ReasonApplied, Count: 1}
			if !slices.Contains(p.Status.Levers, want) {
				return fmt.Errorf("levers of %s: %+v", p.Name, p.Status.Levers)
			}
		}
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		for _, coverage := range policy.Status.Coverage {
			if coverage.Lever == v1alpha1.LeverSlice && coverage.ReachedVMs == 2 {
				return nil
			}
		}
		return fmt.Errorf("coverage %+v", policy.Status.Coverage)
	})
	s.policyCondition(policy, "Ready", metav1.ConditionTrue, v1alpha1.ReasonGoverningNodes, "governs 1 of 1")

	// Another kernel is news for the plan, and what it says for the owner.
	s.kernel(node, false)
	s.plan(node, "no slices on an old kernel", func(p *v1alpha1.NodePlan) bool {
		return sliceOf(planned(p, web)) == 0 && sliceOf(planned(p, batch)) == 0
	})
	s.eventually("the profile says why", func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
			return err
		}
		want := v1alpha1.LeverCount{Lever: v1alpha1.LeverSlice, State: v1alpha1.LeverBlocked, Reason: v1alpha1.ReasonSlicesUnsupported, Count: 1}
		if !slices.Contains(profile.Status.Levers, want) {
			return fmt.Errorf("levers %+v", profile.Status.Levers)
		}
		return nil
	})

	// A VM that begins to use the network enters its pool at once. That one leaves is
	// decided once an hour: the planner's tests have it.
	s.kernel(node, true)
	s.rates(node, works(web, model.ThreadRates{RunCores: 0.1}, 20_000), works(batch, model.ThreadRates{RunCores: 0.1}, 20_000))
	s.plan(node, "everybody is on the network", func(p *v1alpha1.NodePlan) bool {
		return planned(p, batch).Pool == v1alpha1.PoolNetwork && sliceOf(planned(p, batch)) == 0 && sliceOf(planned(p, web)) == 0
	})
}

// A VM that waits for others' CPU time is told to its owner, once, and what is known
// of it ends with the manager.
func TestDisturbed(t *testing.T) {
	s := newScene(t, "disturbed", 1)
	node := s.nodes[0]
	web := s.vms("web", 1, node)[0]
	s.agent(node, v1alpha1.PowerRAPL, web)
	waits := func(cores units.Cores) {
		s.rates(node, works(web, model.ThreadRates{RunCores: 0.3, WaitCores: cores}, 20_000))
	}
	waits(0)
	suite.agents.Hurry(node, 60)
	profile := s.profile("web", "web")
	s.profileCondition(profile, v1alpha1.ConditionDisturbed, metav1.ConditionFalse, v1alpha1.ReasonAllStable, "")
	waits(0.3)
	s.profileCondition(profile, v1alpha1.ConditionDisturbed, metav1.ConditionTrue, v1alpha1.ReasonCoRunners, "1 of 1 VMs")
	got := profile.Status.Interference
	if got == nil || got.CoRunner != 1 || len(got.Examples) != 1 {
		t.Fatalf("interference %+v", got)
	}
	example := got.Examples[0]
	if example.Name != web.Name || example.Node != node || example.Verdict != v1alpha1.InterferenceCoRunner || !strings.Contains(example.Message, "waits") {
		t.Errorf("example %+v", example)
	}
	s.eventually("an event", func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := suite.client.List(ctx, &list, client.InNamespace(s.name)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Type == "Warning" && e.Reason == "CoRunner" && e.Regarding.Name == profile.Name && strings.Contains(e.Note, web.Name) {
				return nil
			}
		}
		return fmt.Errorf("events %+v", list.Items)
	})
	stopManager(t)
	suite.agents.Silence(node, true)
	startManagerAgain(t)
	s.profileCondition(profile, v1alpha1.ConditionDisturbed, metav1.ConditionUnknown, v1alpha1.ReasonAwaitingRates, "since this manager leads")
	if profile.Status.Interference != nil {
		t.Errorf("a new manager says %+v", profile.Status.Interference)
	}
	suite.agents.Silence(node, false)
	s.profileCondition(profile, v1alpha1.ConditionDisturbed, metav1.ConditionTrue, v1alpha1.ReasonCoRunners, "1 of 1 VMs")
	waits(0)
	s.profileCondition(profile, v1alpha1.ConditionDisturbed, metav1.ConditionFalse, v1alpha1.ReasonAllStable, "")
}
