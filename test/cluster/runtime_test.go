package cluster_test

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/handler"
)

// realNode is the node whose pods the sleeper runs.
const realNode = "real"

// onRealNode places a VM there: lines of its spec.
const onRealNode = `nodeSelector: {kubernetes.io/hostname: real}
      tolerations: [{key: real}]`

// sleeper is a Runtime whose launchers and VMs are sleep processes.
type sleeper struct {
	mu    sync.Mutex
	fail  error
	boxes map[string]*sleepBox // by the name of the VMI
}

func newSleeper() *sleeper { return &sleeper{boxes: map[string]*sleepBox{}} }

func (s *sleeper) StartPod(_ context.Context, pod *corev1.Pod) (handler.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	box := &sleepBox{}
	s.boxes[pod.Annotations[kubevirtv1.DomainAnnotation]] = box
	return box, nil
}

func (s *sleeper) setFailure(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *sleeper) box(vmi string) *sleepBox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.boxes[vmi]
}

type sleepBox struct {
	mu      sync.Mutex
	qemu    *exec.Cmd
	stopped bool
}

func (b *sleepBox) IP() string       { return "192.0.2.77" }
func (b *sleepBox) LauncherPID() int { return 0 }

func (b *sleepBox) QEMUPID() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.qemu.Process.Pid
}

func (b *sleepBox) StartDomain(context.Context, *kubevirtv1.VirtualMachineInstance) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.qemu = exec.Command("sleep", "3600")
	b.qemu.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return b.qemu.Start()
}

func (b *sleepBox) Stop(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stopped && b.qemu != nil {
		_ = b.qemu.Process.Kill()
		_ = b.qemu.Wait() // killed: the error says only that
	}
	b.stopped = true
	return nil
}

func (b *sleepBox) isStopped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopped
}

// launcher returns the only launcher pod of a VM.
func (s suite) launcher(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	if err := s.Client().List(t.Context(), &pods, client.InNamespace("default"), client.MatchingLabels{"app": name}); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 {
		t.Fatalf("VM %s has %d launcher pods, want 1", name, len(pods.Items))
	}
	return &pods.Items[0]
}

func (s suite) applyReal(t *testing.T, name string) {
	t.Helper()
	s.applyPlaced(t, name, onRealNode)
}

func (s suite) testRealNode(t *testing.T) {
	s.applyReal(t, "real")
	vmi := s.waitPhase(t, "real", kubevirtv1.Running)
	if got := vmi.Status.Interfaces[0].IP; got != "192.0.2.77" {
		t.Errorf("the VM's address is %q, want the sandbox's", got)
	}
	pod := s.launcher(t, "real")
	if pod.Status.HostIP != "192.0.2.1" || pod.Status.PodIP != "192.0.2.77" {
		t.Errorf("hostIP %q, podIP %q, want the node's and the sandbox's", pod.Status.HostIP, pod.Status.PodIP)
	}
	s.remove(t, "real")
	if !s.runtime.box("real").isStopped() {
		t.Error("the VM is deleted, but its sandbox was not stopped")
	}
}

func (s suite) testNotReady(t *testing.T) {
	s.applyReal(t, "probed")
	unready := func(vmi *kubevirtv1.VirtualMachineInstance) error {
		if cluster.Ready(vmi) == nil {
			return errors.New("it is Ready")
		}
		return nil
	}
	for _, step := range []struct {
		fault handler.VMFault
		want  cluster.VMICondition
	}{{handler.VMFault{}, cluster.Ready}, {handler.VMFault{NotReady: true}, unready}, {handler.VMFault{}, cluster.Ready}} {
		if err := s.Handler().SetVMFault(t.Context(), key("probed"), step.fault); err != nil {
			t.Fatal(err)
		}
		if _, err := s.WaitForVMI(t.Context(), stepTimeout, key("probed"), step.want); err != nil {
			t.Fatal(err)
		}
		if phase := s.launcher(t, "probed").Status.Phase; phase != corev1.PodRunning {
			t.Fatalf("with %+v the launcher pod is %s, want it to run on", step.fault, phase)
		}
	}
}

func (s suite) testRealMigration(t *testing.T) {
	s.applyPlaced(t, "moving", "tolerations: [{key: real}]")
	vmi := s.waitPhase(t, "moving", kubevirtv1.Running)
	// It moves among simulated nodes, to the real one and back, wherever the
	// scheduler put it first.
	for _, node := range []string{s.nodes[0], s.nodes[1], realNode, s.nodes[0]} {
		if vmi.Status.NodeName == node {
			continue
		}
		s.waitMigration(t, s.migrateTo(t, "moving", map[string]string{corev1.LabelHostname: node}), kubevirtv1.MigrationSucceeded)
		vmi = s.waitPhase(t, "moving", kubevirtv1.Running)
		if vmi.Status.NodeName != node {
			t.Fatalf("the VM is on node %s, want %s", vmi.Status.NodeName, node)
		}
		if node != realNode {
			continue
		}
		if err := syscall.Kill(s.runtime.box("moving").QEMUPID(), 0); err != nil {
			t.Errorf("the VM on the real node: %v, want it to run", err)
		}
	}
	if !s.runtime.box("moving").isStopped() {
		t.Error("the VM left the real node, but its sandbox was not stopped")
	}
}

func (s suite) testQEMUEnds(t *testing.T) {
	s.applyReal(t, "crashing")
	s.waitPhase(t, "crashing", kubevirtv1.Running)
	if err := syscall.Kill(s.runtime.box("crashing").QEMUPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.waitPhase(t, "crashing", kubevirtv1.Failed)
}

func (s suite) testLauncherFails(t *testing.T) {
	s.runtime.setFailure(errors.New("no room for the sandbox"))
	defer s.runtime.setFailure(nil)
	s.applyReal(t, "homeless")
	s.waitPhase(t, "homeless", kubevirtv1.Failed)
}
