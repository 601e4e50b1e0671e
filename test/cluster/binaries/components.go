package binaries

import (
	"fmt"
	"maps"
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
	VirtAPI           Component = "virt-api"
	VirtController    Component = "virt-controller"
	// KubeVirtManifests prints the objects that virt-operator would install.
	KubeVirtManifests Component = "kubevirt-manifests"
	Kwok              Component = "kwok"
	Contour           Component = "contour"
	// Helm is the program, which tests of the chart run.
	Helm Component = "helm"
	// KustomizeController is Flux's, which applies what a source has.
	KustomizeController Component = "kustomize-controller"
)

// recipe says how a component is built.
type recipe struct {
	// module is the folder, below hack/controlplane, of the nested Go module
	// that pins the component.
	module string
	// pkg is the main package, as `go build` in that folder takes it.
	pkg string
}

// recipes lists every component.
func recipes() map[Component]recipe {
	return map[Component]recipe{
		Etcd:              {"kubernetes", "go.etcd.io/etcd/server/v3"},
		APIServer:         {"kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"},
		ControllerManager: {"kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"},
		Scheduler:         {"kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler"},
		Kubectl:           {"kubernetes", "k8s.io/kubernetes/cmd/kubectl"},
		KubeProxy:         {"kubernetes", "k8s.io/kubernetes/cmd/kube-proxy"},
		VirtAPI:           {"kubevirt", "kubevirt.io/kubevirt/cmd/virt-api"},
		VirtController:    {"kubevirt", "kubevirt.io/kubevirt/cmd/virt-controller"},
		KubeVirtManifests: {"kubevirt", "./manifests"},
		Kwok:              {"kwok", "sigs.k8s.io/kwok/cmd/kwok"},
		Contour:           {"contour", "github.com/projectcontour/contour/cmd/contour"},
		Helm:              {"helm", "helm.sh/helm/v4/cmd/helm"},

		KustomizeController: {"flux", "github.com/fluxcd/kustomize-controller"},
	}
}

// All returns every component, sorted by name.
func All() []Component { return slices.Sorted(maps.Keys(recipes())) }

// moduleVersion returns the Go module whose version names the nested module,
// and the link-time variables that carry a version. Without them the programs
// call themselves v0.0.0-master, which clients that compare versions refuse.
func moduleVersion(module string) (upstream string, variables func(version string) []string) {
	switch module {
	case "kubernetes":
		return "k8s.io/kubernetes", kubernetesVariables
	case "kubevirt":
		return "kubevirt.io/kubevirt", kubevirtVariables
	case "contour":
		return "github.com/projectcontour/contour", contourVariables
	case "helm":
		return "helm.sh/helm/v4", helmVariables
	case "flux":
		return "github.com/fluxcd/kustomize-controller", func(string) []string { return nil }
	default:
		return "sigs.k8s.io/" + module, func(string) []string { return nil }
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
