package rbac

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster"
)

// testNetwork: the policies select the pods that they are named after, open ports that these have,
// and let only managers ask agents for rates.
func testNetwork(t *testing.T, c *cluster.Cluster) {
	var deployment appsv1.Deployment
	var daemonset appsv1.DaemonSet
	get(t, c, manager, &deployment)
	get(t, c, agent, &daemonset)
	managers, agents := deployment.Spec.Template, daemonset.Spec.Template
	for name, test := range map[string]struct {
		pods, others corev1.PodTemplateSpec
		ports        []string
	}{
		manager: {managers, agents, []string{"metrics"}},
		agent:   {agents, managers, []string{"rates", "metrics"}},
	} {
		var policy networkingv1.NetworkPolicy
		get(t, c, name, &policy)
		if !selects(t, &policy.Spec.PodSelector, test.pods) || selects(t, &policy.Spec.PodSelector, test.others) {
			t.Errorf("%s selects %v", name, policy.Spec.PodSelector)
		}
		var open []string
		for _, rule := range policy.Spec.Ingress {
			for _, port := range rule.Ports {
				open = append(open, port.Port.StrVal)
				if port.Port.StrVal == "rates" {
					peer := rule.From[0].PodSelector
					if len(rule.From) != 1 || rule.From[0].NamespaceSelector != nil || !selects(t, peer, managers) || selects(t, peer, agents) {
						t.Errorf("rates are open to %+v", rule.From)
					}
				}
			}
		}
		if !slices.Equal(open, test.ports) {
			t.Errorf("%s opens %v, want %v", name, open, test.ports)
		}
		for _, port := range open {
			if !slices.ContainsFunc(test.pods.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == port }) {
				t.Errorf("%s has no port %s", name, port)
			}
		}
		// NetworkPolicies say nothing of pods in the node's network.
		if test.pods.Spec.HostNetwork {
			t.Errorf("%s uses the node's network", name)
		}
	}
}

func get(t *testing.T, c *cluster.Cluster, name string, into client.Object) {
	t.Helper()
	if err := c.Client().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into); err != nil {
		t.Fatal(err)
	}
}

func selects(t *testing.T, selector *metav1.LabelSelector, pods corev1.PodTemplateSpec) bool {
	t.Helper()
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Matches(labels.Set(pods.Labels))
}
