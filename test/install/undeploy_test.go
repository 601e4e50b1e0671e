package install

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/dataplane/gatewaycrds"
)

// TestTheRemovalIsTheCharts compares what make undeploy runs with what helm uninstall does.
func TestTheRemovalIsTheCharts(t *testing.T) {
	h := newHelm(t, "")
	want := kustomized(t, "config/removal")
	got := objects(t, h.must(t, "template", release, chart, "--namespace", namespace, "--show-only", "templates/removal.yaml"))
	for _, o := range got {
		o.SetAnnotations(nil)
		withoutHelm(o)
	}
	for _, all := range []map[string]*unstructured.Unstructured{want, got} {
		for _, o := range all {
			o.SetLabels(nil) // of what is gone right after it ends
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-config/removal +helm:\n%s", diff)
	}
}

// TestUndeploy installs the manifests, and removes them while a VM is on standby, once a route
// that somebody made names no Service of a profile any more.
func TestUndeploy(t *testing.T) {
	w := newWorld(t)
	w.check(gatewaycrds.Install(t.Context(), w.Cluster, gatewaycrds.Standard))
	w.seedVMs()
	const member = "jv-bare-web-0-12345678"
	w.routeTo("web")
	before, said := w.everything(), w.contents()
	w.startKubelet()

	w.check(w.makes("deploy"))
	_, err := w.RunKubectl(t.Context(), "scale", "deployment/joulevirt-manager", "--namespace="+namespace, "--replicas=1")
	w.check(err)
	w.reported()
	w.steer()
	w.memberService(member)
	w.routeTo(member)

	if err := w.makes("undeploy"); err == nil || !strings.Contains(err.Error(), "the product stays") {
		t.Fatalf("%v, want that it was held up by a route", err)
	}
	// There is no kubelet to ask for the pod's log.
	logged, err := os.ReadFile(filepath.Join(w.Dir(), "removal.log"))
	w.check(err)
	if !strings.Contains(string(logged), "HTTPRoute shop/bare has Services of VMNetworkProfile shop/routed") {
		t.Errorf("the removal does not say which route holds it up: %s", logged)
	}
	w.check(w.Client().Get(t.Context(), client.ObjectKey{Name: "steer"}, &v1alpha1.EnergyPolicy{}))
	w.check(w.Client().Get(t.Context(), client.ObjectKey{Namespace: shop, Name: "routed"}, &v1alpha1.VMNetworkProfile{}))

	w.routeTo("web")
	w.check(w.makes("undeploy"))
	w.eventually("nothing is left", func(context.Context) error { return w.nothingLeft(before) })
	w.served()
	w.sayAgain(said)

	t.Run("again, when there is nothing", func(*testing.T) { w.check(w.makes("undeploy")) })
}

// nothingLeft is an error when there is something that was not before, but for what begins
// with one of the exceptions. The namespace may be gone, in which Kubernetes has objects.
func (w *world) nothingLeft(before []string, except ...string) error {
	w.Helper()
	left := slices.DeleteFunc(w.everything(), func(o string) bool {
		return slices.Contains(before, o) || slices.ContainsFunc(except, func(prefix string) bool { return strings.HasPrefix(o, prefix) })
	})
	if len(left) > 0 {
		return fmt.Errorf("left: %v", left)
	}
	return nil
}

// sayAgain waits until the objects that are still there say what they said before. Those of the
// product's namespace are gone with it.
func (w *world) sayAgain(before map[string]map[string]any) {
	w.Helper()
	maps.DeleteFunc(before, func(id string, _ map[string]any) bool {
		return strings.Contains(id, "/"+namespace+"/") || strings.HasSuffix(id, "/"+namespace)
	})
	w.eventually("all that is not the product's is as it was", func(context.Context) error {
		if diff := cmp.Diff(before, w.contents()); diff != "" {
			return fmt.Errorf("-before +now:\n%s", diff)
		}
		return nil
	})
}

// makes runs make against the world's cluster. The error has what it said.
func (w *world) makes(target string) error {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), "make", target, "KUBECTL="+w.Kubectl()+" --kubeconfig="+w.Kubeconfig())
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("make %s: %w: %s", target, err, out)
	}
	return nil
}

// routeTo has a route of somebody, which may be there, name a Service.
func (w *world) routeTo(service string) {
	w.Helper()
	route := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"rules": []any{map[string]any{"backendRefs": []any{map[string]any{"name": service, "port": int64(80)}}}},
	}}}
	route.SetGroupVersionKind(schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: "v1", Kind: "HTTPRoute"})
	route.SetNamespace(shop)
	route.SetName("bare")
	w.check(w.Client().Apply(w.Context(), client.ApplyConfigurationFromUnstructured(route), client.FieldOwner("gitops"), client.ForceOwnership))
}

// memberService makes a profile and a Service as the manager makes it for a member.
func (w *world) memberService(name string) {
	w.Helper()
	profile := &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "routed"},
		Spec:       v1alpha1.VMNetworkProfileSpec{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"role": "none"}}},
	}
	w.check(w.Client().Create(w.Context(), profile))
	w.check(w.Client().Create(w.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shop, Name: name, Labels: map[string]string{"joulevirt.io/group": "routed"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "VMNetworkProfile", Name: profile.Name, UID: profile.UID, Controller: ptr.To(true),
			}},
		},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}, Selector: map[string]string{"kubevirt.io": "virt-launcher"}},
	}))
}
