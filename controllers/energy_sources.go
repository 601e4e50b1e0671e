package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/energy/prometheus"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/pki"
)

// newSource makes the source of a Prometheus server.
func (o EnergyOptions) newSource(server energy.Server, credentials energy.Credentials) (energy.Source, error) {
	source, err := prometheus.New(prometheus.Config{
		URL: server.URL, Series: server.Series, Query: server.Query, VMs: o.VMs,
		Credentials: credentials, Timeout: server.Timeout, Freshness: server.Freshness,
	})
	if err != nil {
		return nil, fmt.Errorf("make a client of Prometheus server %s: %w", server, err)
	}
	return source, nil
}

// governedNode is a node with the policy that governs it.
type governedNode struct {
	node     *corev1.Node
	policy   string
	settings []energy.Setting
	// report is nil when there is none.
	report *v1alpha1.NodeReport
}

// governedNodes reads the cache's own objects, which must not be changed.
func governedNodes(ctx context.Context, reader client.Reader) ([]governedNode, error) {
	var policies v1alpha1.EnergyPolicyList
	if err := reader.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list EnergyPolicies: %w", err)
	}
	if len(policies.Items) == 0 {
		return nil, nil
	}
	entries := observe.NewPolicies(policies.Items)
	settings := make(map[string][]energy.Setting, len(entries))
	for _, entry := range entries {
		settings[entry.Name] = observe.EnergySettings(entry.EnergyPolicy)
	}
	reports, err := listReports(ctx, reader)
	if err != nil {
		return nil, err
	}
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var out []governedNode
	for i := range nodes.Items {
		node := &nodes.Items[i]
		report := reports[node.Name]
		if !observe.RunsVMs(node, report != nil) {
			continue
		}
		if policy, governed := entries.Governing(node); governed {
			out = append(out, governedNode{node: node, policy: policy.Name, settings: settings[policy.Name], report: report})
		}
	}
	return out, nil
}

// listReports reads the cache's own reports, by node.
func listReports(ctx context.Context, reader client.Reader) (map[string]*v1alpha1.NodeReport, error) {
	var list v1alpha1.NodeReportList
	if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NodeReports: %w", err)
	}
	reports := make(map[string]*v1alpha1.NodeReport, len(list.Items))
	for i := range list.Items {
		reports[list.Items[i].Name] = &list.Items[i]
	}
	return reports, nil
}

// energyTargets lists the Prometheus servers that the policies name which govern
// nodes, with these nodes.
func energyTargets(ctx context.Context, reader client.Reader) ([]energy.Target, error) {
	governed, err := governedNodes(ctx, reader)
	if err != nil {
		return nil, err
	}
	at := map[energy.Server]int{}
	var targets []energy.Target
	for _, g := range governed {
		for _, setting := range g.settings {
			if setting.Type != model.SourcePrometheus {
				continue
			}
			i, found := at[setting.Server]
			if !found {
				i = len(targets)
				at[setting.Server] = i
				targets = append(targets, energy.Target{Server: setting.Server})
			}
			targets[i].Nodes = append(targets[i].Nodes, energy.Node{Name: g.node.Name, Addresses: addressesOf(g.node)})
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

// liveSecrets reads Secrets past the cache: a cache would need the right to list
// and watch them, and would hold all of them in memory.
//
// The manager may get Secrets of its own namespace, by a Role in
// config/rbac/manager_namespace_role.yaml, and of no other. It has no right for
// the whole cluster because the address that a Secret's token is sent to is in
// the same policy that names the Secret: who may write policies could have any
// Secret of the cluster sent anywhere. Whose Secret it is decides, by a
// RoleBinding in its namespace.
type liveSecrets struct{ reader client.Reader }

// Secret implements energy.Secrets.
func (s liveSecrets) Secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	refuse := func(format string, args ...any) error {
		return energy.Refuse(energy.ReasonCredentials, "Secret "+namespace+"/"+name+" "+format, args...)
	}
	if name == pki.AuthoritySecret {
		return nil, refuse("is the authority of the agents and shown to nobody: name another in prometheus.secret")
	}
	var secret corev1.Secret
	err := s.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, refuse("does not exist: create it, or correct prometheus.secret")
	case apierrors.IsForbidden(err):
		return nil, refuse("is not readable: kubectl create rolebinding joulevirt-energy-credentials -n %s "+
			"--clusterrole=joulevirt-energy-credentials-reader --serviceaccount=joulevirt-system:joulevirt-manager", namespace)
	case err != nil:
		return nil, fmt.Errorf("get Secret %s/%s: %w", namespace, name, err)
	}
	return secret.Data, nil
}
