//go:build e2e

// Package traffic tells the stories of traffic groups on two real nodes: their kube-proxies
// program nftables for Services, Contour and Envoy serve routes, the manager is a pod, and
// the VMs' guests say who answered.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/dataplane/gateway"
	"github.com/joulevirt/joulevirt/test/dataplane/netspace"
	"github.com/joulevirt/joulevirt/test/env/node"
)

const (
	// startTimeout bounds a start that may have to build everything first.
	startTimeout = 40 * time.Minute
	product      = "joulevirt-system"
	// soon bounds what a cluster on a busy machine does in some seconds, and the restart of a VM.
	soon = 8 * time.Minute
)

// suite is the one world of all stories.
var suite struct {
	*node.Environment
	// network is the first node's. Clients dial from it.
	network *netspace.Space
	agents  *agents
}

func TestMain(m *testing.M) {
	// The cluster's helpers would tell of every retry.
	log.SetLogger(logr.Discard())
	code, err := runSuite(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "traffic:", err)
		code = 1
	}
	os.Exit(code)
}

func runSuite(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	artifacts := os.Getenv("JOULEVIRT_ARTIFACTS")
	if artifacts != "" {
		artifacts = filepath.Join(artifacts, "traffic")
	}
	source := binaries.FromEnvironment(os.Getenv, os.Stderr)
	inZone := func(zone string) node.NodeOptions {
		return node.NodeOptions{Labels: map[string]string{corev1.LabelTopologyZone: zone}}
	}
	suite.Environment, err = node.Start(ctx, node.Options{
		Cluster: cluster.Options{Binaries: source}, Product: true, Gateway: true, Node: inZone("zone-1"), Artifacts: artifacts,
	})
	if err != nil {
		return 1, err
	}
	defer func() {
		if err := suite.Stop(); err != nil { // the next environment removes what is left
			fmt.Fprintln(os.Stderr, "traffic: end the environment:", err)
		}
	}()
	if _, err := suite.AddNode(ctx, inZone("zone-2")); err != nil {
		return 1, err
	}
	if suite.network, err = suite.Nodes()[0].Network(); err != nil {
		return 1, err
	}
	defer suite.network.Close()
	if err := gateway.Start(ctx, gateway.Options{
		Environment: suite.Environment, Node: suite.Nodes()[0], Network: suite.network, Binaries: source, Dir: suite.Dir(),
	}); err != nil {
		return 1, err
	}
	if err := install(ctx); err != nil {
		return 1, fmt.Errorf("install the product: %w", err)
	}
	defer func() { err = errors.Join(err, suite.agents.Stop()) }()
	code = m.Run()
	if artifacts != "" {
		if err := suite.SaveLogs(artifacts); err != nil {
			fmt.Fprintln(os.Stderr, "traffic: save logs:", err)
		}
	}
	return code, nil
}

// managerArguments have the manager look more often. Shipped, it looks each 15 s and moves a
// part of the traffic each 30 s.
const managerArguments = `{"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"manager","args":[` +
	`"--leader-elect","--namespace=$(POD_NAMESPACE)","--metrics-bind-address=:8443","--health-probe-bind-address=:8081",` +
	`"--rates-interval=1s","--replan-interval=1s","--review-interval=10s","--energy-interval=1s","--traffic-interval=2s","--status-delay=500ms"]}]}}}}`

// install applies the manifests, and starts played agents in place of theirs.
func install(ctx context.Context) error {
	if err := v1alpha1.AddToScheme(suite.Client().Scheme()); err != nil {
		return err
	}
	if err := suite.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: product}}); err != nil {
		return err
	}
	var err error
	if suite.agents, err = listen(suite.Environment); err != nil {
		return err
	}
	// Before the manager makes one.
	if err := suite.agents.ShareAuthority(ctx, suite.Client(), product); err != nil {
		return err
	}
	if err := suite.ApplyManifests(ctx, "../../../config/default"); err != nil {
		return err
	}
	for object, change := range map[string]string{
		"daemonset/joulevirt-agent":    `{"spec":{"template":{"spec":{"nodeSelector":{"test.joulevirt.io/agent":"played"}}}}}`,
		"deployment/joulevirt-manager": managerArguments,
	} {
		if _, err := suite.RunKubectl(ctx, "patch", object, "--namespace="+product, "--patch="+change); err != nil {
			return err
		}
	}
	return suite.agents.start(ctx)
}
