// Package binaries finds or builds the programs of the test cluster: Kubernetes
// with its kubelet, containerd, KubeVirt and Contour, and the Helm and Flux
// that install the product. They are built from the nested Go modules under
// hack/controlplane, which pin their versions, into a cache that all clones and
// test binaries of one user share.
package binaries

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/joulevirt/joulevirt/test/env/steps"
	"github.com/joulevirt/joulevirt/test/internal/gomod"
)

// Source says where programs come from. Use FromEnvironment, or fill in the
// fields.
type Source struct {
	// Assets is a folder with ready-made programs (the value of
	// KUBEBUILDER_ASSETS); what it holds is taken from there. May be empty.
	Assets string
	// Cache is where built programs are kept.
	Cache string
	// Modules is the folder of the nested modules, hack/controlplane. Empty:
	// found by walking up from the working directory.
	Modules string
	// Versions has, of nested modules, the folders beside them whose go.mod pins other
	// versions. See Other.
	Versions map[string]string
	// Steps shows what is built. May be nil.
	Steps *steps.Reporter
}

// FromEnvironment returns the Source that a program's environment asks for:
// KUBEBUILDER_ASSETS, and the cache below XDG_CACHE_HOME or HOME. Steps of
// builds are shown on out, which may be nil. Call it from main or TestMain with
// os.Getenv.
func FromEnvironment(getenv func(string) string, out io.Writer) Source {
	cache := getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = filepath.Join(getenv("HOME"), ".cache")
	}
	if out == nil {
		out = io.Discard
	}
	cache = filepath.Join(cache, "joulevirt")
	return Source{Assets: getenv("KUBEBUILDER_ASSETS"), Cache: cache, Steps: steps.New(out, cache)}
}

// Folders beside those of the usual versions, see Other.
const (
	// NewestKubeVirt has three modules that no proxy has replaced: virt-launcher makes no
	// backups, and virt-controller knows no templates of VMs.
	NewestKubeVirt = "kubevirt-newest"
	// OldestKubernetes is the oldest that the documentation promises.
	OldestKubernetes = "kubernetes-oldest"
)

// Other returns the source with the versions of a folder in place of the usual ones.
func (s Source) Other(folder string) Source {
	module, _, _ := strings.Cut(folder, "-")
	s.Versions = map[string]string{module: folder}
	return s
}

// pins returns the folder whose go.mod has the versions of a nested module.
func (s Source) pins(module string) (string, error) {
	root, err := s.modulesRoot()
	return filepath.Join(root, cmp.Or(s.Versions[module], module)), err
}

// Paths tells where each program is.
type Paths map[Component]string

// Ensure returns the paths of the components, building those that are neither
// among the assets nor in the cache. A cold build of everything takes minutes;
// processes that ask at the same time build once.
func (s Source) Ensure(ctx context.Context, components ...Component) (Paths, error) {
	paths := Paths{}
	missing := map[string][]Component{}
	known := recipes()
	for _, component := range components {
		r, ok := known[component]
		if !ok {
			return nil, fmt.Errorf("unknown component %q: want one of %v", component, All())
		}
		if path := filepath.Join(s.Assets, string(component)); s.Assets != "" && isProgram(path) {
			paths[component] = path
			continue
		}
		missing[r.module] = append(missing[r.module], component)
	}
	for _, module := range slices.Sorted(maps.Keys(missing)) {
		built, err := s.ensureModule(ctx, module, missing[module])
		if err != nil {
			return nil, err
		}
		maps.Copy(paths, built)
	}
	return paths, nil
}

// SourceDir returns the folder of the upstream sources that a component is built
// from, for what comes with them, such as manifests.
func (s Source) SourceDir(ctx context.Context, component Component) (string, error) {
	r, ok := recipes()[component]
	if !ok {
		return "", fmt.Errorf("unknown component %q: want one of %v", component, All())
	}
	pins, err := s.pins(r.module)
	if err != nil {
		return "", err
	}
	upstream, _ := moduleVersion(r.module)
	return gomod.Dir(ctx, pins, upstream)
}

// Version returns the version of the upstream module that a component is built from.
func (s Source) Version(component Component) (string, error) {
	r, ok := recipes()[component]
	if !ok {
		return "", fmt.Errorf("unknown component %q: want one of %v", component, All())
	}
	pins, err := s.pins(r.module)
	if err != nil {
		return "", err
	}
	gomod, err := os.ReadFile(filepath.Join(pins, "go.mod"))
	if err != nil {
		return "", err
	}
	upstream, _ := moduleVersion(r.module)
	return requiredVersion(string(gomod), upstream)
}

// Checkout returns the folder of the project's own sources.
func (s Source) Checkout() (string, error) {
	root, err := s.modulesRoot()
	if err != nil {
		return "", err
	}
	return filepath.Abs(filepath.Join(root, "..", ".."))
}

// ensureModule returns the paths of components of one nested module, building
// what its cache folder lacks.
func (s Source) ensureModule(ctx context.Context, module string, wanted []Component) (Paths, error) {
	root, err := s.modulesRoot()
	if err != nil {
		return nil, err
	}
	pins, err := s.pins(module)
	if err != nil {
		return nil, err
	}
	b, err := newBuild(module, filepath.Join(root, module), pins, s.Cache, s.Steps)
	if err != nil {
		return nil, fmt.Errorf("prepare the build of %s: %w", module, err)
	}
	paths := Paths{}
	var missing []Component
	for _, component := range wanted {
		paths[component] = b.path(component)
		if !isProgram(b.path(component)) {
			missing = append(missing, component)
		}
	}
	if len(missing) == 0 {
		return paths, nil
	}
	if err := b.run(ctx, missing); err != nil {
		return nil, fmt.Errorf("build %v from %s: %w", missing, b.source, err)
	}
	return paths, nil
}

// modulesRoot finds hack/controlplane in this folder or one above it.
func (s Source) modulesRoot() (string, error) {
	if s.Modules != "" {
		return s.Modules, nil
	}
	here, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find hack/controlplane: %w", err)
	}
	for dir := here; ; dir = filepath.Dir(dir) {
		root := filepath.Join(dir, "hack", "controlplane")
		if info, err := os.Stat(filepath.Join(root, "kubernetes", "go.mod")); err == nil && info.Mode().IsRegular() {
			return root, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no hack/controlplane above %s: run from within a clone of the project", here)
		}
	}
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
