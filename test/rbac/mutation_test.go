package rbac

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
)

// testMutation shows which launcher pods get the label when they are created.
func testMutation(t *testing.T, c *cluster.Cluster) {
	admin := joulevirtClient(t, c.RESTConfig())
	group := &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web"}
	profile := func(name string, selector metav1.LabelSelector, group *v1alpha1.TrafficGroup) client.Object {
		return &v1alpha1.VMNetworkProfile{
			ObjectMeta: metav1.ObjectMeta{Namespace: "births", Name: name},
			Spec:       v1alpha1.VMNetworkProfileSpec{Selector: selector, Group: group},
		}
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "births"}},
		profile("expressions", metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}},
			{Key: "tier", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"test"}},
			{Key: "owner", Operator: metav1.LabelSelectorOpExists},
			{Key: "canary", Operator: metav1.LabelSelectorOpDoesNotExist},
		}}, group),
		profile("alone", metav1.LabelSelector{MatchLabels: map[string]string{"app": "alone"}}, nil),
		profile("route", metav1.LabelSelector{MatchLabels: map[string]string{"app": "route"}}, &v1alpha1.TrafficGroup{
			Kind: v1alpha1.GroupHTTPRoute, Name: "web", Port: ptr.To[int32](80), Route: &v1alpha1.RouteTemplate{ParentRefs: []runtime.RawExtension{{Raw: []byte(`{"name":"edge"}`)}}},
		}),
		// The last one: who has seen it, by which is waited below, has seen all.
		profile("labels", metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "tier": "front"}}, group),
	} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	created := 0
	// serving is what a pod has after its creation.
	serving := func(namespace, owner string, labels map[string]string, options ...client.CreateOption) string {
		t.Helper()
		created++
		pod := trafficPod(namespace, fmt.Sprintf("pod-%d", created), labels)
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: virtv1.GroupVersion.String(), Kind: owner, Name: "vm", UID: "1", Controller: ptr.To(true)}}
		if err := admin.Create(t.Context(), pod, options...); err != nil {
			t.Fatal(err)
		}
		return pod.Labels[v1alpha1.LabelServing]
	}
	const vmi = "VirtualMachineInstance"
	web := map[string]string{"kubevirt.io": "virt-launcher", "app": "web", "tier": "front"}
	err := c.WaitFor(t.Context(), policyDelay, "a launcher pod of a group gets the label", func(context.Context) error {
		if got := serving("births", vmi, web, client.DryRunAll); got != v1alpha1.ServingActive {
			return fmt.Errorf("its label is %q", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	with := func(change map[string]string) map[string]string {
		labels := map[string]string{"kubevirt.io": "virt-launcher"}
		for key, value := range change {
			labels[key] = value
		}
		return labels
	}
	for name, test := range map[string]struct {
		namespace, owner string
		labels           map[string]string
		want             string
	}{
		"of the group":            {"births", vmi, web, "active"},
		"of no VM":                {"births", "ReplicaSet", web, ""},
		"elsewhere":               {"default", vmi, web, ""},
		"not a launcher":          {"births", vmi, map[string]string{"app": "web", "tier": "front"}, ""},
		"lacks a label":           {"births", vmi, with(map[string]string{"app": "web"}), ""},
		"another value":           {"births", vmi, with(map[string]string{"app": "web", "tier": "back"}), ""},
		"has another value":       {"births", vmi, with(map[string]string{"app": "web", "tier": "front", v1alpha1.LabelServing: "standby"}), "standby"},
		"no group":                {"births", vmi, with(map[string]string{"app": "alone"}), ""},
		"group behind a route":    {"births", vmi, with(map[string]string{"app": "route"}), ""},
		"expressions":             {"births", vmi, with(map[string]string{"app": "b", "owner": "x"}), "active"},
		"expressions, other tier": {"births", vmi, with(map[string]string{"app": "b", "owner": "x", "tier": "back"}), "active"},
		"not in":                  {"births", vmi, with(map[string]string{"app": "b", "owner": "x", "tier": "test"}), ""},
		"in":                      {"births", vmi, with(map[string]string{"app": "c", "owner": "x"}), ""},
		"exists":                  {"births", vmi, with(map[string]string{"app": "b"}), ""},
		"does not exist":          {"births", vmi, with(map[string]string{"app": "b", "owner": "x", "canary": ""}), ""},
	} {
		if got := serving(test.namespace, test.owner, test.labels); got != test.want {
			t.Errorf("%s: a pod with labels %v gets %q, want %q", name, test.labels, got, test.want)
		}
	}
}
