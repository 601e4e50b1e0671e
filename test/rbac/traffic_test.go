package rbac

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
)

// testTraffic shows what the manager may change of pods and Services.
func testTraffic(t *testing.T, c *cluster.Cluster) {
	config, _, err := c.ServiceAccountConfig(t.Context(), namespace, manager, "")
	if err != nil {
		t.Fatal(err)
	}
	account := joulevirtClient(t, config)
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "vms"}}
	launcher := trafficPod(shop.Name, "virt-launcher-a", map[string]string{
		"kubevirt.io": "virt-launcher", "app": "web", v1alpha1.LabelServing: v1alpha1.ServingActive,
	})
	plain := trafficPod(shop.Name, "plain", map[string]string{"app": "web", v1alpha1.LabelServing: v1alpha1.ServingActive})
	odd := trafficPod(shop.Name, "odd", map[string]string{"kubevirt.io": "virt-launcher", v1alpha1.LabelServing: "nonsense"})
	odd.Annotations[v1alpha1.AnnotationProfile] = "gone"
	for _, object := range []client.Object{shop, launcher, plain, odd} {
		if err := c.Client().Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	err = c.WaitFor(t.Context(), policyDelay, "admission policy refuses the manager another pod", func(ctx context.Context) error {
		return isForbidden(mergePatch(ctx, account, plain, `{"metadata":{"labels":{"joulevirt.io/serving":"standby"}}}`, client.DryRunAll))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Pods", func(t *testing.T) { testLauncherPods(t, account, launcher, plain, odd) })
	t.Run("Services", func(t *testing.T) { testServices(t, c, account, shop.Name) })
}

func trafficPod(namespace, name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, Annotations: map[string]string{"kubevirt.io/domain": "a"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "compute", Image: "virt-launcher"}}},
	}
}

func mergePatch(ctx context.Context, c client.Client, object client.Object, patch string, options ...client.PatchOption) error {
	return c.Patch(ctx, object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(patch)), options...)
}

func testLauncherPods(t *testing.T, account client.Client, launcher, plain, odd *corev1.Pod) {
	for _, patch := range []string{
		`{"metadata":{"labels":{"joulevirt.io/serving":"standby"},"annotations":{"joulevirt.io/profile":"web"}}}`,
		`{"metadata":{"labels":{"joulevirt.io/serving":"active"},"annotations":{"joulevirt.io/profile":null}}}`,
	} {
		if err := mergePatch(t.Context(), account, launcher, patch); err != nil {
			t.Errorf("%s: %v", patch, err)
		}
	}
	// A label that somebody else gave the pod does not keep the manager from its own annotation.
	if err := mergePatch(t.Context(), account, odd, `{"metadata":{"annotations":{"joulevirt.io/profile":null}}}`); err != nil {
		t.Errorf("a pod with a label that is no product of the manager: %v", err)
	}
	wantForbidden(t, mergePatch(t.Context(), account, plain, `{"metadata":{"labels":{"joulevirt.io/serving":"standby"}}}`),
		"virt-launcher", `pod "plain"`)
	for patch, word := range map[string]string{
		`{"metadata":{"labels":{"app":"db"}}}`:                                       "labels",
		`{"metadata":{"labels":{"app":null}}}`:                                       "labels",
		`{"metadata":{"labels":{"new":"label"}}}`:                                    "labels",
		`{"metadata":{"labels":{"kubevirt.io":null}}}`:                               "labels",
		`{"metadata":{"labels":{"joulevirt.io/serving":"perhaps"}}}`:                 "active and standby",
		`{"metadata":{"annotations":{"kubevirt.io/domain":"b"}}}`:                    "annotations",
		`{"metadata":{"annotations":{"new":"annotation"}}}`:                          "annotations",
		`{"metadata":{"annotations":null}}`:                                          "annotations",
		`{"metadata":{"finalizers":["example.org/stay"]}}`:                           "finalizers",
		`{"spec":{"containers":[{"name":"compute","image":"example.org/another"}]}}`: "spec",
	} {
		wantForbidden(t, mergePatch(t.Context(), account, launcher, patch), word)
	}
}

func testServices(t *testing.T, c *cluster.Cluster, account client.Client, namespace string) {
	service := func(name string, owner *metav1.OwnerReference) *corev1.Service {
		out := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: corev1.ServiceSpec{
				Ports: []corev1.ServicePort{{Port: 80}}, Selector: map[string]string{"kubevirt.io": "virt-launcher"},
			},
		}
		if owner != nil {
			out.OwnerReferences = []metav1.OwnerReference{*owner}
		}
		return out
	}
	profile := &metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "VMNetworkProfile", Name: "web", UID: "1", Controller: ptr.To(true),
	}
	owned, foreign := service("owned", profile), service("foreign", nil)
	for _, err := range []error{account.Create(t.Context(), owned), c.Client().Create(t.Context(), foreign)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const selector = `{"spec":{"selector":{"app":"web"}}}`
	if err := mergePatch(t.Context(), account, owned, selector); err != nil {
		t.Errorf("change a Service of a profile: %v", err)
	}
	for _, spec := range []string{
		`{"spec":{"selector":{"kubevirt.io":null}}}`, `{"spec":{"selector":{"kubevirt.io":"virt-handler"}}}`,
		`{"spec":{"externalIPs":["192.0.2.1"]}}`, `{"spec":{"type":"NodePort"}}`, `{"spec":{"type":"LoadBalancer"}}`,
		`{"spec":{"type":"ExternalName","externalName":"example.org"}}`,
	} {
		wantForbidden(t, mergePatch(t.Context(), account, owned, spec), "ClusterIP")
	}
	wantForbidden(t, account.Create(t.Context(), service("ownerless", nil)), `Service "ownerless"`)
	wantForbidden(t, mergePatch(t.Context(), account, foreign, selector), `Service "foreign"`)
	takeOver := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":%q,"kind":"VMNetworkProfile","name":"web","uid":"1","controller":true}]}}`, profile.APIVersion)
	wantForbidden(t, mergePatch(t.Context(), account, foreign, takeOver), `Service "foreign"`)
	wantForbidden(t, mergePatch(t.Context(), account, owned, `{"metadata":{"ownerReferences":null}}`), `Service "owned"`)
	wantForbidden(t, account.Delete(t.Context(), foreign), `Service "foreign"`)
	if err := account.Delete(t.Context(), owned); err != nil {
		t.Errorf("delete a Service of a profile: %v", err)
	}
}
