package rbac

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
)

// testMigrations shows which migrations the manager may create and delete.
func testMigrations(t *testing.T, c *cluster.Cluster) {
	config, _, err := c.ServiceAccountConfig(t.Context(), namespace, manager, "")
	if err != nil {
		t.Fatal(err)
	}
	account := joulevirtClient(t, config)
	if err := virtv1.AddToScheme(account.Scheme()); err != nil {
		t.Fatal(err)
	}
	migration := func(name string, change func(*virtv1.VirtualMachineInstanceMigration)) *virtv1.VirtualMachineInstanceMigration {
		m := &virtv1.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{v1alpha1.LabelPlacement: v1alpha1.PlacementMoveLabel}},
			Spec:       virtv1.VirtualMachineInstanceMigrationSpec{VMIName: "web", AddedNodeSelector: map[string]string{corev1.LabelHostname: "n"}},
		}
		change(m)
		return m
	}
	foreign := migration("foreign", func(m *virtv1.VirtualMachineInstanceMigration) { m.Labels = nil })
	if err := c.Client().Create(t.Context(), foreign.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	err = c.WaitFor(t.Context(), policyDelay, "admission policy refuses the manager another migration", func(ctx context.Context) error {
		return isForbidden(account.Delete(ctx, foreign, client.DryRunAll))
	})
	if err != nil {
		t.Fatal(err)
	}
	wantForbidden(t, account.Delete(t.Context(), foreign), "joulevirt.io/placement", `"foreign"`)
	for word, change := range map[string]func(*virtv1.VirtualMachineInstanceMigration){
		"joulevirt.io/placement": func(m *virtv1.VirtualMachineInstanceMigration) { m.Labels = nil },
		"addedNodeSelector":      func(m *virtv1.VirtualMachineInstanceMigration) { m.Spec.AddedNodeSelector = nil },
		"addedNodeSelector is kubernetes.io": func(m *virtv1.VirtualMachineInstanceMigration) {
			m.Spec.AddedNodeSelector = map[string]string{"zone": "a"}
		},
		"kubernetes.io/hostname alone": func(m *virtv1.VirtualMachineInstanceMigration) { m.Spec.AddedNodeSelector["zone"] = "a" },
		"without priority, sendTo and receive": func(m *virtv1.VirtualMachineInstanceMigration) {
			m.Spec.Priority = ptr.To[virtv1.MigrationPriority]("system-critical")
		},
		"priority, sendTo and receive": func(m *virtv1.VirtualMachineInstanceMigration) {
			m.Spec.SendTo = &virtv1.VirtualMachineInstanceMigrationSource{MigrationID: "a", ConnectURL: "b"}
		},
	} {
		wantForbidden(t, account.Create(t.Context(), migration("refused", change)), word)
	}
	own := migration("own", func(*virtv1.VirtualMachineInstanceMigration) {})
	if err := account.Create(t.Context(), own); err != nil {
		t.Errorf("create a migration: %v", err)
	}
	if err := account.Delete(t.Context(), own); err != nil {
		t.Errorf("delete a migration: %v", err)
	}
}
