package rbac

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster"
)

// testRestore compares the DaemonSet that restores nodes with the agents': it must reach all that
// they changed, and its removal must not remove a part of the product.
func testRestore(t *testing.T, c *cluster.Cluster) {
	const name = "joulevirt-restore"
	if err := c.ApplyManifests(t.Context(), "../../config/restore"); err != nil {
		t.Fatal(err)
	}
	var agents, restore appsv1.DaemonSet
	for key, into := range map[client.ObjectKey]*appsv1.DaemonSet{
		{Namespace: namespace, Name: agent}: &agents, {Namespace: name, Name: name}: &restore,
	} {
		if err := c.Client().Get(t.Context(), key, into); err != nil {
			t.Fatal(err)
		}
	}
	want, got := agents.Spec.Template.Spec, restore.Spec.Template.Spec
	ignored := cmpopts.IgnoreFields(corev1.PodSpec{}, "ServiceAccountName", "DeprecatedServiceAccount", "AutomountServiceAccountToken",
		"PriorityClassName", "InitContainers", "Containers")
	if diff := cmp.Diff(want, got, ignored); diff != "" {
		t.Errorf("pods, -agents +restore:\n%s", diff)
	}
	program := []string{"restore", "--proc-root=/proc", "--sys-root=/host/sys", "--state-dir=/var/lib/joulevirt", "--bpf-root=/sys/fs/bpf/joulevirt"}
	for _, container := range []struct {
		of   []corev1.Container
		args []string
	}{{got.InitContainers, program}, {got.Containers, append(program[:len(program):len(program)], "--stay")}} {
		if len(container.of) != 1 {
			t.Fatalf("%d containers, want 1: %+v", len(container.of), container.of)
		}
		ignored := cmpopts.IgnoreFields(corev1.Container{}, "Name", "Args", "Env", "Ports", "LivenessProbe", "ReadinessProbe")
		if diff := cmp.Diff(want.Containers[0], container.of[0], ignored); diff != "" {
			t.Errorf("%s, -agents +restore:\n%s", container.of[0].Name, diff)
		}
		if diff := cmp.Diff(container.args, container.of[0].Args); diff != "" {
			t.Errorf("arguments, -want +got:\n%s", diff)
		}
	}
	for _, flag := range program[1:] {
		if !slices.Contains(want.Containers[0].Args, flag) {
			t.Errorf("the agents lack %s: %v", flag, want.Containers[0].Args)
		}
	}
	if err := createPod(t, c, name, restore.Spec.Template); err != nil {
		t.Errorf("it is not admitted: %v", err)
	}
	if _, err := c.RunKubectl(t.Context(), "delete", "--wait=false", "--kustomize=../../config/restore"); err != nil {
		t.Fatal(err)
	}
	for key, object := range map[client.ObjectKey]client.Object{
		{Namespace: namespace, Name: agent}: &appsv1.DaemonSet{}, {Name: agent}: &schedulingv1.PriorityClass{},
	} {
		if err := c.Client().Get(t.Context(), key, object); err != nil {
			t.Errorf("restore removed a part of the product: %v", err)
		}
	}
}
