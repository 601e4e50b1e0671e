package launcher

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

const (
	// bootDeadline is far above the usual four seconds: other tests may keep the
	// machine's CPUs busy.
	bootDeadline = 4 * time.Minute
	// patience is as far above the second that anything else takes.
	patience = time.Minute
)

// sharedCache keeps the programs and images built by this run of the tests.
var sharedCache string

func TestMain(m *testing.M) {
	if os.Getenv(ownerEnvironment) != "" {
		os.Exit(ownUntilKilled())
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	var err error
	if sharedCache, err = os.MkdirTemp("", "joulevirt-launcher-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(sharedCache)
	return m.Run()
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), bootDeadline)
	t.Cleanup(cancel)
	return ctx
}

// newRuntime is closed with the test.
func newRuntime(t *testing.T, opts Options) *Runtime {
	t.Helper()
	opts.CacheDir = sharedCache
	r, err := New(testContext(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// launcherPod is the pod and the VMI that KubeVirt would make for a VM.
func launcherPod(name, podUID string, vcpus uint32) (*corev1.Pod, *kubevirtv1.VirtualMachineInstance) {
	vmi := &kubevirtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("vmi-" + podUID)},
	}
	vmi.Spec.Domain.CPU = &kubevirtv1.CPU{Cores: vcpus}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   vmi.Namespace,
			Name:        "virt-launcher-" + name,
			UID:         types.UID(podUID),
			Labels:      map[string]string{kubevirtv1.CreatedByLabel: string(vmi.UID)},
			Annotations: map[string]string{kubevirtv1.DomainAnnotation: name},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name:      computeContainer,
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}},
		}}},
	}
	return pod, vmi
}

// boot starts a VM and waits for its guest.
func boot(t *testing.T, r *Runtime, pod *corev1.Pod, vmi *kubevirtv1.VirtualMachineInstance) *Sandbox {
	t.Helper()
	ctx := testContext(t)
	s, err := r.StartPod(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.StartDomain(ctx, vmi); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	if err := s.WaitGuestReady(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("the guest of %s was ready %v after its start", vmi.Name, time.Since(started).Round(time.Millisecond))
	return s
}

// eventually polls until check returns nil.
func eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %v: %v", within, err)
		}
	}
}

func TestVM(t *testing.T) {
	const podUID = "5d3f6bd0-7a1c-4c0e-9f3b-2f1f6f1f0a01"
	r := newRuntime(t, Options{})
	pod, vmi := launcherPod("web", podUID, 2)
	s := boot(t, r, pod, vmi)

	t.Run("processes look like KubeVirt's", func(t *testing.T) { checkProcesses(t, s, podUID) })
	t.Run("namespaces are the pod's", func(t *testing.T) { checkNamespaces(t, s) })
	t.Run("no thread stays in the pod's network", func(t *testing.T) { checkThreads(t, s) })
	t.Run("CPU weight follows the request", func(t *testing.T) { checkShares(t, s) })
	t.Run("its class weighs what its pods do", func(t *testing.T) {
		other, _ := launcherPod("db", "5d3f6bd0-7a1c-4c0e-9f3b-2f1f6f1f0a02", 1)
		other.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
		beside, err := r.StartPod(testContext(t), other)
		if err != nil {
			t.Fatal(err)
		}
		checkClassWeight(t, r, s.names.CgroupNames)
		if err := beside.Stop(testContext(t)); err != nil {
			t.Fatal(err)
		}
		checkClassWeight(t, r, s.names.CgroupNames)
	})
	t.Run("libvirt answers the host", func(t *testing.T) { checkLibvirt(t, s) })
	t.Run("libvirt comes back after a crash", func(t *testing.T) { checkLibvirtRestart(t, s) })
	t.Run("UDP returns through the pod's address", func(t *testing.T) { checkEcho(t, s) })
	t.Run("vCPUs become busy", func(t *testing.T) { checkBurn(t, s) })
	t.Run("cpuset changes while it runs", func(t *testing.T) { checkCPUSet(t, s) })
	t.Run("a pod starts once", func(t *testing.T) {
		if _, err := r.StartPod(testContext(t), pod); err == nil {
			t.Error("the same pod started twice")
		}
		if err := s.StartDomain(testContext(t), vmi); err == nil {
			t.Error("the same VM started twice")
		}
		if err := s.WaitGuestReady(testContext(t)); err != nil {
			t.Errorf("refusing to start again did harm: %v", err)
		}
	})
	t.Run("stop leaves nothing", func(t *testing.T) { checkStop(t, s) })
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func procPath(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }
