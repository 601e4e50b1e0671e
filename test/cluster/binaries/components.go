package binaries

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Component names a program of the test cluster; its value is the program's
// file name.
type Component string

// The programs of the test cluster.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	Kubectl           Component = "kubectl"
	KubeProxy         Component = "kube-proxy"
	Kubelet           Component = "kubelet"
	VirtAPI           Component = "virt-api"
	VirtController    Component = "virt-controller"
	VirtHandler       Component = "virt-handler"
	VirtLauncher      Component = "virt-launcher"
	// The small programs that virt-handler and virt-launcher run.
	VirtLauncherMonitor Component = "virt-launcher-monitor"
	VirtChroot          Component = "virt-chroot"
	VirtProbe           Component = "virt-probe"
	VirtTail            Component = "virt-tail"
	VirtFreezer         Component = "virt-freezer"
	ContainerDisk       Component = "container-disk"
	// LibvirtHookClient is what libvirt tells virt-launcher by, of the newest KubeVirt alone.
	LibvirtHookClient Component = "libvirt-hook-client"
	// Virtqemud starts libvirt under the name that KubeVirt knows.
	Virtqemud Component = "virtqemud"
	// KubeVirtManifests prints the objects that virt-operator would install.
	KubeVirtManifests Component = "kubevirt-manifests"
	// Containerd, its shim and its client, and the program of a pod's sandbox.
	Containerd     Component = "containerd"
	ContainerdShim Component = "containerd-shim-runc-v2"
	Ctr            Component = "ctr"
	Pause          Component = "pause"
	Contour        Component = "contour"
	// Helm is the program, which tests of the chart run.
	Helm Component = "helm"
	// KustomizeController is Flux's, which applies what a source has.
	KustomizeController Component = "kustomize-controller"
	// ArgoCDSync applies an object as Argo CD does, and finds differences as it does.
	ArgoCDSync Component = "argocd-sync"
)

// recipe says how a component is built.
type recipe struct {
	// module is the folder, below hack/controlplane, of the nested Go module
	// that pins the component.
	module string
	// pkg is the main package, as `go build` in that folder takes it, or a
	// program's only file of C: in that folder when it starts with "./", else
	// in the sources of the module that the component comes from.
	pkg string
	// packages are the Debian packages that a program of C, or a Go program
	// that is linked with a C library, is built with.
	packages []string
	// only is the folder of versions that have the program. Empty: all do.
	only string
}

// isC returns true for a program of one file of C.
func (r recipe) isC() bool { return filepath.Ext(r.pkg) == ".c" }

// executable is the name that go build gives a program of Go, by its package's path.
func (r recipe) executable(source string) string {
	pkg := r.pkg
	if pkg == "." {
		pkg = source
	}
	if isVersion := regexp.MustCompile(`^v[0-9]+$`).MatchString; isVersion(path.Base(pkg)) {
		pkg = path.Dir(pkg)
	}
	return path.Base(pkg)
}

// recipes lists every component.
func recipes() map[Component]recipe {
	compiler := []string{"gcc", "libc6-dev"}
	libvirt := append([]string{"libvirt-dev", "pkg-config"}, compiler...)
	return map[Component]recipe{
		Etcd:              {module: "kubernetes", pkg: "go.etcd.io/etcd/server/v3"},
		APIServer:         {module: "kubernetes", pkg: "k8s.io/kubernetes/cmd/kube-apiserver"},
		ControllerManager: {module: "kubernetes", pkg: "k8s.io/kubernetes/cmd/kube-controller-manager"},
		Scheduler:         {module: "kubernetes", pkg: "k8s.io/kubernetes/cmd/kube-scheduler"},
		Kubectl:           {module: "kubernetes", pkg: "k8s.io/kubernetes/cmd/kubectl"},
		KubeProxy:         {module: "kubernetes", pkg: "k8s.io/kubernetes/cmd/kube-proxy"},
		Kubelet:           {module: "kubernetes", pkg: "k8s.io/kubernetes/cmd/kubelet"},

		VirtAPI:             {module: "kubevirt", pkg: "kubevirt.io/kubevirt/cmd/virt-api"},
		VirtController:      {module: "kubevirt", pkg: "kubevirt.io/kubevirt/cmd/virt-controller"},
		VirtHandler:         {module: "kubevirt", pkg: "kubevirt.io/kubevirt/cmd/virt-handler", packages: libvirt},
		VirtLauncher:        {module: "kubevirt", pkg: "kubevirt.io/kubevirt/cmd/virt-launcher", packages: libvirt},
		VirtLauncherMonitor: {module: "kubevirt", pkg: "kubevirt.io/kubevirt/cmd/virt-launcher-monitor"},
		VirtChroot:          {module: "kubevirt", pkg: "kubevirt.io/kubevirt/cmd/virt-chroot"},
		VirtProbe:           {module: "kubevirt", pkg: "kubevirt.io/kubevirt/cmd/virt-probe"},
		VirtTail:            {module: "kubevirt", pkg: "kubevirt.io/kubevirt/cmd/virt-tail"},
		VirtFreezer:         {module: "kubevirt", pkg: "kubevirt.io/kubevirt/cmd/virt-freezer"},
		ContainerDisk:       {module: "kubevirt", pkg: "cmd/container-disk-v2alpha/main.c", packages: compiler},
		LibvirtHookClient:   {module: "kubevirt", pkg: "kubevirt.io/kubevirt/cmd/virt-launcher/libvirt-hook-client", only: NewestKubeVirt},
		Virtqemud:           {module: "kubevirt", pkg: "./virtqemud/main.c", packages: compiler},
		KubeVirtManifests:   {module: "kubevirt", pkg: "./manifests"},

		Containerd:     {module: "containerd", pkg: "github.com/containerd/containerd/v2/cmd/containerd"},
		ContainerdShim: {module: "containerd", pkg: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"},
		Ctr:            {module: "containerd", pkg: "github.com/containerd/containerd/v2/cmd/ctr"},
		Pause:          {module: "containerd", pkg: "./pause/main.c", packages: compiler},

		Contour:             {module: "contour", pkg: "github.com/projectcontour/contour/cmd/contour"},
		Helm:                {module: "helm", pkg: "helm.sh/helm/v4/cmd/helm"},
		KustomizeController: {module: "flux", pkg: "github.com/fluxcd/kustomize-controller"},
		ArgoCDSync:          {module: "argocd", pkg: "."},
	}
}

// All returns every component of the usual versions, sorted by name.
func All() []Component {
	return componentsOf(func(r recipe) bool { return r.only == "" })
}

func componentsOf(wanted func(recipe) bool) []Component {
	all := recipes()
	maps.DeleteFunc(all, func(_ Component, r recipe) bool { return !wanted(r) })
	return slices.Sorted(maps.Keys(all))
}

// Of returns the components whose versions a folder such as NewestKubeVirt has.
func Of(folder string) []Component {
	module, _, _ := strings.Cut(folder, "-")
	return componentsOf(func(r recipe) bool { return r.module == module && (r.only == "" || r.only == folder) })
}

// moduleVersion returns the Go module whose version names the nested module,
// and the link-time variables that carry a version. Without them the programs
// call themselves v0.0.0-master, which clients that compare versions refuse.
func moduleVersion(module string) (upstream string, variables func(version string) []string) {
	none := func(string) []string { return nil }
	switch module {
	case "argocd":
		return "github.com/argoproj/argo-cd/gitops-engine", none
	case "kubernetes":
		return "k8s.io/kubernetes", kubernetesVariables
	case "kubevirt":
		return "kubevirt.io/kubevirt", kubevirtVariables
	case "containerd":
		return "github.com/containerd/containerd/v2", containerdVariables
	case "contour":
		return "github.com/projectcontour/contour", contourVariables
	case "helm":
		return "helm.sh/helm/v4", helmVariables
	default: // flux
		return "github.com/fluxcd/kustomize-controller", none
	}
}

func kubernetesVariables(version string) []string {
	var all []string
	numbers := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		all = append(all, pkg+".gitVersion="+version, pkg+".gitTreeState=clean")
		if len(numbers) == 3 {
			all = append(all, pkg+".gitMajor="+numbers[0], pkg+".gitMinor="+numbers[1])
		}
	}
	return all
}

func kubevirtVariables(version string) []string {
	return []string{
		"kubevirt.io/client-go/version.gitVersion=" + version,
		"kubevirt.io/client-go/version.gitTreeState=clean",
	}
}

func containerdVariables(version string) []string {
	return []string{"github.com/containerd/containerd/v2/version.Version=" + version}
}

func contourVariables(version string) []string {
	return []string{"github.com/projectcontour/contour/internal/build.Version=" + version}
}

func helmVariables(version string) []string {
	return []string{"helm.sh/helm/v4/internal/version.version=" + version}
}

// linkFlags joins link-time variables to the value of -ldflags. Symbols are
// stripped: the programs are only run, and weigh a third less.
func linkFlags(variables []string) string {
	flags := "-s -w"
	for _, v := range variables {
		flags += " -X " + v
	}
	return flags
}

// requiredVersion finds the version of a module in the text of a go.mod.
func requiredVersion(gomod, module string) (string, error) {
	for line := range strings.Lines(gomod) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] == module {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("go.mod requires no %s", module)
}
