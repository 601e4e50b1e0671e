// Package gateway runs a real Gateway: Contour, which makes configuration of
// the Gateway API's objects, and Envoy, which serves by it, both in a node's
// network.
package gateway

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/dataplane/envoy"
	"github.com/joulevirt/joulevirt/test/dataplane/gatewaycrds"
	"github.com/joulevirt/joulevirt/test/dataplane/netspace"
	"github.com/joulevirt/joulevirt/test/env/node"
	"github.com/joulevirt/joulevirt/test/internal/fetch"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

// The Gateway that is served, for parentRefs of routes of any namespace.
const (
	Namespace = "projectcontour"
	Name      = "contour"
)

// URL is where the Gateway serves in the node's network: Contour adds 8000 to
// ports that are privileged.
const URL = "http://127.0.0.1:8080/"

const (
	// xdsPort is where Contour tells Envoy its configuration.
	xdsPort = "8001"
	// envoyReady is where Envoy says that it has its configuration from Contour.
	// Before the first route it does not listen at URL.
	envoyReady = "http://127.0.0.1:8002/ready"
	// startTimeout covers a start on a busy machine.
	startTimeout = 2 * time.Minute
)

// manifests are of the Gateway.
//
//go:embed manifests.yaml
var manifests []byte

// config is Contour's.
const config = "gateway:\n  gatewayRef:\n    namespace: " + Namespace + "\n    name: " + Name + "\n"

// Options say where a Gateway runs.
type Options struct {
	Environment *node.Environment
	// Node whose network it is in, and Network that.
	Node    *node.Node
	Network *netspace.Space
	// Binaries says where the programs come from.
	Binaries binaries.Source
	// Dir is for the programs' files.
	Dir string
}

// Start installs the kinds of the Gateway API and of Contour, and the Gateway, starts the
// programs and returns when they serve. They end with the environment.
func Start(ctx context.Context, o Options) error {
	paths, err := o.Binaries.Ensure(ctx, binaries.Contour)
	if err != nil {
		return err
	}
	proxy, err := envoy.Program(ctx, o.Binaries)
	if err != nil {
		return err
	}
	if err := o.install(ctx); err != nil {
		return fmt.Errorf("install Contour's objects: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	started, err := o.startContour(paths[binaries.Contour])
	if err != nil {
		return err
	}
	if err := started.WaitReady(ctx, o.programmed); err != nil {
		return err
	}
	if started, err = o.startEnvoy(ctx, paths[binaries.Contour], proxy); err != nil {
		return err
	}
	return started.WaitReady(ctx, o.serves)
}

func (o Options) install(ctx context.Context) error {
	if err := gatewaycrds.Install(ctx, o.Environment.Cluster); err != nil {
		return err
	}
	sources, err := o.Binaries.SourceDir(ctx, binaries.Contour)
	if err != nil {
		return err
	}
	own := filepath.Join(o.Dir, "gateway.yaml")
	if err := os.WriteFile(own, manifests, 0o644); err != nil {
		return err
	}
	for _, file := range []string{filepath.Join(sources, "examples", "contour", "01-crds.yaml"), own} {
		if err := o.Environment.ApplyManifests(ctx, file); err != nil {
			return err
		}
	}
	return nil
}

func (o Options) startContour(program string) (*proc.Process, error) {
	// Past RBAC: what is tested here is not Contour's.
	kubeconfig, err := o.Environment.ComponentKubeconfig("contour", "contour", o.Environment.MachineAddress(), "system:masters")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(o.Dir, "contour.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return nil, err
	}
	return o.Node.StartInNetwork("contour", program, "serve",
		"--kubeconfig="+kubeconfig, "--config-path="+file,
		"--insecure", "--xds-address=127.0.0.1", "--xds-port="+xdsPort,
		"--disable-leader-election",
		// Contour is older than these kinds' present versions.
		"--disable-feature=tlsroutes", "--disable-feature=backendtlspolicies", "--disable-feature=tcproutes",
	)
}

func (o Options) startEnvoy(ctx context.Context, contour, proxy string) (*proc.Process, error) {
	file := filepath.Join(o.Dir, "envoy.json")
	output, err := exec.CommandContext(ctx, contour, "bootstrap", "--xds-address=127.0.0.1", "--xds-port="+xdsPort,
		"--admin-address="+filepath.Join(o.Dir, "envoy-admin.sock"), file).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("contour bootstrap: %w\n%s", err, output)
	}
	return o.Node.StartInNetwork("envoy", proxy, "--config-path", file,
		"--service-cluster", Namespace, "--service-node", "envoy",
		// Its shared memory would be the whole machine's.
		"--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
}

// programmed is satisfied when Contour says that it serves the Gateway.
func (o Options) programmed(ctx context.Context) error {
	status, err := o.Environment.RunKubectl(ctx, "get", "gateways.gateway.networking.k8s.io", Name, "--namespace="+Namespace,
		`--output=jsonpath={.status.conditions[?(@.type=="Accepted")].status}`)
	if err == nil && status != "True" {
		err = fmt.Errorf("condition Accepted of the Gateway is %q", status)
	}
	return err
}

// serves is satisfied when Envoy has its configuration.
func (o Options) serves(ctx context.Context) error {
	_, err := fetch.Body(ctx, &http.Client{Transport: &http.Transport{DialContext: o.Network.Dial, DisableKeepAlives: true}}, envoyReady)
	return err
}
