package cluster

import (
	"errors"
	"net/netip"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

// KubeVirtParts says how much of KubeVirt a cluster has.
type KubeVirtParts int

const (
	// NoKubeVirt leaves KubeVirt out.
	NoKubeVirt KubeVirtParts = iota
	// KubeVirtAPI installs its CRDs, RBAC and the KubeVirt object. Nothing acts
	// on VMIs and nothing validates them, so tests may write their status.
	KubeVirtAPI
	// KubeVirtControllers adds virt-api, its webhooks and subresources, and
	// virt-controller.
	KubeVirtControllers
)

// Options chooses the parts of a cluster. etcd and the API server are always
// there; alone they are up in a few seconds.
type Options struct {
	// Binaries says where the programs come from.
	Binaries binaries.Source
	// ControllerManager adds kube-controller-manager: garbage collection,
	// default service accounts, namespace deletion, DaemonSets ...
	ControllerManager bool
	// Scheduler adds kube-scheduler.
	Scheduler bool
	// KubeVirt adds parts of KubeVirt.
	KubeVirt KubeVirtParts
	// VirtHandler, when set, adds KubeVirt's virt-handler as a DaemonSet, for
	// nodes with a kubelet. It needs KubeVirtControllers.
	VirtHandler *VirtHandler
	// KubeVirtConfig, when set, changes the configuration of the KubeVirt object
	// before KubeVirt's controllers start.
	KubeVirtConfig func(*kubevirtv1.KubeVirtConfiguration)
	// LogDir is where the programs' logs (NAME.log) go and stay. Empty: they go
	// with the cluster.
	LogDir string
	// APIAddresses are addresses of this machine, beside the loopback address,
	// that the API server serves at too, for programs in other network
	// namespaces. See Cluster.ComponentKubeconfig. They are the endpoints of
	// Service kubernetes.
	APIAddresses []netip.Addr
}

// VirtHandler names the images of KubeVirt's parts on a node.
type VirtHandler struct {
	Image, LauncherImage string
}

func (o Options) validate() error {
	if (o.VirtHandler != nil) != (o.KubeVirt == KubeVirtControllers) {
		return errors.New("cluster options: VirtHandler and KubeVirt's controllers go together: set both")
	}
	return nil
}

// Components lists the programs that the options need.
func (o *Options) Components() []binaries.Component {
	all := []binaries.Component{binaries.Etcd, binaries.APIServer, binaries.Kubectl}
	add := func(wanted bool, components ...binaries.Component) {
		if wanted {
			all = append(all, components...)
		}
	}
	add(o.ControllerManager, binaries.ControllerManager)
	add(o.Scheduler, binaries.Scheduler)
	add(o.KubeVirt >= KubeVirtAPI, binaries.KubeVirtManifests)
	add(o.KubeVirt >= KubeVirtControllers, binaries.VirtAPI, binaries.VirtController)
	return all
}
