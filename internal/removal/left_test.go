package removal

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

func TestPlanned(t *testing.T) {
	plan := func(name string, inForce int32) v1alpha1.NodePlan {
		return v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.NodePlanStatus{VMsInForce: inForce}}
	}
	plans := []v1alpha1.NodePlan{plan("a", 0), plan("b", 2)}
	if diff := cmp.Diff([]string{"NodePlan a", "NodePlan b"}, planned(plans, false)); diff != "" {
		t.Errorf("plans that have to go, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"NodePlan b with 2 VMs in force"}, planned(plans, true)); diff != "" {
		t.Errorf("plans that may stay, -want +got:\n%s", diff)
	}
}

func TestSteered(t *testing.T) {
	pod := func(name string, labels, annotations map[string]string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels, Annotations: annotations}}
	}
	mark := map[string]string{v1alpha1.AnnotationProfile: "web"}
	pods := []metav1.PartialObjectMetadata{
		pod("plain", nil, nil),
		pod("active", map[string]string{v1alpha1.LabelServing: v1alpha1.ServingActive}, nil),
		pod("marked", map[string]string{v1alpha1.LabelServing: v1alpha1.ServingActive}, mark),
		pod("standby", map[string]string{v1alpha1.LabelServing: v1alpha1.ServingStandby}, mark),
	}
	for stay, want := range map[bool][]string{
		false: {"steered pod shop/marked", "steered pod shop/standby"},
		true:  {"steered pod shop/standby"},
	} {
		if diff := cmp.Diff(want, steered(pods, stay)); diff != "" {
			t.Errorf("profiles stay: %t, -want +got:\n%s", stay, diff)
		}
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
		"something unknown":        nil,
		"a, b":                     {"a", "b"},
		"a, b, c, d, e and 2 more": {"a", "b", "c", "d", "e", "f", "g"},
	} {
		if got := few(names); got != want {
			t.Errorf("few(%v) is %q, want %q", names, got, want)
		}
	}
}
