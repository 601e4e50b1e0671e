// Package node starts clusters with real nodes: kubelet, containerd, runc,
// kube-proxy, and KubeVirt's virt-handler and virt-launcher as pods, in
// namespaces and cgroups of this machine. The control plane is that of package
// cluster. VMs are emulated (TCG).
//
// An environment ends with the process that started it, however that ends;
// what a killed process leaves, cgroups and folders, the next one removes.
package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/debian"
	"github.com/joulevirt/joulevirt/test/env/images"
	"github.com/joulevirt/joulevirt/test/env/node/internal/sandbox"
	"github.com/joulevirt/joulevirt/test/guest/gobuild"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

// Options describe an environment.
type Options struct {
	// Cluster is the control plane. Start adds what nodes need of it: all
	// controllers, KubeVirt's too, and an address that nodes reach.
	Cluster cluster.Options
	// Product adds the images of manager and agent to all nodes, and Gateway that of the gateway.
	Product, Gateway bool
	// Node describes the first node.
	Node NodeOptions
	// Artifacts is where logs go when Start fails, see SaveLogs. Empty: nowhere.
	Artifacts string
}

// Environment is a cluster with real nodes.
type Environment struct {
	*cluster.Cluster

	options     Options
	logs        string
	hierarchies []sandbox.Hierarchy
	claim       *claim
	network     *network
	group       *proc.Group
	noded       string
	programs    map[string]string // by name
	images      *imageStore
	set         images.Set

	mu    sync.Mutex
	nodes []*Node

	stop    sync.Once
	stopped error
}

// Start starts a cluster and its first node and returns when the node can run
// VMs. Missing programs and images are built first.
func Start(ctx context.Context, options Options) (*Environment, error) {
	hierarchies, err := check()
	if err != nil {
		return nil, fmt.Errorf("this machine cannot run a node:\n%w", err)
	}
	e, err := newEnvironment(hierarchies, options)
	if err != nil {
		return nil, err
	}
	if err := e.start(ctx); err != nil {
		err = fmt.Errorf("start a cluster with a real node: %w", err)
		if options.Artifacts != "" {
			err = errors.Join(err, e.SaveLogs(options.Artifacts))
		}
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

func newEnvironment(hierarchies []sandbox.Hierarchy, options Options) (*Environment, error) {
	c, err := newClaim(hierarchies)
	if err != nil {
		return nil, err
	}
	n, err := newNetwork(c)
	if err != nil {
		return nil, errors.Join(err, c.clean(hierarchies), c.lock.Close())
	}
	logs := options.Cluster.LogDir
	if logs == "" {
		logs = filepath.Join(c.dir, "log")
	}
	return &Environment{
		options: options, logs: logs, hierarchies: hierarchies, claim: c, network: n,
		group: proc.NewGroupLogging(c.dir, logs),
	}, nil
}

func (e *Environment) start(ctx context.Context) error {
	if err := os.MkdirAll(e.logs, 0o755); err != nil {
		return fmt.Errorf("make the folder of logs: %w", err)
	}
	// Most programs take no package of Debian, and the root file system takes no program.
	ready, readyCtx := errgroup.WithContext(ctx)
	ready.Go(func() error {
		source := e.options.Cluster.Binaries
		if err := debian.Host().Ensure(readyCtx, source.Steps, debian.KubeletPackages()...); err != nil {
			return fmt.Errorf("runc starts containers, CNI plug-ins and nftables connect pods: %w", err)
		}
		return images.Prepare(readyCtx, source)
	})
	ready.Go(func() error { return e.ensurePrograms(readyCtx) })
	if err := ready.Wait(); err != nil {
		return err
	}
	if err := e.ensureImages(ctx); err != nil {
		return err
	}
	// The node needs the cluster no sooner than its kubelet starts.
	var first *Node
	both, bothCtx := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		first, err = e.startMachine(bothCtx, e.options.Node)
		return err
	})
	both.Go(func() (err error) {
		options := e.clusterOptions()
		options.VirtHandler = &cluster.VirtHandler{LauncherImage: e.set.KubeVirt.Names[0], Image: e.set.KubeVirt.Names[1]}
		e.Cluster, err = cluster.Start(bothCtx, options)
		return err
	})
	if err := both.Wait(); err != nil {
		return err
	}
	return first.join(ctx)
}

// ensurePrograms builds the programs that are missing, of nodes, cluster and images, together.
func (e *Environment) ensurePrograms(ctx context.Context) error {
	source, options := e.options.Cluster.Binaries, e.clusterOptions()
	own := []binaries.Component{binaries.Kubelet, binaries.KubeProxy, binaries.Containerd, binaries.ContainerdShim, binaries.Ctr}
	paths, err := source.Ensure(ctx, slices.Concat(own, options.Components(), images.Programs(source))...)
	if err != nil {
		return fmt.Errorf("programs of a cluster with nodes: %w", err)
	}
	e.programs = map[string]string{}
	for _, component := range own {
		e.programs[string(component)] = paths[component]
	}
	e.noded = filepath.Join(e.claim.dir, "noded") // not in the cache: other checkouts have another
	return gobuild.Static(ctx, "github.com/joulevirt/joulevirt/test/env/node/noded", e.noded)
}

// clusterOptions adds what real nodes need.
func (e *Environment) clusterOptions() cluster.Options {
	o := e.options.Cluster
	o.ControllerManager, o.Scheduler, o.KubeVirt = true, true, cluster.KubeVirtControllers
	o.LogDir = e.logs
	o.APIAddresses = append(o.APIAddresses, e.network.machine())
	configure := o.KubeVirtConfig
	o.KubeVirtConfig = func(config *kubevirtv1.KubeVirtConfiguration) {
		config.DeveloperConfiguration = &kubevirtv1.DeveloperConfiguration{UseEmulation: true}
		config.ImagePullPolicy = corev1.PullIfNotPresent
		if configure != nil {
			configure(config)
		}
	}
	return o
}

// AddNode starts a further node and returns when it can run VMs.
func (e *Environment) AddNode(ctx context.Context, options NodeOptions) (*Node, error) {
	n, err := e.startMachine(ctx, options)
	if err != nil {
		return nil, err
	}
	return n, n.join(ctx)
}

// Nodes returns the nodes that were started, in that order.
func (e *Environment) Nodes() []*Node {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*Node(nil), e.nodes...)
}

// MachineAddress is this machine's as nodes and pods see it.
func (e *Environment) MachineAddress() netip.Addr { return e.network.machine() }

// Stop ends the cluster and its nodes at once and removes what they made. It is
// idempotent.
func (e *Environment) Stop() error {
	e.stop.Do(func() {
		e.group.Stop()
		var problems []error
		if e.Cluster != nil {
			problems = append(problems, e.Cluster.Stop())
		}
		e.network.close()
		problems = append(problems, e.claim.clean(e.hierarchies), e.claim.lock.Close())
		for _, store := range e.images.all() {
			problems = append(problems, store.lock.Close())
		}
		e.stopped = errors.Join(problems...)
	})
	return e.stopped
}
