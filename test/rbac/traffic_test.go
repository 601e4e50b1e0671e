package rbac

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
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
	t.Run("VMs", func(t *testing.T) { testVMs(t, c, account, shop.Name) })
	t.Run("Services", func(t *testing.T) { testServices(t, c, account, shop.Name) })
	t.Run("AdoptedServices", func(t *testing.T) { testAdoptedServices(t, c, account, shop.Name) })
}

func testVMs(t *testing.T, c *cluster.Cluster, account client.Client, namespace string) {
	vm := &virtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "mine"}},
		Spec:       virtv1.VirtualMachineInstanceSpec{Domain: virtv1.DomainSpec{Devices: virtv1.Devices{}}},
		Status:     virtv1.VirtualMachineInstanceStatus{Phase: virtv1.Running},
	}
	if err := c.Client().Create(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{`"active"`, "null"} {
		if err := mergePatch(t.Context(), account, vm, `{"metadata":{"labels":{"joulevirt.io/serving":`+value+`}}}`); err != nil {
			t.Errorf("label %s: %v", value, err)
		}
	}
	for patch, word := range map[string]string{
		`{"metadata":{"labels":{"joulevirt.io/serving":"standby"}}}`:                               "to active",
		`{"metadata":{"labels":{"app":"db"}}}`:                                                     "labels",
		`{"metadata":{"labels":{"app":null}}}`:                                                     "labels",
		`{"metadata":{"labels":{"new":"label"}}}`:                                                  "labels",
		`{"metadata":{"annotations":{"note":"ours"}}}`:                                             "only a label",
		`{"metadata":{"finalizers":["example.org/stay"]}}`:                                         "only a label",
		`{"spec":{"terminationGracePeriodSeconds":1}}`:                                             "only a label",
		`{"status":{"phase":"Failed"}}`:                                                            "only a label",
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"1"}]}}`: "only a label",
	} {
		wantForbidden(t, mergePatch(t.Context(), account, vm, patch), word)
	}
}

// testAdoptedServices shows what the manager may change of Services that no profile owns.
func testAdoptedServices(t *testing.T, c *cluster.Cluster, account client.Client, namespace string) {
	service := func(name string, annotations map[string]string) *corev1.Service {
		out := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"team": "shop"}, Annotations: annotations},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}, Selector: map[string]string{"app": "web"}},
		}
		if err := c.Client().Create(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	const (
		adopt   = `{"metadata":{"labels":{"joulevirt.io/adopted":"true"}}}`
		restore = `{"metadata":{"labels":{"joulevirt.io/adopted":null}},"spec":{"selector":{"joulevirt.io/serving":null}}}`
	)
	wantForbidden(t, mergePatch(t.Context(), account, service("silent", nil), adopt), "joulevirt.io/adopt")
	agreed := service("agreed", map[string]string{v1alpha1.AnnotationAdopt: "true"})
	selector := func(patch string) map[string]string {
		t.Helper()
		if err := mergePatch(t.Context(), account, agreed, patch); err != nil {
			t.Fatalf("%s: %v", patch, err)
		}
		if err := c.Client().Get(t.Context(), client.ObjectKeyFromObject(agreed), agreed); err != nil {
			t.Fatal(err)
		}
		return agreed.Spec.Selector
	}
	if got := selector(adopt); len(got) != 2 || got[v1alpha1.LabelServing] != v1alpha1.ServingActive {
		t.Errorf("adopted, it selects %v", got)
	}
	for patch, word := range map[string]string{
		`{"metadata":{"labels":{"team":null}}}`:                       "labels",
		`{"metadata":{"labels":{"new":"label"}}}`:                     "labels",
		`{"metadata":{"annotations":{"new":"annotation"}}}`:           "only the selector",
		`{"metadata":{"finalizers":["example.org/stay"]}}`:            "only the selector",
		`{"spec":{"selector":{"app":"db"}}}`:                          "selector",
		`{"spec":{"selector":{"app":null}}}`:                          "selector",
		`{"spec":{"selector":{"joulevirt.io/serving":"standby"}}}`:    "selector",
		`{"spec":{"externalIPs":["192.0.2.1"]}}`:                      "only the selector",
		`{"spec":{"type":"NodePort"}}`:                                "only the selector",
		`{"spec":{"ports":[{"port":81}]}}`:                            "only the selector",
		`{"spec":{"publishNotReadyAddresses":true}}`:                  "only the selector",
		`{"spec":{"sessionAffinity":"ClientIP"}}`:                     "only the selector",
		`{"spec":{"internalTrafficPolicy":"Local"}}`:                  "only the selector",
		`{"spec":{"trafficDistribution":"PreferClose"}}`:              "only the selector",
		`{"metadata":{"ownerReferences":[` + profileReference + `]}}`: "only the selector",
	} {
		wantForbidden(t, mergePatch(t.Context(), account, agreed, patch), word)
	}
	wantForbidden(t, account.Delete(t.Context(), agreed), `Service "agreed"`)
	// The owner takes the consent back: the manager can still restore the selector.
	if err := mergePatch(t.Context(), c.Client(), agreed, `{"metadata":{"annotations":{"joulevirt.io/adopt":null}}}`); err != nil {
		t.Fatal(err)
	}
	if got := selector(restore); len(got) != 1 || agreed.Labels[v1alpha1.LabelAdopted] != "" {
		t.Errorf("restored, it selects %v and has labels %v", got, agreed.Labels)
	}
	wantForbidden(t, mergePatch(t.Context(), account, agreed, adopt), "joulevirt.io/adopt")
}

const profileReference = `{"apiVersion":"joulevirt.io/v1alpha1","kind":"VMNetworkProfile","name":"web","uid":"1","controller":true}`

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
