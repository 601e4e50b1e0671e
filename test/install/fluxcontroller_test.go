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
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/internal/gomod"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

const (
	fluxManifests = root + "/config/gitops/flux/manifests.yaml"
	fluxChart     = root + "/config/gitops/flux/joulevirt.yaml"
	fluxNamespace = "flux-system"

	// sourceModule has the kinds of sources, of the release of Flux of the controller. Only
	// the controller's module is built: required beside it, this one would change what it is
	// built of.
	sourceModule = "github.com/fluxcd/source-controller@v1.9.5"
)

// flux is Flux's kustomize-controller on a world, and the test in the place of its
// source-controller: it serves artifacts, and says in the status of sources where they are.
type flux struct {
	*world
	// checkout is the folder that artifacts are made of: what a clone of the repository has,
	// as far as it is applied.
	checkout  string
	artifacts string
	url       string
	revision  string
	published int
	// requests for a look, by Kustomization.
	requests map[client.ObjectKey]int
}

// startFlux installs Flux's kinds and the sources of the samples, and starts the controller
// with the rights that Flux gives it.
func (w *world) startFlux() *flux {
	w.Helper()
	f := &flux{world: w, checkout: w.TempDir(), artifacts: w.TempDir(), requests: map[client.ObjectKey]int{}}
	for _, folder := range []string{"config", "policies"} {
		w.check(os.CopyFS(filepath.Join(f.checkout, folder), os.DirFS(filepath.Join(root, folder))))
	}
	server := httptest.NewServer(http.FileServer(http.Dir(f.artifacts)))
	w.Cleanup(server.Close)
	f.url = server.URL

	f.installFlux()
	for _, sample := range []string{fluxManifests, fluxChart} {
		w.check(w.Client().Create(w.Context(), f.sample(sample, "GitRepository/joulevirt")))
	}
	f.startController()
	return f
}

// installFlux installs what flux install does, as far as the controller needs it.
func (f *flux) installFlux() {
	f.Helper()
	controller, err := source().SourceDir(f.Context(), binaries.KustomizeController)
	f.check(err)
	sources, err := gomod.Dir(f.Context(), f.TempDir(), sourceModule)
	f.check(err)
	for _, file := range []string{
		filepath.Join(controller, "config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml"),
		filepath.Join(sources, "config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml"),
		filepath.Join(sources, "config/crd/bases/source.toolkit.fluxcd.io_ocirepositories.yaml"),
		filepath.Join(sources, "config/crd/bases/source.toolkit.fluxcd.io_buckets.yaml"),
		"testdata/flux.yaml",
	} {
		f.check(f.ApplyManifests(f.Context(), file))
	}
	f.eventually("the kinds of Flux are served", func(ctx context.Context) error {
		for _, kind := range []schema.GroupVersionKind{kustomizationKind(), gitRepositoryKind()} {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind)
			if err := f.Client().List(ctx, list); err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *flux) startController() {
	f.Helper()
	paths, err := source().Ensure(f.Context(), binaries.KustomizeController)
	f.check(err)
	_, kubeconfig, err := f.ServiceAccountConfig(f.Context(), fluxNamespace, "kustomize-controller", "")
	f.check(err)
	health, err := f.TakePort()
	f.check(err)
	home := f.TempDir()
	group := proc.NewGroup(home)
	f.Cleanup(group.Stop)
	// It empties the folder for temporary files, as if nobody else had one.
	process, err := group.Start("kustomize-controller", "/usr/bin/env", "TMPDIR="+home, "KUBECONFIG="+kubeconfig,
		paths[binaries.KustomizeController], "--metrics-addr=0", fmt.Sprintf("--health-addr=127.0.0.1:%d", health))
	f.check(err)
	f.Cleanup(func() {
		if text, err := os.ReadFile(process.Log()); err == nil && f.Failed() {
			f.Logf("the last of the log of kustomize-controller:\n%s", text[max(0, len(text)-6000):])
		}
	})
	f.check(process.WaitReady(f.Context(), func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/readyz", health), http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		return errors.Join(response.Body.Close(), statusOK(response))
	}))
}

func statusOK(response *http.Response) error {
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", response.Request.URL, response.Status)
	}
	return nil
}

// sample is an object, by KIND/NAME, of a file of the samples.
func (f *flux) sample(file, id string) *unstructured.Unstructured {
	f.Helper()
	text, err := os.ReadFile(file)
	f.check(err)
	o := objects(f.T, string(text))[id]
	if o == nil {
		f.Fatalf("%s has no %s", file, id)
	}
	return o
}

