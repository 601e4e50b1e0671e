package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/plan"
)

// change edits a policy.
func (s *scene) change(policy *v1alpha1.EnergyPolicy, with func(*v1alpha1.EnergyPolicySpec)) {
	s.Helper()
	s.must(suite.client.Get(s.Context(), client.ObjectKeyFromObject(policy), policy))
	before := policy.DeepCopy()
	with(&policy.Spec)
	s.must(suite.client.Patch(s.Context(), policy, client.MergeFrom(before)))
}

// optOut sets annotation joulevirt.io/opt-out, or removes it when the value is nil.
func (s *scene) optOut(object client.Object, value any) {
	s.Helper()
	quoted := "null"
	if value != nil {
		quoted = fmt.Sprintf("%q", value)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, v1alpha1.AnnotationOptOut, quoted)
	s.must(suite.client.Patch(s.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// confirm plays the agent of a node, which does all that the plan says.
func (s *scene) confirm(node string) {
	s.Helper()
	s.eventually("the agent confirms the plan of "+node, func(ctx context.Context) error {
		plan := &v1alpha1.NodePlan{}
		if err := suite.client.Get(ctx, types.NamespacedName{Name: node}, plan); err != nil {
			return err
		}
		plan.Status = v1alpha1.NodePlanStatus{
			ObservedGeneration: plan.Generation,
			Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonApplied, LastTransitionTime: metav1.Now(),
			}},
		}
		return suite.client.Status().Update(ctx, plan)
	})
}

func (s *scene) event(object, reason string) {
	s.Helper()
	s.eventually("an Event "+reason+" of "+object, func(ctx context.Context) error {
		var events corev1.EventList
		if err := suite.client.List(ctx, &events); err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.InvolvedObject.Name == object && e.Reason == reason }) {
			return fmt.Errorf("there is none of %d", len(events.Items))
		}
		return nil
	})
}

func TestPausedPolicy(t *testing.T) {
	s := newScene(t, "paused", 1)
	vmis := s.vms("web", 2, s.nodes[0])
	profile := s.profile("web", "web")
	s.agent(s.nodes[0], v1alpha1.PowerRAPL, vmis...)
	policy := s.policy("enforce", v1alpha1.ModeEnforce, nil)
	before := s.plan(s.nodes[0], "pinned", func(p *v1alpha1.NodePlan) bool { return pinned(p, vmis...) && p.Spec.Apply })

	s.change(policy, func(spec *v1alpha1.EnergyPolicySpec) { spec.Paused = true })
	s.plan(s.nodes[0], "paused", func(p *v1alpha1.NodePlan) bool {
		return p.Spec.Reason == v1alpha1.ReasonPaused && !p.Spec.Apply && pinned(p)
	})
	s.policyCondition(policy, v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonPaused, "undone")
	s.policyCondition(policy, "Ready", metav1.ConditionTrue, v1alpha1.ReasonGoverningNodes, "governs 1 of 1")
	s.event(policy.Name, v1alpha1.ReasonPaused)
	s.eventually("the profile tells", func(ctx context.Context) error {
		return s.levers(ctx, profile, 0, v1alpha1.LeverCount{Lever: "Affinity", State: "Blocked", Reason: v1alpha1.ReasonPaused, Count: 2})
	})
	// Status and metrics go on.
	if policy.Status.Watts == nil || policy.Status.Nodes.Metered != 1 {
		t.Errorf("status %+v of a paused policy", policy.Status)
	}

	s.change(policy, func(spec *v1alpha1.EnergyPolicySpec) { spec.Paused = false })
	s.plan(s.nodes[0], "as before", func(p *v1alpha1.NodePlan) bool {
		return p.Spec.Revision == before.Spec.Revision && p.Spec.Apply && pinned(p, vmis...)
	})
	s.policyCondition(policy, v1alpha1.ConditionPaused, metav1.ConditionFalse, v1alpha1.ReasonNotPaused, "")
	s.event(policy.Name, v1alpha1.ReasonNotPaused)
}

