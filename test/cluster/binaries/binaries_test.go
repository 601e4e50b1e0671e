package binaries

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// module writes a nested module like hack/controlplane/kubevirt whose manifests
// program prints text, and returns the folder above it.
func module(t *testing.T, text string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module example.test/kubevirt\n\ngo 1.24\n\nrequire kubevirt.io/kubevirt v1.98.7\n\n" +
			"replace kubevirt.io/kubevirt => ./upstream\n",
		"go.sum":            "",
		"upstream/go.mod":   "module kubevirt.io/kubevirt\n\ngo 1.24\n",
		"manifests/main.go": "package main\n\nfunc main() { print(" + `"` + text + `"` + ") }\n",
	} {
		path := filepath.Join(root, "kubevirt", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// journal is a progress writer for several goroutines.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), text)
}

func output(t *testing.T, program string) string {
	t.Helper()
	text, err := exec.Command(program).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEnsureBuildsOnce(t *testing.T) {
	log := &journal{}
	source := Source{Cache: t.TempDir(), Modules: module(t, "one"), Progress: log}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := source.Ensure(t.Context(), KubeVirtManifests); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := log.count("kubevirt-manifests: built in"); got != 1 {
		t.Errorf("built %d times, want once:\n%s", got, log.text.String())
	}
	paths, err := source.Ensure(t.Context(), KubeVirtManifests)
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, paths[KubeVirtManifests]); got != "one" {
		t.Errorf("the program prints %q", got)
	}
	if dir := filepath.Base(filepath.Dir(paths[KubeVirtManifests])); !strings.HasPrefix(dir, "kubevirt-v1.98.7-") {
		t.Errorf("cache folder %q is not named after module and version", dir)
	}
}

func TestEnsureSeesChangedSources(t *testing.T) {
	cache := t.TempDir()
	for _, text := range []string{"one", "two"} {
		paths, err := Source{Cache: cache, Modules: module(t, text)}.Ensure(t.Context(), KubeVirtManifests)
		if err != nil {
			t.Fatal(err)
		}
		if got := output(t, paths[KubeVirtManifests]); got != text {
			t.Errorf("the program prints %q, want %q", got, text)
		}
	}
}

func TestEnsureQuotesTheCompiler(t *testing.T) {
	source := Source{Cache: t.TempDir(), Modules: module(t, `" + undefined + "`)}
	_, err := source.Ensure(t.Context(), KubeVirtManifests)
	if err == nil || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("Ensure = %v, want the compiler's words", err)
	}
}

func TestEnsurePrefersAssets(t *testing.T) {
	assets := t.TempDir()
	etcd := filepath.Join(assets, "etcd")
	if err := os.WriteFile(etcd, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	paths, err := Source{Assets: assets, Cache: t.TempDir()}.Ensure(t.Context(), Etcd)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Paths{Etcd: etcd}, paths); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
}

func TestEnsureUnknown(t *testing.T) {
	if _, err := (Source{}).Ensure(t.Context(), "kubelet"); err == nil || !strings.Contains(err.Error(), `unknown component "kubelet"`) {
		t.Errorf("Ensure = %v", err)
	}
}

func TestFromEnvironment(t *testing.T) {
	for name, test := range map[string]struct {
		environment map[string]string
		want        Source
	}{
		"home": {map[string]string{"HOME": "/h"}, Source{Cache: "/h/.cache/joulevirt"}},
		"cache and assets": {
			map[string]string{"HOME": "/h", "XDG_CACHE_HOME": "/c", "KUBEBUILDER_ASSETS": "/a"},
			Source{Cache: "/c/joulevirt", Assets: "/a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := FromEnvironment(func(key string) string { return test.environment[key] }, nil)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("source (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequiredVersion(t *testing.T) {
	const gomod = "module m\n\nrequire k8s.io/a v1.2.3\n\nrequire (\n\tk8s.io/b v2.0.0 // indirect\n)\n"
	for module, want := range map[string]string{"k8s.io/a": "v1.2.3", "k8s.io/b": "v2.0.0"} {
		if got, err := requiredVersion(gomod, module); err != nil || got != want {
			t.Errorf("version of %s = %q, %v, want %q", module, got, err, want)
		}
	}
	if _, err := requiredVersion(gomod, "k8s.io/c"); err == nil {
		t.Error("a module that is not required: want an error")
	}
}

func TestKubernetesVersionVariables(t *testing.T) {
	flags := linkFlags(kubernetesVariables("v1.36.1"))
	for _, want := range []string{
		"-X k8s.io/component-base/version.gitVersion=v1.36.1",
		"-X k8s.io/component-base/version.gitMajor=1",
		"-X k8s.io/component-base/version.gitMinor=36",
		"-X k8s.io/client-go/pkg/version.gitVersion=v1.36.1",
	} {
		if !strings.Contains(flags, want) {
			t.Errorf("link flags %q lack %q", flags, want)
		}
	}
}
