package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/energy/prometheus"
	"github.com/joulevirt/joulevirt/internal/pki"
)

// NewSource makes the source of a Prometheus server.
func NewSource(server energy.Server, credentials energy.Credentials) (energy.Source, error) {
	source, err := prometheus.New(server, credentials)
	if err != nil {
		return nil, fmt.Errorf("make a client of Prometheus server %s: %w", server, err)
	}
	return source, nil
}

// EnergyTargets lists the Prometheus servers that the policies name which govern
// nodes, with these nodes.
func EnergyTargets(ctx context.Context, reader client.Reader) ([]energy.Target, error) {
	governed, err := objects.GovernedNodes(ctx, reader)
	if err != nil {
		return nil, err
	}
	at := map[energy.Server]int{}
	var targets []energy.Target
	for _, g := range governed {
		for _, setting := range g.Settings {
			if setting.Type != v1alpha1.PowerPrometheus {
				continue
			}
			i, found := at[setting.Server]
			if !found {
				i = len(targets)
				at[setting.Server] = i
				targets = append(targets, energy.Target{Server: setting.Server})
			}
			targets[i].Nodes = append(targets[i].Nodes, energy.Node{Name: g.Node.Name, Addresses: addressesOf(g.Node)})
		}
	}
	return targets, nil
}

// addressesOf gives what exporters may name a node by: not its external
// addresses, which several nodes may share.
func addressesOf(node *corev1.Node) []string {
	var out []string
	for _, address := range node.Status.Addresses {
		switch address.Type {
		case corev1.NodeInternalIP, corev1.NodeHostName, corev1.NodeInternalDNS:
			out = append(out, address.Address)
		}
	}
	return out
}

// LiveSecrets reads Secrets past the cache: a cache would need the right to list
// and watch them, and would hold all of them in memory.
//
// They are of the manager's namespace, where a Role in
// config/rbac/manager_namespace_role.yaml allows it, and of no other: the address that a
// Secret's token is sent to is in the same policy that names the Secret, so that who writes
// policies could have any Secret of the cluster sent anywhere. For the same reason a Secret has to
// have a label that says what it is for.
type LiveSecrets struct {
	Reader    client.Reader
	Namespace string
}

// Secret implements energy.Secrets.
func (s LiveSecrets) Secret(ctx context.Context, name string) (map[string][]byte, error) {
	refuse := func(format string, args ...any) error {
		return energy.Refuse(energy.ReasonCredentials, "Secret "+s.Namespace+"/"+name+" "+format, args...)
	}
	if name == pki.AuthoritySecret {
		return nil, refuse("is the authority of the agents and shown to nobody: name another in prometheus.secret")
	}
	var secret corev1.Secret
	err := s.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, refuse("does not exist: create it, or correct prometheus.secret")
	case apierrors.IsForbidden(err):
		return nil, refuse("is not readable: bind the manager's account to Role joulevirt-manager again")
	case err != nil:
		return nil, fmt.Errorf("get Secret %s/%s: %w", s.Namespace, name, err)
	}
	if _, meant := secret.Labels[v1alpha1.LabelEnergyCredentials]; !meant {
		return nil, refuse("has no label %s, and is sent nowhere: set it on the Secret if its keys are for the server of prometheus.url", v1alpha1.LabelEnergyCredentials)
	}
	return secret.Data, nil
}

// EnergyOptions say how the nodes' power is asked for.
type EnergyOptions struct {
	// Interval between two questions to a Prometheus server, and between two looks
	// at what is known of the nodes' power.
	Interval time.Duration
	// Namespace of the Secrets with the servers' credentials: the manager's.
	Namespace string
}

// DefaultEnergyOptions ask as often as exporters are scraped, and as agents are
// asked for their rates.
func DefaultEnergyOptions() EnergyOptions {
	return EnergyOptions{Interval: 15 * time.Second}
}
