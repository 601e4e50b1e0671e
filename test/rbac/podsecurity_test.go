package rbac

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster"
)

// testPodSecurity checks the shipped pods with the API server's PodSecurity admission.
func testPodSecurity(t *testing.T, c *cluster.Cluster) {
	var deployment appsv1.Deployment
	var daemonset appsv1.DaemonSet
	get(t, c, manager, &deployment)
	get(t, c, agent, &daemonset)
	restricted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "restricted", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	if err := c.Client().Create(t.Context(), restricted); err != nil {
		t.Fatal(err)
	}

	t.Run("the manager is restricted", func(t *testing.T) {
		if err := createPod(t, c, restricted.Name, deployment.Spec.Template); err != nil {
			t.Error(err)
		}
	})
	t.Run("the agent needs privileged, and only what is listed", func(t *testing.T) {
		err := createPod(t, c, restricted.Name, daemonset.Spec.Template)
		if err == nil {
			t.Fatal("the namespace's label privileged is not needed: remove it")
		}
		for _, word := range []string{"privileged=true", "hostNetwork", "hostIPC", "hostPort", "allowPrivilegeEscalation"} {
			if strings.Contains(err.Error(), word) {
				t.Errorf("the agent needs %s: %v", word, err)
			}
		}
		want := []corev1.Capability{"SYS_NICE", "SYS_PTRACE", "DAC_OVERRIDE", "SYS_ADMIN", "NET_ADMIN"}
		got := daemonset.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities
		if !slices.Equal(got.Add, want) || !slices.Equal(got.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("capabilities %+v, want drop ALL, add %v", got, want)
		}
	})
}

func createPod(t *testing.T, c *cluster.Cluster, namespace string, template corev1.PodTemplateSpec) error {
	t.Helper()
	return c.Client().Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "shipped-"},
		Spec:       template.Spec,
	}, client.DryRunAll)
}
