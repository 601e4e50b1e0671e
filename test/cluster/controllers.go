package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/internal/pki"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

// running is a started program and where it tells its health.
type running struct {
	process *proc.Process
	health  string
}

// startControllers starts the wanted ones of kube-controller-manager and
// kube-scheduler, both at once, and waits for them.
func (c *Cluster) startControllers(ctx context.Context) error {
	var all []running
	for _, part := range []struct {
		wanted bool
		launch func() (running, error)
	}{
		{c.options.ControllerManager, c.launchControllerManager},
		{c.options.Scheduler, c.launchScheduler},
	} {
		if !part.wanted {
			continue
		}
		r, err := part.launch()
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	for _, r := range all {
		if err := ready(ctx, r.process, c.trusting(), r.health); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) launchControllerManager() (running, error) {
	return c.launchKubernetes("kube-controller-manager", c.paths[binaries.ControllerManager],
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+filepath.Join(c.dir, "tokens.key"),
		"--root-ca-file="+c.caFile,
		"--cluster-signing-cert-file="+c.caFile,
		"--cluster-signing-key-file="+filepath.Join(c.dir, "ca.key"),
		"--allocate-node-cidrs=false",
		// A machine that stands still for a while takes no VM's endpoint away.
		"--node-monitor-grace-period=10m",
	)
}

func (c *Cluster) launchScheduler() (running, error) {
	return c.launchKubernetes("kube-scheduler", c.paths[binaries.Scheduler])
}

// launchKubernetes starts a controller of Kubernetes under its own identity.
func (c *Cluster) launchKubernetes(name, program string, flags ...string) (running, error) {
	port, err := c.ports.Take()
	if err != nil {
		return running{}, err
	}
	kubeconfig, err := c.certificateKubeconfig(name, pki.Identity{CommonName: "system:" + name})
	if err != nil {
		return running{}, err
	}
	cert, key, err := c.servingFiles(name, "localhost")
	if err != nil {
		return running{}, err
	}
	process, err := c.group.Start(name, program, append([]string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + cert, "--tls-private-key-file=" + key,
		"--leader-elect=false", // the only one
		"--kube-api-qps=500", "--kube-api-burst=1000",
	}, flags...)...)
	return running{process, fmt.Sprintf("https://localhost:%d/healthz", port)}, err
}

// servingFiles issues a server certificate for the loopback address and names,
// in a folder of its own: KubeVirt's programs watch the folder of their
// certificate and log each look at it, so that a log beside it would keep them
// looking, and a core busy, for ever.
func (c *Cluster) servingFiles(name string, dnsNames ...string) (cert, key string, err error) {
	pair, err := c.ca.Issue(pki.Identity{CommonName: name, DNSNames: dnsNames})
	if err != nil {
		return "", "", err
	}
	dir := filepath.Join(c.dir, "certificates", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", fmt.Errorf("make a folder for a certificate: %w", err)
	}
	return pair.Write(dir, name)
}

// waitServiceAccount waits until pods can be made in the default namespace.
func (c *Cluster) waitServiceAccount(ctx context.Context) error {
	key := client.ObjectKey{Namespace: corev1.NamespaceDefault, Name: "default"}
	return c.WaitFor(ctx, partTimeout, key.String(), func(ctx context.Context) error {
		return c.client.Get(ctx, key, &corev1.ServiceAccount{})
	})
}