// Of three nodes one changes at a time; the next follows when its agent has confirmed,
// also by a manager that was not there before.
func TestNodesChangeOneByOne(t *testing.T) {
	s := newScene(t, "budget", 3)
	for _, node := range s.nodes {
		s.agent(node, v1alpha1.PowerRAPL, s.vms("web-"+node, 1, node)...)
	}
	all := &v1alpha1.VMNetworkProfile{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "all"}}
	all.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}
	s.must(suite.client.Create(t.Context(), all))
	s.policy("enforce", v1alpha1.ModeEnforce, func(spec *v1alpha1.EnergyPolicySpec) { spec.Budgets.MaxNodesChanging = 1 })

	changed := func(want int) (nodes []string) {
		s.eventually(fmt.Sprint(want, " nodes are changed, the others wait"), func(ctx context.Context) error {
			nodes = nil
			waiting := 0
			for _, node := range s.nodes {
				plan := &v1alpha1.NodePlan{}
				if err := suite.client.Get(ctx, types.NamespacedName{Name: node}, plan); err != nil {
					return err
				}
				switch {
				case plan.Spec.ChangedAt != nil:
					nodes = append(nodes, node)
				case plan.Spec.Reason == v1alpha1.ReasonChangeBudgetNodes:
					waiting++
				}
			}
			if len(nodes) != want || waiting != len(s.nodes)-want {
				return fmt.Errorf("changed are %v, %d wait", nodes, waiting)
			}
			return nil
		})
		return nodes
	}
	first := changed(1)
	restartManager(t)
	changed(1)
	s.confirm(first[0])
	second := changed(2)
	for _, node := range second {
		s.confirm(node)
	}
	changed(3)
}

func TestOptOutOfVMsAndNodes(t *testing.T) {
	s := newScene(t, "optout", 1)
	vmis := s.vms("web", 2, s.nodes[0])
	profile := s.profile("web", "web")
	s.agent(s.nodes[0], v1alpha1.PowerRAPL, vmis...)
	s.policy("enforce", v1alpha1.ModeEnforce, nil)
	both := func() {
		s.plan(s.nodes[0], "both pinned", func(p *v1alpha1.NodePlan) bool { return pinned(p, vmis...) })
	}
	both()
	s.optOut(vmis[0], "Affinity,Buffering")
	s.plan(s.nodes[0], "one pinned", func(p *v1alpha1.NodePlan) bool { return pinned(p, vmis[1]) })
	s.eventually("the profile tells", func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
			return err
		}
		want := v1alpha1.LeverCount{Lever: "Affinity", State: "Blocked", Reason: v1alpha1.ReasonOptedOut, Count: 1}
		if !slices.Contains(profile.Status.Levers, want) {
			return fmt.Errorf("it is %+v", profile.Status.Levers)
		}
		return nil
	})
	s.optOut(vmis[0], nil)
	both()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.nodes[0]}}
	s.optOut(node, "please")
	s.plan(s.nodes[0], "nothing, and why", func(p *v1alpha1.NodePlan) bool {
		return p.Spec.Reason == v1alpha1.ReasonOptedOut && strings.Contains(p.Spec.Message, `"please"`) && pinned(p)
	})
	s.optOut(node, "false")
	both()
}

// What somebody else writes into a plan is put right, be it an action, a permission, or a
// memory of changes. It is recommended anew: nothing is believed of it, no approval either.
func TestNodePlanEditedByHand(t *testing.T) {
	s := newScene(t, "edited", 1)
	vmis := s.vms("web", 1, s.nodes[0])
	s.profile("web", "web")
	s.agent(s.nodes[0], v1alpha1.PowerNone, vmis...)
	s.policy("recommend", v1alpha1.ModeRecommend, nil)
	s.plan(s.nodes[0], "a recommendation", func(p *v1alpha1.NodePlan) bool { return pinned(p, vmis...) && !p.Spec.Apply })
	for _, edit := range []string{
		`[{"op": "replace", "path": "/spec/apply", "value": true}]`,
		`[{"op": "replace", "path": "/spec/revision", "value": "mine"}]`,
		`[{"op": "remove", "path": "/spec/vms"}]`,
		`[{"op": "replace", "path": "/spec/vms/0/affinity/vcpus/0/cpus", "value": "99"}]`,
		`[{"op": "add", "path": "/spec/vms/0/sliceMicroseconds", "value": 100}]`,
	} {
		edited := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: s.nodes[0]}}
		s.must(suite.client.Patch(t.Context(), edited, client.RawPatch(types.JSONPatchType, []byte(edit))))
		generation := edited.Generation
		s.plan(s.nodes[0], "put right after "+edit, func(p *v1alpha1.NodePlan) bool {
			is, _ := plan.Decode(&p.Spec)
			return p.Generation > generation && is.Revision == model.RecommendationRevision(is.VMs, is.RecommendedAt) && !is.Apply &&
				pinned(p, vmis...) && p.Spec.VMs[0].SliceMicroseconds == nil
		})
	}
	s.event(s.nodes[0], v1alpha1.ReasonEdited)
}
