package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/handler"
)

// stepTimeout bounds what takes a second or two on an idle machine.
const stepTimeout = 2 * time.Minute

const virtualMachine = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: %[1]s, namespace: default}
spec:
  runStrategy: Always
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      %[2]s
      evictionStrategy: LiveMigrate
      domain:
        cpu: {cores: 2}
        memory: {guest: 1Gi}
        devices:
          disks: [{name: root, disk: {bus: virtio}}]
          interfaces: [{name: default, masquerade: {}}]
      networks: [{name: default, pod: {}}]
      volumes: [{name: root, containerDisk: {image: "registry.local/disk:1"}}]
`

// suite is one full cluster with simulated nodes.
type suite struct {
	*cluster.Cluster
	nodes   []string
	runtime *sleeper
}

func TestFullCluster(t *testing.T) {
	s := suite{runtime: newSleeper()}
	options := cluster.Full(source())
	options.Handler.RealNodes = map[string]handler.Runtime{realNode: s.runtime}
	options.BeforeControllers = func(ctx context.Context, c *cluster.Cluster) (err error) {
		s.nodes, err = c.AddSimulatedNodes(ctx, 3, cluster.SimulatedNodes{Zones: []string{"a", "b"}})
		if err != nil {
			return err
		}
		if err := c.AddNode(ctx, cluster.RealNode{Name: realNode, IP: "192.0.2.1", Taints: []corev1.Taint{
			{Key: "real", Effect: corev1.TaintEffectNoSchedule},
		}}); err != nil {
			return err
		}
		_, err = c.SeedVMIs(ctx, cluster.Seed{Prefix: "seeded", Count: 6, Nodes: s.nodes})
		return err
	}
	s.Cluster = start(t, options)
	t.Run("seeded VMs are adopted", s.testAdoption)
	t.Run("lifecycle", s.testLifecycle)
	t.Run("delayed start", s.testDelayedStart)
	t.Run("failing start", s.testFailingStart)
	t.Run("never ready", s.testNeverReady)
	t.Run("failing migration", s.testFailingMigration)
	t.Run("migration never ready", s.testMigrationNeverReady)
	t.Run("stale heartbeat", s.testStaleHeartbeat)
	t.Run("invalid VM", s.testInvalid)
	t.Run("real node", s.testRealNode)
	t.Run("real node when readiness fails", s.testNotReady)
	t.Run("migration to and from the real node", s.testRealMigration)
	t.Run("real node when QEMU ends", s.testQEMUEnds)
	t.Run("real node when the launcher fails", s.testLauncherFails)
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

// apply applies a VM and deletes it at the test's end.
func (s suite) apply(t *testing.T, name string) {
	t.Helper()
	s.applyPlaced(t, name, "nodeSelector: {}")
}

// applyPlaced applies a VM with a line of YAML that says where it may run.
func (s suite) applyPlaced(t *testing.T, name, placement string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "vm.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, virtualMachine, name, placement), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.ApplyManifests(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.remove(t, name) })
}

func (s suite) remove(t *testing.T, name string) {
	t.Helper()
	ctx := context.Background()
	vm := &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if err := client.IgnoreNotFound(s.Client().Delete(ctx, vm)); err != nil {
		t.Error(err)
	}
	err := s.WaitFor(ctx, stepTimeout, "VMI "+name+" and its pods gone", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := s.Client().List(ctx, &pods, client.InNamespace("default"), client.MatchingLabels{"app": name}); err != nil {
			return err
		}
		var vmi kubevirtv1.VirtualMachineInstance
		if err := s.Client().Get(ctx, key(name), &vmi); client.IgnoreNotFound(err) != nil {
			return err
		} else if err == nil || len(pods.Items) > 0 {
			return fmt.Errorf("VMI in phase %q with %d pods is there", vmi.Status.Phase, len(pods.Items))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func (s suite) waitPhase(t *testing.T, name string, phase kubevirtv1.VirtualMachineInstancePhase) *kubevirtv1.VirtualMachineInstance {
	t.Helper()
	vmi, err := s.WaitForVMI(t.Context(), stepTimeout, key(name), cluster.InPhase(phase))
	if err != nil {
		t.Fatal(err)
	}
	return vmi
}

// migrate asks for a migration to some other node.
func (s suite) migrate(t *testing.T, name string) *kubevirtv1.VirtualMachineInstanceMigration {
	t.Helper()
	return s.migrateTo(t, name, nil)
}

// migrateTo asks for a migration to a node with all of the labels.
func (s suite) migrateTo(t *testing.T, name string, node map[string]string) *kubevirtv1.VirtualMachineInstanceMigration {
	t.Helper()
	migration := &kubevirtv1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: name + "-"},
		Spec:       kubevirtv1.VirtualMachineInstanceMigrationSpec{VMIName: name, AddedNodeSelector: node},
	}
	if err := s.Client().Create(t.Context(), migration); err != nil {
		t.Fatal(err)
	}
	return migration
}

func (s suite) waitMigration(t *testing.T, m *kubevirtv1.VirtualMachineInstanceMigration, phase kubevirtv1.VirtualMachineInstanceMigrationPhase) {
	t.Helper()
	err := s.WaitFor(t.Context(), stepTimeout, fmt.Sprintf("migration %s %s", m.Name, phase), func(ctx context.Context) error {
		if err := s.Client().Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return err
		}
		if m.Status.Phase != phase {
			return fmt.Errorf("it is %q", m.Status.Phase)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s suite) setFault(t *testing.T, name string, fault handler.VMFault) {
	t.Helper()
	if err := s.Handler().SetVMFault(t.Context(), key(name), fault); err != nil {
		t.Fatal(err)
	}
}

func (s suite) testLifecycle(t *testing.T) {
	s.apply(t, "plain")
	vmi, err := s.WaitForVMI(t.Context(), stepTimeout, key("plain"), cluster.Ready)
	if err != nil {
		t.Fatal(err)
	}
	source := vmi.Status.NodeName
	if len(vmi.Status.Interfaces) != 1 || vmi.Status.Interfaces[0].IP == "" {
		t.Errorf("interfaces = %+v, want one with an address", vmi.Status.Interfaces)
	}
	s.waitMigration(t, s.migrate(t, "plain"), kubevirtv1.MigrationSucceeded)
	vmi = s.waitPhase(t, "plain", kubevirtv1.Running)
	if vmi.Status.NodeName == source || vmi.Labels[kubevirtv1.NodeNameLabel] != vmi.Status.NodeName {
		t.Errorf("after the migration from %s: node %q, label %q", source, vmi.Status.NodeName, vmi.Labels[kubevirtv1.NodeNameLabel])
	}
}

// testAdoption migrates a seeded VM: that needs virt-controller to accept its
// status, its pod and their ties.
func (s suite) testAdoption(t *testing.T) {
	s.waitMigration(t, s.migrate(t, "seeded-00004"), kubevirtv1.MigrationSucceeded)
	for i := range 6 {
		name := fmt.Sprintf("seeded-%05d", i)
		vmi, err := s.WaitForVMI(t.Context(), stepTimeout, key(name), cluster.Ready)
		if err != nil {
			t.Error(err)
			continue
		}
		var pod corev1.Pod
		if err := s.Client().Get(t.Context(), key("virt-launcher-"+name), &pod); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		} else if err == nil && i != 4 && pod.Status.PodIP != vmi.Status.Interfaces[0].IP {
			t.Errorf("VMI %s has address %s, its pod %s", name, vmi.Status.Interfaces[0].IP, pod.Status.PodIP)
		}
	}
}

func (s suite) testDelayedStart(t *testing.T) {
	const delay = 2 * time.Second
	s.setFault(t, "late", handler.VMFault{StartDelay: delay})
	s.apply(t, "late")
	vmi := s.waitPhase(t, "late", kubevirtv1.Running)
	// By what the status says of both: a busy machine may look too late for the first.
	at := map[kubevirtv1.VirtualMachineInstancePhase]time.Time{}
	for _, transition := range vmi.Status.PhaseTransitionTimestamps {
		at[transition.Phase] = transition.PhaseTransitionTimestamp.Time
	}
	if took := at[kubevirtv1.Running].Sub(at[kubevirtv1.Scheduled]); at[kubevirtv1.Scheduled].IsZero() || took < delay {
		t.Errorf("Running %s after Scheduled, want at least %s: %v", took, delay, at)
	}
}

func (s suite) testFailingStart(t *testing.T) {
	s.setFault(t, "failing", handler.VMFault{FailStart: true})
	s.apply(t, "failing")
	s.waitPhase(t, "failing", kubevirtv1.Failed)
}

func (s suite) testNeverReady(t *testing.T) {
	s.setFault(t, "stuck", handler.VMFault{NeverReady: true})
	s.apply(t, "stuck")
	s.waitPhase(t, "stuck", kubevirtv1.Scheduled)
	s.setFault(t, "stuck", handler.VMFault{})
	s.waitPhase(t, "stuck", kubevirtv1.Running)
}

func (s suite) testFailingMigration(t *testing.T) {
	s.apply(t, "stays")
	before := s.waitPhase(t, "stays", kubevirtv1.Running)
	s.setFault(t, "stays", handler.VMFault{FailMigration: true})
	s.waitMigration(t, s.migrate(t, "stays"), kubevirtv1.MigrationFailed)
	after := s.waitPhase(t, "stays", kubevirtv1.Running)
	if before.Status.NodeName != after.Status.NodeName {
		t.Errorf("a failed migration moved the VM from %s to %s", before.Status.NodeName, after.Status.NodeName)
	}
}

func (s suite) testMigrationNeverReady(t *testing.T) {
	s.apply(t, "waits")
	s.waitPhase(t, "waits", kubevirtv1.Running)
	s.setFault(t, "waits", handler.VMFault{NeverReadyMigration: true})
	migration := s.migrate(t, "waits")
	s.waitMigration(t, migration, kubevirtv1.MigrationPreparingTarget)
	s.setFault(t, "waits", handler.VMFault{})
	s.waitMigration(t, migration, kubevirtv1.MigrationSucceeded)
}

func (s suite) testStaleHeartbeat(t *testing.T) {
	for _, stale := range []bool{true, false} {
		if err := s.Handler().SetStaleHeartbeat(t.Context(), s.nodes[0], stale); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprint(!stale)
		err := s.WaitFor(t.Context(), stepTimeout, "schedulable="+want, func(ctx context.Context) error {
			var node corev1.Node
			if err := s.Client().Get(ctx, client.ObjectKey{Name: s.nodes[0]}, &node); err != nil {
				return err
			}
			if got := node.Labels[kubevirtv1.NodeSchedulable]; got != want {
				return fmt.Errorf("it is %q", got)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// testInvalid shows that KubeVirt's own webhooks are in the way.
func (s suite) testInvalid(t *testing.T) {
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "invalid"}}
	vmi.Spec.Domain.Devices.Disks = []kubevirtv1.Disk{{Name: "no-such-volume"}}
	err := s.Client().Create(t.Context(), vmi)
	if err == nil || !strings.Contains(err.Error(), `admission webhook "virtualmachineinstances-create-validator.kubevirt.io" denied`) {
		t.Errorf("create a VMI with a disk without volume: %v, want a denial by KubeVirt's webhook", err)
	}
}
