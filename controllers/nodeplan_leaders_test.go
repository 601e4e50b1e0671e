package controllers

import (
	"context"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// past reads the cluster as it is, but policies and the node's plan as they were: the
// cache of a manager that stood still.
type past struct {
	client.Reader
	plan     *v1alpha1.NodePlan
	policies []v1alpha1.EnergyPolicy
}

func (p *past) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	if plan, is := into.(*v1alpha1.NodePlan); is {
		p.plan.DeepCopyInto(plan)
		return nil
	}
	return p.Reader.Get(ctx, key, into, o...)
}

func (p *past) List(ctx context.Context, into client.ObjectList, o ...client.ListOption) error {
	if policies, is := into.(*v1alpha1.EnergyPolicyList); is {
		policies.Items = p.policies
		return nil
	}
	return p.Reader.List(ctx, into, o...)
}

// A manager that stood still while another began to lead wants to act on what it knew
// then: neither does it write its plan over the other's nor delete that.
func TestPlanOfTheNextLeaderStays(t *testing.T) {
	s := newOneNode(t)
	heard := s.heard()
	s.reconcile(heard)
	old := s.nodePlan()
	var policies v1alpha1.EnergyPolicyList
	if err := s.client.List(t.Context(), &policies); err != nil {
		t.Fatal(err)
	}
	known := policies.Items[0].DeepCopy()
	policies.Items[0].Spec.Paused = true
	if err := s.client.Update(t.Context(), &policies.Items[0]); err != nil {
		t.Fatal(err)
	}
	if s.reconcile(heard); !old.Spec.Apply || s.nodePlan().Spec.Apply {
		t.Fatalf("the plan was %+v and is %+v: want that the pause ended it", old.Spec, s.nodePlan().Spec)
	}
	next := s.nodePlan()
	renamed := known.DeepCopy()
	renamed.Name = "other"
	for name, knows := range map[string][]v1alpha1.EnergyPolicy{
		"it knows of no pause":       {*known},
		"it knows of another policy": {*renamed},
		"it knows of no policy":      nil,
	} {
		r := s.reconciler(heard)
		r.Observer.Reader = &past{Reader: s.client, plan: old, policies: knows}
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(old)})
		is := s.nodePlan()
		if is.ResourceVersion != next.ResourceVersion {
			t.Errorf("%s: the plan became %+v", name, is.Spec)
		}
		// What it takes for done it does not write.
		if name != "it knows of no pause" && (err != nil || result.RequeueAfter != conflictRetry) {
			t.Errorf("%s: %+v, %v: want that it looks again", name, result, err)
		}
	}
}
