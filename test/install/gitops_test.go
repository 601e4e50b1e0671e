//go:build e2e

package install

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/internal/gomod"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

const (
	fluxNamespace = "flux-system"
	// sourceModule has the kinds of sources, of the same release of Flux as the controller.
	sourceModule = "github.com/fluxcd/source-controller@v1.9.5"
)

// flux is Flux's kustomize-controller. The test stands in for its source-controller: it serves
// an archive of the repository and writes the status of sources.
type flux struct {
	*world
	requests int
}

// TestFlux has Flux's controller install the product and the presets from the samples in
// config/gitops/flux, correct drift, and remove all again.
func TestFlux(t *testing.T) {
	w := newWorld(t)
	f := &flux{world: w}
	f.install()
	before := w.everything()

	product := f.apply("config/gitops/flux/manifests.yaml", "Kustomization/joulevirt")
	f.reconciled(product)
	w.reported()
	presets := f.apply("config/gitops/flux/policies.yaml", "Kustomization/joulevirt-policies")
	f.reconciled(presets)
	w.eventually("the manager has seen a preset", w.policySeen("observe"))

	// Nothing is written that is already as the manifests say; a change by hand is reverted.
	deployment := &unstructured.Unstructured{}
	deployment.SetAPIVersion("apps/v1")
	deployment.SetKind("Deployment")
	key := client.ObjectKey{Namespace: namespace, Name: "joulevirt-manager"}
	w.check(w.Client().Get(t.Context(), key, deployment))
	generation := deployment.GetGeneration()
	policy := &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "observe"}}
	w.check(w.Client().Patch(t.Context(), policy, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"priority":-7}}`))))
	f.reconcileAgain(product)
	f.reconcileAgain(presets)
	w.check(w.Client().Get(t.Context(), key, deployment))
	w.check(w.Client().Get(t.Context(), client.ObjectKeyFromObject(policy), policy))
	if deployment.GetGeneration() != generation || policy.Spec.Priority == -7 {
		t.Errorf("generation of the Deployment %d, want %d; priority of the policy %d", deployment.GetGeneration(), generation, policy.Spec.Priority)
	}

	for _, k := range []*unstructured.Unstructured{presets, product} {
		w.check(w.Client().Delete(t.Context(), k))
		w.eventually("Flux has deleted what it applied", func(ctx context.Context) error {
			if err := w.Client().Get(ctx, client.ObjectKeyFromObject(k), k); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s exists: %w", k.GetName(), err)
			}
			return nil
		})
	}
	// Kubernetes keeps requests for certificates for an hour.
	w.nothingLeft(before, "certificatesigningrequests/certificates.k8s.io//")
}

// install installs Flux's kinds and controller, and the sources of the samples.
func (f *flux) install() {
	f.Helper()
	controller, err := source().SourceDir(f.Context(), binaries.KustomizeController)
	f.check(err)
	sources, err := gomod.Dir(f.Context(), f.TempDir(), sourceModule)
	f.check(err)
	bases := filepath.Join(sources, "config/crd/bases/source.toolkit.fluxcd.io_")
	for _, file := range []string{
		filepath.Join(controller, "config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml"),
		bases + "gitrepositories.yaml", bases + "ocirepositories.yaml", bases + "buckets.yaml", "testdata/flux.yaml",
	} {
		f.check(f.ApplyManifests(f.Context(), file))
	}
	archives := f.TempDir()
	status := f.pack(filepath.Join(archives, "repository.tar.gz"))
	server := httptest.NewServer(http.FileServer(http.Dir(archives)))
	f.Cleanup(server.Close)
	status["url"] = server.URL + "/repository.tar.gz"
	for _, sample := range []string{"manifests", "joulevirt"} {
		o := f.apply("config/gitops/flux/"+sample+".yaml", "GitRepository/joulevirt")
		o.Object["status"] = map[string]any{
			"observedGeneration": o.GetGeneration(), "artifact": status,
			"conditions": []any{map[string]any{
				"type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored artifact", "lastTransitionTime": status["lastUpdateTime"],
			}},
		}
		f.check(f.Client().Status().Update(f.Context(), o))
	}
	f.startController()
}

func (f *flux) startController() {
	f.Helper()
	paths, err := source().Ensure(f.Context(), binaries.KustomizeController)
	f.check(err)
	_, kubeconfig, err := f.ServiceAccountConfig(f.Context(), fluxNamespace, "kustomize-controller", "")
	f.check(err)
	home := f.TempDir() // it empties the folder of temporary files
	group := proc.NewGroup(home)
	f.Cleanup(group.Stop)
	_, err = group.Start("kustomize-controller", "/usr/bin/env", "TMPDIR="+home, "KUBECONFIG="+kubeconfig,
		paths[binaries.KustomizeController], "--metrics-addr=0", "--health-addr=0")
	f.check(err)
}

// pack archives config/ and policies/ and returns the status of a source that has them.
func (f *flux) pack(file string) map[string]any {
	f.Helper()
	checkout := f.TempDir()
	for _, folder := range []string{"config", "policies"} {
		f.check(os.CopyFS(filepath.Join(checkout, folder), os.DirFS(filepath.Join(root, folder))))
	}
	archive, err := os.Create(file)
	f.check(err)
	hash := sha256.New()
	compressed := gzip.NewWriter(io.MultiWriter(archive, hash))
	files := tar.NewWriter(compressed)
	f.check(errors.Join(files.AddFS(os.DirFS(checkout)), files.Close(), compressed.Close()))
	info, err := archive.Stat()
	f.check(errors.Join(err, archive.Close()))
	return map[string]any{
		"path": "repository.tar.gz", "revision": fmt.Sprintf("main@sha1:%040x", 1), "digest": fmt.Sprintf("sha256:%x", hash.Sum(nil)),
		"size": info.Size(), "lastUpdateTime": metav1.Now().UTC().Format(time.RFC3339),
	}
}

// apply creates an object of a sample, by KIND/NAME, as soon as its kind is served.
func (f *flux) apply(file, id string) *unstructured.Unstructured {
	f.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	f.check(err)
	o := objects(f.T, string(text))[id]
	if o == nil {
		f.Fatalf("%s has no %s", file, id)
	}
	f.eventually(id+" is created", func(ctx context.Context) error { return f.Client().Create(ctx, o) })
	return o
}

// reconciled waits until Flux has finished with a Kustomization at the last request.
func (f *flux) reconciled(k *unstructured.Unstructured) {
	f.Helper()
	f.eventually("Flux has applied "+k.GetName(), func(ctx context.Context) error {
		if err := f.Client().Get(ctx, client.ObjectKeyFromObject(k), k); err != nil {
			return err
		}
		request, _, _ := unstructured.NestedString(k.Object, "status", "lastHandledReconcileAt")
		conditions, _, _ := unstructured.NestedSlice(k.Object, "status", "conditions")
		if request == k.GetAnnotations()["reconcile.fluxcd.io/requestedAt"] {
			for _, c := range conditions {
				if of, _ := c.(map[string]any); of["type"] == "Ready" && of["status"] == "True" {
					return nil
				}
			}
		}
		return fmt.Errorf("its status is %v", k.Object["status"])
	})
}

// reconcileAgain requests a reconciliation, as flux reconcile does.
func (f *flux) reconcileAgain(k *unstructured.Unstructured) {
	f.Helper()
	f.requests++
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"%d"}}}`, f.requests)
	f.check(f.Client().Patch(f.Context(), k, client.RawPatch(types.MergePatchType, []byte(patch))))
	f.reconciled(k)
}
