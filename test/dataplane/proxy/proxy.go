// Package proxy runs a real kube-proxy in a node's network, where it programs
// the kernel's rules for Services.
package proxy

import (
	"context"
	"time"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/dataplane/node"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

const (
	// identity is whom Kubernetes' own roles let read Services and endpoints.
	identity = "system:kube-proxy"
	// health is where kube-proxy serves its probe in the node's network.
	health = "http://127.0.0.1:10256/healthz"
	// startTimeout covers a first synchronisation on a busy machine.
	startTimeout = 2 * time.Minute
)

// Start starts kube-proxy as that of the named Node, which must exist, and
// returns when it has programmed its rules once. It ends with the node. The
// cluster's API server must serve at n.HostAddress.
func Start(ctx context.Context, n *node.Node, c *cluster.Cluster, source binaries.Source, nodeName string) (*proc.Process, error) {
	paths, err := source.Ensure(ctx, binaries.KubeProxy)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := c.ComponentKubeconfig("kube-proxy", identity, n.HostAddress())
	if err != nil {
		return nil, err
	}
	process, err := n.Start("kube-proxy", paths[binaries.KubeProxy],
		"--kubeconfig="+kubeconfig,
		"--proxy-mode=nftables",
		"--hostname-override="+nodeName,
		"--cluster-cidr="+node.PodRange().String(),
		// The namespace has its share of the machine's table: leave it alone.
		"--conntrack-max-per-core=0", "--conntrack-min=0",
		"--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
		"-v=2",
	)
	if err != nil {
		return nil, err
	}
	return process, ready(ctx, n, process)
}

func ready(ctx context.Context, n *node.Node, process *proc.Process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return process.WaitReady(ctx, func(ctx context.Context) error { return n.Answers(ctx, health) })
}
