package removal

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

func TestUnconfirmed(t *testing.T) {
	plan := func(change func(*v1alpha1.NodePlan)) *v1alpha1.NodePlan {
		plan := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Generation: 3}, Status: v1alpha1.NodePlanStatus{ObservedGeneration: 3}}
		change(plan)
		return plan
	}
	pinned := []v1alpha1.VMPlan{{Affinity: &v1alpha1.AffinityAction{}}}
	for name, test := range map[string]struct {
		plan  *v1alpha1.NodePlan
		alive bool
		want  string // part of; empty: confirmed
	}{
		"no plan":         {nil, true, ""},
		"no plan, killed": {nil, false, "pod is not ready"},
		"confirmed":       {plan(func(*v1alpha1.NodePlan) {}), false, ""},
		"recommended":     {plan(func(p *v1alpha1.NodePlan) { p.Spec.VMs = pinned }), true, ""},
		"nothing to do":   {plan(func(p *v1alpha1.NodePlan) { p.Spec.Apply, p.Spec.VMs = true, []v1alpha1.VMPlan{{}} }), true, ""},
		"not withdrawn":   {plan(func(p *v1alpha1.NodePlan) { p.Spec.Apply, p.Spec.VMs = true, pinned }), true, "manager has not withdrawn"},
		"not read":        {plan(func(p *v1alpha1.NodePlan) { p.Status.ObservedGeneration = 2 }), true, "agent has not read"},
		"in force":        {plan(func(p *v1alpha1.NodePlan) { p.Status.VMsInForce = 2 }), true, "in force on 2 VMs"},
		"failed": {plan(func(p *v1alpha1.NodePlan) {
			p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionApplied, Reason: v1alpha1.ReasonApplyFailed, Message: "disk full"}}
		}), true, "disk full"},
	} {
		if got := unconfirmed(test.plan, test.alive); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestSteered(t *testing.T) {
	pod := func(name, owner, serving string, annotations map[string]string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{v1alpha1.LabelServing: serving}, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{Kind: owner, Name: "web", Controller: ptr.To(true)}},
		}}
	}
	const vmi, active, standby = "VirtualMachineInstance", v1alpha1.ServingActive, v1alpha1.ServingStandby
	mark := map[string]string{v1alpha1.AnnotationProfile: "web"}
	gone := map[string]string{v1alpha1.AnnotationProfile: "gone"}
	pods := []metav1.PartialObjectMetadata{
		pod("active", vmi, active, nil),
		pod("named", vmi, standby, nil),
		pod("no-vm", "ReplicaSet", standby, mark),
		pod("foreign", vmi, "nonsense", gone),
		pod("marked", vmi, active, mark),
		pod("standby", vmi, standby, gone),
	}
	for _, test := range []struct {
		profiles map[types.NamespacedName]bool
		want     []string
	}{
		{map[types.NamespacedName]bool{{Namespace: "shop", Name: "web"}: true}, []string{"steered pod shop/marked", "steered pod shop/standby"}},
		{nil, []string{"steered pod shop/standby"}},
	} {
		if diff := cmp.Diff(test.want, steered(pods, test.profiles)); diff != "" {
			t.Errorf("profiles %v, -want +got:\n%s", test.profiles, diff)
		}
	}
}

func TestDepending(t *testing.T) {
	service := func(namespace, name, app string, adopted bool) corev1.Service {
		s := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		s.Spec.Selector = map[string]string{"app": app, v1alpha1.LabelServing: v1alpha1.ServingActive}
		if adopted {
			s.Labels = map[string]string{v1alpha1.LabelAdopted: "true"}
		}
		return s
	}
	plain := service("shop", "plain", "ours", false)
	delete(plain.Spec.Selector, v1alpha1.LabelServing)
	vms := []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "a", Labels: map[string]string{"app": "ours", v1alpha1.LabelServing: v1alpha1.ServingActive},
	}}}
	got := depending([]corev1.Service{
		service("shop", "line", "ours", false), service("shop", "adopted", "ours", true), service("shop", "template", "template", false),
		service("elsewhere", "line", "ours", false), plain,
	}, vms)
	if diff := cmp.Diff([]string{"shop/line"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestGenerating(t *testing.T) {
	profile := func(name string, group *v1alpha1.TrafficGroup) v1alpha1.VMNetworkProfile {
		return v1alpha1.VMNetworkProfile{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1alpha1.VMNetworkProfileSpec{Group: group},
		}
	}
	got := generating([]v1alpha1.VMNetworkProfile{
		profile("alone", nil),
		profile("service", &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web"}),
		profile("generated", &v1alpha1.TrafficGroup{Kind: "HTTPRoute", Name: "web", Route: &v1alpha1.RouteTemplate{}}),
	})
	if diff := cmp.Diff([]string{"shop/generated"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestOwned(t *testing.T) {
	profile, controls := "VMNetworkProfile", true
	owner := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "joulevirt.io/v1alpha1", Kind: kind, Name: "web", Controller: &controls}}
	}
	service := func(name string, owners []metav1.OwnerReference) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, OwnerReferences: owners}}
	}
	route := func(name string, owners []metav1.OwnerReference) unstructured.Unstructured {
		out := unstructured.Unstructured{Object: map[string]any{"kind": "HTTPRoute"}}
		out.SetNamespace("shop")
		out.SetName(name)
		out.SetOwnerReferences(owners)
		return out
	}
	got := owned(
		[]unstructured.Unstructured{route("own", nil), route("generated", owner(profile))},
		[]metav1.PartialObjectMetadata{service("jv-a", owner(profile)), service("other", owner("Deployment"))},
	)
	if diff := cmp.Diff([]string{"HTTPRoute shop/generated", "Service shop/jv-a"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestFew(t *testing.T) {
	for want, names := range map[string][]string{
		"something unknown": nil,
		"a, b":              {"a", "b"},
		strings.Repeat("n, ", most-1) + "n and 2 more": slices.Repeat([]string{"n"}, most+2),
	} {
		if got := few(names); got != want {
			t.Errorf("few(%v) is %q, want %q", names, got, want)
		}
	}
}
