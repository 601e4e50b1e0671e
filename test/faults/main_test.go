// Package faults provokes faults of the product, its node and its cluster on real parts: VMs under
// load behind a Service of a real kube-proxy, real control planes, manager and agent as processes.
package faults

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
	"github.com/joulevirt/joulevirt/test/dataplane/node"
	"github.com/joulevirt/joulevirt/test/dataplane/proxy"
)

const (
	// nodeName is the Node that is this machine.
	nodeName = "this-machine"
	// startTimeout bounds a start that may have to build everything first.
	startTimeout = 40 * time.Minute
)

var (
	// world is the one stack of the suite.
	world *stack.Stack
	// network is where clients of Services are.
	network *node.Node
	// programs says where those of the control plane come from.
	programs = binaries.FromEnvironment(os.Getenv, os.Stderr)
)

func TestMain(m *testing.M) {
	// The cluster's stand-ins would log each retry.
	log.SetLogger(logr.Discard())
	code, err := runSuite(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		code = 1
	}
	os.Exit(code)
}

func runSuite(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	dir, err := cluster.TempDir()
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if network, err = node.New(dir, dir); err != nil {
		return 1, err
	}
	defer network.Close()
	world, err = stack.Start(ctx, stack.Options{
		Binaries: programs, NodeName: nodeName, SimulatedNodes: 1,
		CacheDir: filepath.Join(programs.Cache, "guest"), Progress: os.Stderr,
		APIAddresses: []netip.Addr{network.HostAddress()},
	})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, world.Stop(context.Background())) }()
	bridge, subnet := world.PodNetwork()
	if err := network.Join(bridge, netip.PrefixFrom(lastAddress(subnet), subnet.Bits())); err != nil {
		return 1, err
	}
	if _, err := proxy.Start(ctx, network, world.Cluster, programs, nodeName); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// lastAddress is one that no pod gets until all others had one.
func lastAddress(subnet netip.Prefix) netip.Addr {
	address := subnet.Addr()
	for next := address.Next(); subnet.Contains(next.Next()); next = next.Next() {
		address = next
	}
	return address
}
