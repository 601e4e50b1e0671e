// Package world is a test cluster with a real data plane: some nodes in zones
// whose VMs are package members', Services programmed by a real kube-proxy, and
// on demand a real Gateway. All nodes share one network.
package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/handler"
	"github.com/joulevirt/joulevirt/test/dataplane/gateway"
	"github.com/joulevirt/joulevirt/test/dataplane/gatewaycrds"
	"github.com/joulevirt/joulevirt/test/dataplane/members"
	"github.com/joulevirt/joulevirt/test/dataplane/node"
	"github.com/joulevirt/joulevirt/test/dataplane/proxy"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

// Options choose the parts.
type Options struct {
	// Binaries says where the programs come from.
	Binaries binaries.Source
	// Zones of the nodes by their names.
	Zones map[string]string
	// Gateway adds the Gateway API's standard channel, Contour and Envoy.
	Gateway bool
	// LogDir keeps the programs' logs. Empty: they go with the World.
	LogDir string
}

// World is a running cluster and its data plane.
type World struct {
	*cluster.Cluster
	// Network is all nodes'. Clients dial from it.
	Network *node.Node
	Fleet   *members.Fleet
	Proxy   *proc.Process
	Gateway *gateway.Gateway
	// Nodes are the names of the nodes, sorted.
	Nodes []string

	options Options
	dir     string
}

// Start brings up everything. ctx bounds the start only; call Stop.
func Start(ctx context.Context, o Options) (*World, error) {
	w := &World{options: o}
	for name := range o.Zones {
		w.Nodes = append(w.Nodes, name)
	}
	slices.Sort(w.Nodes)
	if err := w.start(ctx); err != nil {
		return nil, errors.Join(err, w.Stop())
	}
	return w, nil
}

func (w *World) start(ctx context.Context) error {
	for _, step := range []struct {
		wanted bool
		name   string
		run    func(context.Context) error
	}{
		{true, "make the nodes' network", w.makeNetwork},
		{true, "start Kubernetes and KubeVirt", w.startCluster},
		{true, "add the nodes", w.addNodes},
		{true, "start kube-proxy", w.startProxy},
		{w.options.Gateway, "start the Gateway", w.startGateway},
	} {
		if !step.wanted {
			continue
		}
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func (w *World) makeNetwork(context.Context) (err error) {
	if w.dir, err = cluster.TempDir(); err != nil {
		return err
	}
	if w.Network, err = node.New(w.dir, w.LogDir()); err != nil {
		return err
	}
	w.Fleet = members.NewFleet(w.Network, w.dir)
	return nil
}

func (w *World) startCluster(ctx context.Context) error {
	options := cluster.Full(w.options.Binaries)
	options.Kwok = false
	options.LogDir = w.options.LogDir
	options.APIAddresses = []netip.Addr{w.Network.HostAddress()}
	options.Handler = &handler.Options{RealNodes: w.Fleet.Runtimes(w.Nodes...)}
	var err error
	if w.Cluster, err = cluster.Start(ctx, options); err != nil {
		return err
	}
	return v1alpha1.AddToScheme(w.Client().Scheme())
}

func (w *World) addNodes(ctx context.Context) error {
	for _, name := range w.Nodes {
		err := w.AddNode(ctx, cluster.RealNode{
			Name: name, IP: node.Address().String(),
			Labels: map[string]string{corev1.LabelTopologyZone: w.options.Zones[name]},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *World) startProxy(ctx context.Context) (err error) {
	w.Proxy, err = proxy.Start(ctx, w.Network, w.Cluster, w.options.Binaries, w.Nodes[0])
	return err
}

func (w *World) startGateway(ctx context.Context) error {
	if err := gatewaycrds.Install(ctx, w.Cluster); err != nil {
		return err
	}
	var err error
	w.Gateway, err = gateway.Start(ctx, gateway.Options{
		Node: w.Network, Cluster: w.Cluster, Binaries: w.options.Binaries, Dir: w.dir,
	})
	return err
}

// LogDir is where the programs' logs are.
func (w *World) LogDir() string { return cmp.Or(w.options.LogDir, w.dir) }

// Stop ends everything. It is idempotent.
func (w *World) Stop() error {
	var problems []error
	if w.Cluster != nil {
		problems = append(problems, w.Cluster.Stop())
	}
	if w.Fleet != nil {
		w.Fleet.Close()
	}
	if w.Network != nil {
		w.Network.Close()
	}
	if w.dir != "" {
		problems = append(problems, os.RemoveAll(w.dir))
	}
	return errors.Join(problems...)
}
