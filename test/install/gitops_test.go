package install

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestGitOps applies what Git says again and again, as tools for GitOps do, while manager
// and agent run: nothing changes, nobody fights, and all becomes healthy.
func TestGitOps(t *testing.T) {
	w := newWorld(t)
	w.startKubelet()
	w.applyAll("kubectl")
	w.reported()
	w.eventually("policies are taken", w.policyReady("observe"))

	said, scripts := git(t), argoScripts(t)
	w.eventually("policies and profiles are what Git has waited for", func(ctx context.Context) error {
		for id, o := range w.applied(ctx, said) {
			if !strings.HasPrefix(o.GetAPIVersion(), "joulevirt.io/") {
				continue
			}
			// No VM has the labels of the samples, and only the preset that selects all
			// nodes has some.
			want, kstatus := "Progressing", status.InProgressStatus
			if id == "EnergyPolicy//observe" {
				want, kstatus = "Healthy", status.CurrentStatus
			}
			if got := argoHealth(t, scripts[o.GetKind()], o); got != want {
				return fmt.Errorf("%s is %s to Argo CD, want %s", id, got, want)
			}
			if got := kstatusOf(t, o); got != kstatus {
				return fmt.Errorf("%s is %s by kstatus, want %s", id, got, kstatus)
			}
		}
		return nil
	})
	w.runningAreHealthy(scripts)

	w.defaultsAgree()

	before := w.applied(t.Context(), said)
	w.applyAll("kubectl")
	w.unchanged(before, "the same manifests, again")
	w.applyAll("argocd-controller")
	w.unchanged(withManager(before, "argocd-controller"), "the same manifests, by another field manager")
	w.reported()
	again := w.applied(t.Context(), said)
	w.applyAll("argocd-controller")
	w.unchanged(again, "the same by the other, again")
}

// defaultsAgree has two field managers apply a policy that leaves defaults out, also within
// a list: neither is told of a conflict, nor changes anything. One of them alone may change
// the order of its sources, in which they are asked: the list is one by type to the API
// server, and keeps the order that it is given.
func (w *world) defaultsAgree() {
	w.Helper()
	said := &unstructured.Unstructured{}
	said.SetAPIVersion("joulevirt.io/v1alpha1")
	said.SetKind("EnergyPolicy")
	said.SetName("short")
	w.applySources("kubectl", "Prometheus", "RAPL")
	before := w.applied(w.Context(), map[string]*unstructured.Unstructured{"short": said})
	w.applySources("kustomize-controller", "Prometheus", "RAPL")
	w.unchanged(withManager(before, "kustomize-controller"), "a policy that leaves defaults out, by another field manager")
	w.check(w.Client().Delete(w.Context(), said))

	for _, order := range [][]string{{"Prometheus", "RAPL"}, {"RAPL", "Prometheus"}, {"Prometheus", "RAPL"}} {
		w.applySources("kubectl", order...)
		w.sourcesAre(said, order...)
	}
	w.check(w.Client().Delete(w.Context(), said))
}

// applySources applies policy short with sources in an order, as a field manager.
func (w *world) applySources(manager string, types ...string) {
	w.Helper()
	var policy strings.Builder
	policy.WriteString(`
apiVersion: joulevirt.io/v1alpha1
kind: EnergyPolicy
metadata: {name: short}
spec:
  mode: Observe
  nodeSelector: {matchLabels: {example.com/none: "true"}}
  energy:
    sources:
`)
	for _, source := range types {
		policy.WriteString("    - type: " + source + "\n")
		if source == "Prometheus" {
			policy.WriteString("      prometheus: {url: \"http://prometheus.example:9090\"}\n")
		}
	}
	file := filepath.Join(w.TempDir(), "policy.yaml")
	w.check(os.WriteFile(file, []byte(policy.String()), 0o600))
	_, err := w.RunKubectl(w.Context(), "apply", "--server-side", "--field-manager="+manager, "--filename", file)
	w.check(err)
}

func (w *world) sourcesAre(said *unstructured.Unstructured, types ...string) {
	w.Helper()
	now := w.applied(w.Context(), map[string]*unstructured.Unstructured{"short": said})["short"]
	sources, _, err := unstructured.NestedSlice(now.Object, "spec", "energy", "sources")
	w.check(err)
	var got []string
	for _, source := range sources {
		of, _ := source.(map[string]any)
		got = append(got, fmt.Sprint(of["type"]))
	}
	if diff := cmp.Diff(types, got); diff != "" {
		w.Errorf("sources are in another order than was applied, -applied +there:\n%s", diff)
	}
}

