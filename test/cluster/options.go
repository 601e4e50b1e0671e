package cluster

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/go-logr/logr"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/handler"
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
	// virt-controller. VMIs start once a Handler runs too.
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
	// Kwok adds kwok, the kubelet of simulated nodes.
	Kwok bool
	// KubeVirt adds parts of KubeVirt.
	KubeVirt KubeVirtParts
	// BeforeControllers, when set, runs after KubeVirt's API is there and
	// before its controllers and webhooks: the time to seed objects that they
	// would refuse or take minutes to make.
	BeforeControllers func(context.Context, *Cluster) error
	// Handler, when set, starts the stand-in for virt-handler. It needs
	// KubeVirt's API.
	Handler *handler.Options
	// LogDir is where the programs' logs (NAME.log) go and stay. Empty: they go
	// with the cluster.
	LogDir string
	// APIAddresses are addresses of this machine, beside the loopback address,
	// that the API server serves at too, for programs in other network
	// namespaces. See Cluster.ComponentKubeconfig.
	APIAddresses []netip.Addr
	// APIServerFlags are added to the API server's.
	APIServerFlags []string
	// Log gets what the cluster itself does in the background (not the
	// programs' logs, which go to files). The zero value discards it.
	Log logr.Logger
}

// Full returns the Options of a whole cluster: all control planes and
// simulated nodes.
func Full(source binaries.Source) Options {
	return Options{
		Binaries:          source,
		ControllerManager: true,
		Scheduler:         true,
		Kwok:              true,
		KubeVirt:          KubeVirtControllers,
		Handler:           &handler.Options{},
	}
}

func (o Options) validate() error {
	if o.Handler != nil && o.KubeVirt == NoKubeVirt {
		return fmt.Errorf("cluster options: Handler needs KubeVirt: set KubeVirt to KubeVirtAPI or KubeVirtControllers")
	}
	if o.BeforeControllers != nil && o.KubeVirt == NoKubeVirt {
		return fmt.Errorf("cluster options: BeforeControllers needs KubeVirt: set KubeVirt to KubeVirtAPI or KubeVirtControllers")
	}
	return nil
}

// components lists the programs that the options need.
func (o Options) components() []binaries.Component {
	all := []binaries.Component{binaries.Etcd, binaries.APIServer, binaries.Kubectl}
	add := func(wanted bool, components ...binaries.Component) {
		if wanted {
			all = append(all, components...)
		}
	}
	add(o.ControllerManager, binaries.ControllerManager)
	add(o.Scheduler, binaries.Scheduler)
	add(o.Kwok, binaries.Kwok)
	add(o.KubeVirt >= KubeVirtAPI, binaries.KubeVirtManifests)
	add(o.KubeVirt >= KubeVirtControllers, binaries.VirtAPI, binaries.VirtController)
	return all
}