// push replaces files of the checkout, by path, and has all sources be at what is there then.
// An empty text removes a file.
func (f *flux) push(files map[string]string) {
	f.Helper()
	for path, text := range files {
		path = filepath.Join(f.checkout, path)
		if text == "" {
			f.check(os.Remove(path))
			continue
		}
		f.check(os.MkdirAll(filepath.Dir(path), 0o700))
		f.check(os.WriteFile(path, []byte(text), 0o600))
	}
	f.published++
	f.revision = fmt.Sprintf("main@sha1:%040x", f.published)
	name := strconv.Itoa(f.published) + ".tar.gz"
	digest, size, err := pack(f.checkout, filepath.Join(f.artifacts, name))
	f.check(err)

	sources := &unstructured.UnstructuredList{}
	sources.SetGroupVersionKind(gitRepositoryKind())
	f.check(f.Client().List(f.Context(), sources))
	for i := range sources.Items {
		o := &sources.Items[i]
		now := metav1.Now().UTC().Format(time.RFC3339)
		o.Object["status"] = map[string]any{
			"observedGeneration": o.GetGeneration(),
			"artifact": map[string]any{
				"url": f.url + "/" + name, "path": name, "revision": f.revision, "digest": digest, "size": size, "lastUpdateTime": now,
			},
			"conditions": []any{map[string]any{
				"type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored artifact", "lastTransitionTime": now,
			}},
		}
		f.check(f.Client().Status().Update(f.Context(), o))
	}
}

// pack writes an archive of a folder, as source-controller makes them, and returns its digest
// and its size in bytes.
func pack(folder, file string) (digest string, size int64, err error) {
	archive, err := os.Create(file)
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	hash := sha256.New()
	compressed := gzip.NewWriter(io.MultiWriter(archive, hash))
	files := tar.NewWriter(compressed)
	if err := errors.Join(files.AddFS(os.DirFS(folder)), files.Close(), compressed.Close()); err != nil {
		return "", 0, err
	}
	info, err := archive.Stat()
	if err != nil {
		return "", 0, err
	}
	return fmt.Sprintf("sha256:%x", hash.Sum(nil)), info.Size(), nil
}

func kustomizationKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}
}

func gitRepositoryKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"}
}

// state is a condition of a Kustomization, at what revision of its source and at which of the
// requests for a look it is.
type state struct {
	Status, Reason, Message, Revision, Request string
}

func (f *flux) state(ctx context.Context, k client.ObjectKey, condition string) (state, error) {
	now := kustomization(k)
	if err := f.Client().Get(ctx, k, now); err != nil {
		return state{}, err
	}
	status, _, err := unstructured.NestedMap(now.Object, "status")
	if err != nil {
		return state{}, err
	}
	text := func(of map[string]any, field string) string { s, _ := of[field].(string); return s }
	s := state{Revision: text(status, "lastAttemptedRevision"), Request: text(status, "lastHandledReconcileAt")}
	conditions, _ := status["conditions"].([]any)
	at := slices.IndexFunc(conditions, func(c any) bool {
		of, _ := c.(map[string]any)
		return text(of, "type") == condition
	})
	if at >= 0 {
		of, _ := conditions[at].(map[string]any)
		s.Status, s.Reason, s.Message = text(of, "status"), text(of, "reason"), text(of, "message")
	}
	return s, nil
}

// becomes waits until Flux has said of a Kustomization, at what was pushed last and at the
// last request, whether it is Ready, and returns its words. It is an error when that is
// something else than wanted.
func (f *flux) becomes(k client.ObjectKey, want metav1.ConditionStatus) string {
	f.Helper()
	var is state
	f.eventually(fmt.Sprintf("Flux has looked at %s", k), func(ctx context.Context) error {
		var err error
		if is, err = f.state(ctx, k, "Ready"); err != nil {
			return err
		}
		if is.Revision != f.revision || is.Request != f.request(k) || is.Status != "True" && is.Status != "False" {
			return fmt.Errorf("it is at %+v, want revision %s and request %q", is, f.revision, f.request(k))
		}
		return nil
	})
	if is.Status != string(want) {
		f.Fatalf("Ready of %s is %s, want %s: %s: %s", k, is.Status, want, is.Reason, is.Message)
	}
	return is.Message
}

// request is the last one, as Flux repeats it.
func (f *flux) request(k client.ObjectKey) string {
	if f.requests[k] == 0 {
		return ""
	}
	return strconv.Itoa(f.requests[k])
}

// reconcile asks for a look at a Kustomization, as flux reconcile does.
func (f *flux) reconcile(k client.ObjectKey) {
	f.Helper()
	f.requests[k]++
	f.patch(k, fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, f.request(k)))
}

// patch merges into a Kustomization.
func (f *flux) patch(k client.ObjectKey, patch string) {
	f.Helper()
	f.check(f.Client().Patch(f.Context(), kustomization(k), client.RawPatch(types.MergePatchType, []byte(patch))))
}

func kustomization(k client.ObjectKey) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kustomizationKind())
	o.SetNamespace(k.Namespace)
	o.SetName(k.Name)
	return o
}
