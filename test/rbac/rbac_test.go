// Package rbac tests what the shipped manifests allow and refuse, against a
// real API server that has nothing but them.
package rbac

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

const (
	namespace    = "joulevirt-system"
	agentAccount = "joulevirt-agent"

	nodeA, nodeB = "node-a", "node-b"

	// policyDelay is far above the second that the API server takes to apply a
	// new admission policy.
	policyDelay = 2 * time.Minute
)

// TestShippedManifests shares one API server between all tests of this package.
func TestShippedManifests(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{
		Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr), KubeVirt: cluster.KubeVirtAPI,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	// Twice, as people upgrade.
	for range 2 {
		for _, folder := range []string{"../../config/default", "../../config/mutation"} {
			if err := c.ApplyManifests(t.Context(), folder); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Monitors and rules need CRDs of the Prometheus Operator: only their presence is
	// checked.
	monitored, err := c.RunKubectl(t.Context(), "kustomize", "../../config/prometheus")
	if monitors := strings.Count(monitored, "kind: ServiceMonitor"); err != nil || monitors != 2 {
		t.Errorf("config/prometheus has %d monitors (%v), want the manager's and the agents'", monitors, err)
	}
	for _, node := range []string{nodeA, nodeB} {
		addNode(t, c, node)
	}
	agents := newAgents(t, c)

	t.Run("Agent", func(t *testing.T) { testAgent(t, c, agents) })
	t.Run("Certificates", func(t *testing.T) { testCertificateRequests(t, agents.boundToA) })
	t.Run("Rights", func(t *testing.T) { testRights(t, c) })
	t.Run("Traffic", func(t *testing.T) { testTraffic(t, c) })
	t.Run("Mutation", func(t *testing.T) { testMutation(t, c) })
	t.Run("Routes", func(t *testing.T) { testRoutes(t, c) })
	t.Run("Gateways", func(t *testing.T) { testGateways(t, c) })
	t.Run("Shares", func(t *testing.T) { testShares(t, c) })
	t.Run("Plans", func(t *testing.T) { testPlans(t, c) })
	t.Run("Migrations", func(t *testing.T) { testMigrations(t, c) })
	t.Run("Nodes", func(t *testing.T) { testNodes(t, c) })
	t.Run("Secrets", func(t *testing.T) { testSecrets(t, c) })
	t.Run("Network", func(t *testing.T) { testNetwork(t, c) })
	t.Run("PodSecurity", func(t *testing.T) { testPodSecurity(t, c) })
	t.Run("Restore", func(t *testing.T) { testRestore(t, c) })
}

// addNode creates a Node and its NodePlan, as the manager would.
func addNode(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	plan := &v1alpha1.NodePlan{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.NodePlanSpec{Policy: "p", Mode: v1alpha1.ModeObserve, Revision: "r1", Reason: v1alpha1.ReasonObserveOnly},
	}
	if err := joulevirtClient(t, c.RESTConfig()).Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	if err := joulevirtClient(t, c.AsServiceAccount(namespace, manager)).Create(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
}

// joulevirtClient knows the product's kinds and Kubernetes' own.
func joulevirtClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	all, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: all})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// agents are clients with tokens of the agents' ServiceAccount.
type agents struct {
	boundToA, inPodOnA, unbound client.Client
}

// newAgents returns when the admission policies are in force.
func newAgents(t *testing.T, c *cluster.Cluster) agents {
	t.Helper()
	bound, _, err := c.ServiceAccountConfig(t.Context(), namespace, agentAccount, nodeA)
	if err != nil {
		t.Fatal(err)
	}
	unbound, _, err := c.ServiceAccountConfig(t.Context(), namespace, agentAccount, "")
	if err != nil {
		t.Fatal(err)
	}
	all := agents{
		boundToA: joulevirtClient(t, bound),
		inPodOnA: joulevirtClient(t, podConfig(t, c, unbound)),
		unbound:  joulevirtClient(t, unbound),
	}
	for what, probe := range map[string]client.Object{
		"another node's NodeReport": report(nodeB),
		"another signer's request":  certificateRequest(t, "example.org/other"),
	} {
		err = c.WaitFor(t.Context(), policyDelay, "admission policy refuses "+what, func(ctx context.Context) error {
			return isForbidden(all.boundToA.Create(ctx, probe.DeepCopyObject().(client.Object), client.DryRunAll))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// isForbidden is satisfied by the answer of an admission policy that refuses.
func isForbidden(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("the answer is not Forbidden: %w", err)
	default:
		return errors.New("it was accepted")
	}
}

func report(node string) *v1alpha1.NodeReport {
	return &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: node}}
}
