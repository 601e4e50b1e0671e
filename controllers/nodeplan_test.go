package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// gone waits until a node has no plan.
func (s *scene) gone(node string) {
	s.Helper()
	s.eventually("no plan of node "+node, func(ctx context.Context) error {
		err := suite.client.Get(ctx, types.NamespacedName{Name: node}, &v1alpha1.NodePlan{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
}

func TestNodePlanFollowsPolicyAndProfile(t *testing.T) {
	s := newScene(t, "follow", 2)
	web, db := s.vms("web", 2, s.nodes[0]), s.vms("db", 1, s.nodes[0])
	s.agent(s.nodes[0], v1alpha1.PowerRAPL, web[0], web[1], db[0])
	profile := s.profile("web", "web")

	// The other node's plan tells that the manager looked at all nodes.
	other := s.policy("a-older", v1alpha1.ModeEnforce, func(spec *v1alpha1.EnergyPolicySpec) {
		spec.NodeSelector.MatchLabels = map[string]string{"kubernetes.io/hostname": s.nodes[1]}
	})
	s.plan(s.nodes[1], "no agent there", func(p *v1alpha1.NodePlan) bool { return p.Spec.Reason == v1alpha1.ReasonNoReport })
	s.gone(s.nodes[0])

	policy := s.policy("enforce", v1alpha1.ModeEnforce, nil)
	plan := s.plan(s.nodes[0], "web pinned", func(p *v1alpha1.NodePlan) bool { return pinned(p, web...) && p.Spec.Apply })
	if plan.Spec.Policy != policy.Name || plan.Spec.Reason != v1alpha1.ReasonPlanned || len(plan.OwnerReferences) != 1 ||
		plan.OwnerReferences[0].Kind != "Node" || len(plan.Spec.VMs) != 2 {
		t.Errorf("plan %+v of owners %+v", plan.Spec, plan.OwnerReferences)
	}
	cores := map[string]bool{}
	for _, vm := range plan.Spec.VMs {
		for _, pin := range vm.Affinity.VCPUs {
			cores[pin.CPUs] = true
		}
	}
	if len(cores) != 4 {
		t.Errorf("four busy vCPUs are on cores %v, want all four", cores)
	}
	s.plan(s.nodes[1], "the older policy stays", func(p *v1alpha1.NodePlan) bool { return p.Spec.Policy == other.Name })

	s.must(suite.client.Delete(t.Context(), profile))
	s.plan(s.nodes[0], "no VM left", func(p *v1alpha1.NodePlan) bool { return len(p.Spec.VMs) == 0 && p.Spec.Apply })
	s.must(suite.client.Delete(t.Context(), policy))
	s.gone(s.nodes[0])
}

func TestNodePlanIsConstant(t *testing.T) {
	s := newScene(t, "constant", 1)
	vmis := s.vms("web", 1, s.nodes[0])
	s.profile("web", "web")
	s.policy("enforce", v1alpha1.ModeEnforce, nil)
	s.agent(s.nodes[0], v1alpha1.PowerRAPL, vmis...)
	before := s.plan(s.nodes[0], "pinned", func(p *v1alpha1.NodePlan) bool { return pinned(p, vmis...) })

	// Another VM's plan comes after at least one more look at this node.
	more := s.vms("more", 1, s.nodes[0])
	s.agent(s.nodes[0], v1alpha1.PowerRAPL, vmis[0], more[0])
	profile := s.profile("more", "more")
	s.plan(s.nodes[0], "both pinned", func(p *v1alpha1.NodePlan) bool { return pinned(p, vmis[0], more[0]) })
	s.must(suite.client.Delete(t.Context(), profile))
	after := s.plan(s.nodes[0], "one pinned", func(p *v1alpha1.NodePlan) bool { return pinned(p, vmis...) })
	if before.Spec.Revision != after.Spec.Revision {
		t.Errorf("the pins of a VM changed with another's coming and going: %+v, then %+v", before.Spec.VMs, after.Spec.VMs)
	}
	// Five looks at the node without news, then one with: one write.
	for i := range 5 {
		s.label(s.nodes[0], "look", fmt.Sprint(i))
	}
	s.cordon(s.nodes[0], true)
	frozen := s.plan(s.nodes[0], "frozen", func(p *v1alpha1.NodePlan) bool { return p.Spec.Reason == v1alpha1.ReasonNodeFrozen })
	if frozen.Generation != after.Generation+1 {
		t.Errorf("generation %d, then %d: want one write", after.Generation, frozen.Generation)
	}
}

func (s *scene) label(name, key, value string) {
	s.Helper()
	node := &corev1.Node{}
	s.must(suite.client.Get(s.Context(), types.NamespacedName{Name: name}, node))
	before := node.DeepCopy()
	node.Labels[key] = value
	s.must(suite.client.Patch(s.Context(), node, client.MergeFrom(before)))
}

func (s *scene) cordon(name string, unschedulable bool) {
	s.Helper()
	node := &corev1.Node{}
	s.must(suite.client.Get(s.Context(), types.NamespacedName{Name: name}, node))
	before := node.DeepCopy()
	node.Spec.Unschedulable = unschedulable
	s.must(suite.client.Patch(s.Context(), node, client.MergeFrom(before)))
}

func TestNodePlanGoesWithItsNode(t *testing.T) {
	s := newScene(t, "nodegone", 1)
	s.policy("enforce", v1alpha1.ModeEnforce, nil)
	s.agent(s.nodes[0], v1alpha1.PowerRAPL)
	s.plan(s.nodes[0], "there", func(*v1alpha1.NodePlan) bool { return true })
	node := &corev1.Node{}
	node.Name = s.nodes[0]
	s.must(suite.client.Delete(t.Context(), node))
	s.gone(s.nodes[0])
	s.eventually("no NodeReport either", func(ctx context.Context) error {
		err := suite.client.Get(ctx, types.NamespacedName{Name: s.nodes[0]}, &v1alpha1.NodeReport{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

func TestNodePlanRecommends(t *testing.T) {
	s := newScene(t, "recommend", 1)
	vmis := s.vms("web", 1, s.nodes[0])
	s.profile("web", "web")
	s.agent(s.nodes[0], v1alpha1.PowerNone, vmis...)
	policy := s.policy("recommend", v1alpha1.ModeRecommend, nil)
	plan := s.plan(s.nodes[0], "a recommendation", func(p *v1alpha1.NodePlan) bool { return pinned(p, vmis...) })
	if plan.Spec.Apply || plan.Spec.Reason != v1alpha1.ReasonAwaitingApproval || plan.Spec.RecommendedAt == nil {
		t.Fatalf("plan %+v, want one that awaits approval", plan.Spec)
	}
	approved := plan.Spec.Revision
	before := policy.DeepCopy()
	policy.Spec.Approvals = []string{approved}
	s.must(suite.client.Patch(t.Context(), policy, client.MergeFrom(before)))
	s.plan(s.nodes[0], "approved", func(p *v1alpha1.NodePlan) bool { return p.Spec.Apply && p.Spec.Revision == approved })

	// A VM that comes later is not part of what was approved.
	more := s.vms("web-more", 1, s.nodes[0])
	s.profile("more", "web-more")
	s.agent(s.nodes[0], v1alpha1.PowerNone, vmis[0], more[0])
	s.plan(s.nodes[0], "the newcomer waits", func(p *v1alpha1.NodePlan) bool {
		return len(p.Spec.VMs) == 2 && pinned(p, vmis...) && p.Spec.Apply && p.Spec.Revision == approved
	})
}

// TestNodeWithTooManyVMs: the API server takes the plan of a node with more VMs than fit into one,
// with what the agent says of each, and the plan says that some are left out.
func TestNodeWithTooManyVMs(t *testing.T) {
	const vms, vcpus, cores = 1024, 8, 64
	s := newScene(t, "many", 1)
	node := s.nodes[0]
	vmis := s.vms("web", vms, node)
	topology, online, rates := idleCores(cores)
	for _, vmi := range vmis {
		vm := model.VMRates{PodUID: string(podOf(vmi)), Namespace: vmi.Namespace, Name: vmi.Name, AllowedCPUs: online}
		for index := range vcpus {
			vm.VCPUs = append(vm.VCPUs, model.VCPURates{Index: index, CPUs: online, ThreadRates: model.ThreadRates{RunCores: 0.002}})
		}
		rates.VMs = append(rates.VMs, vm)
	}
	s.must(suite.agents.SetRates(node, rates))
	object := &corev1.Node{}
	s.must(suite.client.Get(t.Context(), types.NamespacedName{Name: node}, object))
	t.Cleanup(func() { // or the manager pulls its rates beside all tests that follow
		if err := suite.client.Delete(context.Background(), object); err != nil {
			t.Error(err)
		}
	})
	s.must(suite.agents.Report(t.Context(), suite.client, object, topology, v1alpha1.PowerRAPL))
	s.profile("web", "web")
	s.policy("enforce", v1alpha1.ModeEnforce, func(spec *v1alpha1.EnergyPolicySpec) {
		spec.Levers = []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverBuffering, v1alpha1.LeverShaping}
	})
	plan := s.plan(node, "of many VMs", func(p *v1alpha1.NodePlan) bool { return p.Spec.Reason == v1alpha1.ReasonTooManyVMs })
	if len(plan.Spec.VMs) == 0 || len(plan.Spec.VMs) == vms || plan.Spec.Message == "" {
		t.Errorf("%d VMs in the plan: %s", len(plan.Spec.VMs), plan.Spec.Message)
	}
	for i := range plan.Spec.VMs {
		vm := &plan.Spec.VMs[i]
		applied := v1alpha1.VMApplied{VMReference: vm.VMReference, State: v1alpha1.LeverInForce}
		applied.Lever, applied.Reason = v1alpha1.LeverAffinity, v1alpha1.ReasonApplied
		for vcpu := range int32(vcpus) {
			applied.VCPUs = append(applied.VCPUs, v1alpha1.VCPUPin{VCPU: vcpu, CPUs: "100,101,102"})
		}
		plan.Status.VMs = append(plan.Status.VMs, applied)
	}
	s.must(suite.client.Status().Update(t.Context(), plan))
}
