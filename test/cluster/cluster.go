// Package cluster starts the control planes of Kubernetes and KubeVirt for tests
// and the demo: the real programs, run as plain processes of this machine. Real
// nodes come from package test/env/node; others are objects.
//
// A cluster ends with the process that started it, however that ends.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/internal/pki"
	"github.com/joulevirt/joulevirt/test/internal/port"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

// partTimeout bounds the start of one program. Two busy cores and a cold page
// cache are far below it.
const partTimeout = 10 * time.Minute

// Cluster is a running cluster.
type Cluster struct {
	options    Options
	dir        string
	paths      binaries.Paths
	ca         *pki.Authority
	caFile     string
	ports      *port.Lease
	group      *proc.Group
	config     *rest.Config
	kubeconfig string
	etcd       string
	apiServer  *proc.Process
	client     client.Client

	background context.Context // ends at Stop
	cancel     context.CancelFunc
	tasks      sync.WaitGroup
}

// Start brings up a cluster. ctx bounds the start only; call Stop to end the
// cluster. On failure everything is ended already and the error quotes the log
// of the program that failed. Missing programs are built first, see
// binaries.Source.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	if err := options.validate(); err != nil {
		return nil, err
	}
	paths, err := options.Binaries.Ensure(ctx, options.Components()...)
	if err != nil {
		return nil, fmt.Errorf("programs of the test cluster: %w", err)
	}
	c, err := newCluster(options, paths)
	if err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start the test cluster: %w", err), c.Stop())
	}
	return c, nil
}

func newCluster(options Options, paths binaries.Paths) (*Cluster, error) {
	dir, err := TempDir()
	if err != nil {
		return nil, err
	}
	ca, err := pki.NewAuthority("joulevirt-test-cluster", time.Now())
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	// One folder a user: another user could not write our lock files.
	ports, err := port.NewLease(filepath.Join(os.TempDir(), fmt.Sprintf("joulevirt-ports-%d", os.Getuid())))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	logs := options.LogDir
	if logs == "" {
		logs = dir
	}
	background, cancel := context.WithCancel(context.Background())
	return &Cluster{
		options: options, dir: dir, paths: paths, ca: ca, ports: ports,
		group:      proc.NewGroupLogging(dir, logs),
		background: background, cancel: cancel,
	}, nil
}

// start brings up the parts in the order in which they need each other.
func (c *Cluster) start(ctx context.Context) error {
	steps := []struct {
		wanted bool
		name   string
		run    func(context.Context) error
	}{
		{true, "etcd and the API server", c.startAPI},
		{len(c.options.APIAddresses) > 0, "the API server's endpoints", c.publishAPIServer},
		{true, "Kubernetes' controllers", c.startControllers},
		{c.options.KubeVirt >= KubeVirtAPI, "KubeVirt's API", c.installKubeVirt},
		{c.options.KubeVirt >= KubeVirtControllers, "KubeVirt's controllers", c.startKubeVirt},
		{c.options.VirtHandler != nil, "virt-handler", c.installVirtHandler},
		{c.options.ControllerManager, "default service account", c.waitServiceAccount},
	}
	for _, step := range steps {
		if !step.wanted {
			continue
		}
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// Stop ends all programs and background work and removes the cluster's data. It
// is idempotent. The error says what was left behind.
func (c *Cluster) Stop() error {
	c.cancel()
	c.tasks.Wait()
	c.group.Stop()
	c.ports.Close()
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("remove the test cluster's data: %w", err)
	}
	return nil
}

// RESTConfig returns a copy of the administrator's client configuration,
// without a client-side rate limit.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Etcd is the URL that etcd serves clients at.
func (c *Cluster) Etcd() string { return c.etcd }

// APIServer is the API server's process, for tests that stop it.
func (c *Cluster) APIServer() *proc.Process { return c.apiServer }

// Kubectl is the path of a kubectl of the cluster's version.
func (c *Cluster) Kubectl() string { return c.paths[binaries.Kubectl] }

// CACert is the PEM-encoded certificate of the authority that signed the API
// server's certificate.
func (c *Cluster) CACert() []byte { return c.ca.Pair.Cert }

// Client returns an uncached administrator's client that knows the types of
// Kubernetes, CustomResourceDefinitions and KubeVirt.
func (c *Cluster) Client() client.Client { return c.client }

// Dir is the folder of the cluster's data and, without Options.LogDir, of its
// logs (NAME.log).
func (c *Cluster) Dir() string { return c.dir }

// TakePort returns a free TCP port of the loopback address, which no cluster of
// this user hands out again before Stop.
func (c *Cluster) TakePort() (int, error) { return c.ports.Take() }