// manifests are what Git has.
func manifests() []string {
	return []string{root + "/config/default", root + "/policies", root + "/config/samples"}
}

func (w *world) applyAll(manager string) {
	w.Helper()
	for _, folder := range manifests() {
		_, err := w.RunKubectl(w.Context(), "apply", "--server-side", "--field-manager="+manager, "--kustomize", folder)
		w.check(err)
	}
}

// git is what the manifests say, by KIND/NAMESPACE/NAME.
func git(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for _, folder := range manifests() {
		for _, o := range kustomized(t, strings.TrimPrefix(folder, root+"/")) {
			all[o.GetKind()+"/"+o.GetNamespace()+"/"+o.GetName()] = o
		}
	}
	return all
}

// applied reads all that Git has from the API server.
func (w *world) applied(ctx context.Context, git map[string]*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	w.Helper()
	all := map[string]*unstructured.Unstructured{}
	for id, o := range git {
		now := &unstructured.Unstructured{}
		now.SetGroupVersionKind(o.GroupVersionKind())
		if err := w.Client().Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
			w.Fatalf("%s: %v", id, err)
		}
		all[id] = now
	}
	return all
}

// unchanged fails when an object is not as before, but for its status. What has no status
// that changes was not even written: its resourceVersion is the same.
func (w *world) unchanged(before map[string]*unstructured.Unstructured, after string) {
	w.Helper()
	now := w.applied(w.Context(), before)
	for _, id := range slices.Sorted(maps.Keys(before)) {
		was, is := withoutStatus(before[id]), withoutStatus(now[id])
		if was.GetResourceVersion() == "" {
			is.SetResourceVersion("")
		}
		if diff := cmp.Diff(was, is); diff != "" {
			w.Errorf("%s changes %s, -before +after:\n%s", after, id, diff)
		}
	}
}

func withoutStatus(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	if _, has := o.Object["status"]; has {
		delete(o.Object, "status")
		o.SetResourceVersion("")
	}
	fields := o.GetManagedFields()
	fields = slices.DeleteFunc(fields, func(f metav1.ManagedFieldsEntry) bool { return f.Subresource == "status" })
	// Times of entries, and their order, are no fight; who owns what is.
	for i := range fields {
		fields[i].Time = nil
	}
	slices.SortFunc(fields, func(x, y metav1.ManagedFieldsEntry) int {
		return strings.Compare(x.Manager+string(x.Operation), y.Manager+string(y.Operation))
	})
	o.SetManagedFields(fields)
	return o
}

// withManager is what objects are when another one owns the same fields beside kubectl.
func withManager(objects map[string]*unstructured.Unstructured, manager string) map[string]*unstructured.Unstructured {
	all := map[string]*unstructured.Unstructured{}
	for id, o := range objects {
		o = o.DeepCopy()
		fields := o.GetManagedFields()
		for _, f := range o.GetManagedFields() {
			if f.Manager == "kubectl" {
				f.Manager = manager
				fields = append(fields, f)
			}
		}
		o.SetManagedFields(fields)
		o.SetResourceVersion("")
		all[id] = o
	}
	return all
}

// runningAreHealthy looks at what manager and agent themselves write.
func (w *world) runningAreHealthy(scripts map[string]string) {
	w.Helper()
	w.eventually("the node's plan and report are healthy", func(ctx context.Context) error {
		for _, kind := range []string{"NodeReport", "NodePlan"} {
			o := &unstructured.Unstructured{}
			o.SetAPIVersion("joulevirt.io/v1alpha1")
			o.SetKind(kind)
			if err := w.Client().Get(ctx, client.ObjectKey{Name: nodeName}, o); err != nil {
				return err
			}
			if got := argoHealth(w.T, scripts[kind], o); got != "Healthy" {
				return fmt.Errorf("%s is %s to Argo CD: %v", kind, got, o.Object["status"])
			}
			if got := kstatusOf(w.T, o); got != status.CurrentStatus {
				return fmt.Errorf("%s is %s by kstatus", kind, got)
			}
		}
		return nil
	})
}
