//go:build e2e

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/env/node"
	"github.com/joulevirt/joulevirt/test/env/product"
	"github.com/joulevirt/joulevirt/test/env/tasks"
)

// agentProcess returns the process of the node's agent.
func (w *world) agentProcess() int {
	w.Helper()
	pid, err := product.AgentProcess(w.node)
	w.check(err)
	return pid
}

// confined: the agent's container has the rights that its pod asks for, and cannot change the node
// through what is mounted into it.
func (w *world) confined() {
	w.Helper()
	pid := w.agentProcess()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	w.check(err)
	// CAP_DAC_OVERRIDE, NET_ADMIN, SYS_PTRACE, SYS_ADMIN and SYS_NICE.
	for _, want := range []string{"CapBnd:\t0000000000a81002\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		if !strings.Contains(string(status), want) {
			w.Errorf("the agent's process has no %q: %s", want, status)
		}
	}
	process, err := procfs.NewProc(pid)
	w.check(err)
	mounts, err := process.MountInfo()
	w.check(err)
	found := 0
	for _, m := range mounts {
		if m.MountPoint == "/host/sys" || strings.HasPrefix(m.MountPoint, "/host/sys/") {
			found++
			if _, readOnly := m.Options["ro"]; !readOnly {
				w.Errorf("the agent can write to %s: %v", m.MountPoint, m.Options)
			}
		}
	}
	if found < 2 {
		w.Errorf("the agent has %d mounts below /host/sys, without cgroups", found)
	}
}

// agentKilled has a lever act on a VM, kills the agent's process, and has the kubelet start it anew:
// the lever stays meanwhile, and the new agent goes on with it. It is the lever that acts on a busy
// machine too.
func (w *world) agentKilled(installed time.Time) {
	w.Helper()
	key := types.NamespacedName{Namespace: shop, Name: "web-0"}
	qemu, err := w.node.QEMU(key)
	w.check(err)
	byDefault, err := tasks.DefaultSlice()
	w.check(err)
	// The lever needs VMs of both pools.
	for name, class := range map[string]v1alpha1.TrafficClass{key.Name: v1alpha1.TrafficInteractive, "web-1": v1alpha1.TrafficThroughput} {
		w.check(w.Client().Create(w.Context(), &v1alpha1.VMNetworkProfile{
			ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name},
			Spec: v1alpha1.VMNetworkProfileSpec{
				Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, TrafficClass: class,
				// A busy machine has vCPUs wait, whatever the lever does.
				ServiceLevels: v1alpha1.ServiceLevels{MaxStealPercent: 100},
			},
		}))
	}
	w.ask(key)
	policy := &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "slice"},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{v1alpha1.LeverSlice}, Priority: 1,
			Energy:       v1alpha1.EnergySettings{AllowModelled: true},
			Verification: v1alpha1.Verification{Trials: v1alpha1.TrialsDisabled, HoldBackPercent: ptr.To[int32](0)},
		},
	}
	w.check(w.Client().Create(w.Context(), policy))
	inForce := func(ctx context.Context) error { return product.ActsOn(ctx, w.Client(), w.node.Name, 2) }
	w.eventually("the VM's threads have a slice, and the plan is in force", func(ctx context.Context) error {
		if now, err := slicesOf(ctx, qemu); err != nil || slices.Contains(now, byDefault) {
			return errors.Join(fmt.Errorf("the slices are %v, by default %v", now, byDefault), err, inForce(ctx))
		}
		return inForce(ctx)
	})
	set, err := slicesOf(w.Context(), qemu)
	w.check(err)
	w.quiet(installed)
	killed := w.agentProcess()
	before, err := product.Agent(w.Context(), w.Client(), w.node.Name)
	w.check(err)
	w.check(syscall.Kill(killed, syscall.SIGKILL))
	w.eventually("the kubelet has started the agent anew", func(ctx context.Context) error {
		if now, err := slicesOf(ctx, qemu); err != nil || !slices.Equal(now, set) {
			w.Fatalf("the slices are %v while the agent restarts, want %v: %v", now, set, err)
		}
		pod, err := product.Agent(ctx, w.Client(), w.node.Name)
		if err != nil || pod.UID != before.UID || len(pod.Status.ContainerStatuses) == 0 {
			return fmt.Errorf("its pod is another, or gone: %w", err)
		}
		if s := pod.Status.ContainerStatuses[0]; s.RestartCount != 1 || !s.Ready {
			return fmt.Errorf("its container is %+v", s)
		}
		return inForce(ctx)
	})
	if now := w.agentProcess(); now == killed {
		w.Error("the agent was not killed")
	}

	w.check(w.Client().DeleteAllOf(w.Context(), &v1alpha1.VMNetworkProfile{}, client.InNamespace(shop)))
	w.eventually("the VM is free again", func(ctx context.Context) error {
		if now, err := slicesOf(ctx, qemu); err != nil || slices.ContainsFunc(now, func(s time.Duration) bool { return s != byDefault }) {
			return errors.Join(fmt.Errorf("its slices are %v, by default %v", now, byDefault), err)
		}
		return nil
	})
	w.check(w.Client().Delete(w.Context(), policy))
}

// ask has clients ask a VM until the test ends: an idle VM is of no pool of network VMs.
func (w *world) ask(vm types.NamespacedName) {
	w.Helper()
	vmi := &virtv1.VirtualMachineInstance{}
	w.check(w.Client().Get(w.Context(), vm, vmi))
	address, err := w.Address(w.Context(), vmi)
	w.check(err)
	ctx, cancel := context.WithCancel(w.Context())
	var clients sync.WaitGroup
	w.Cleanup(func() { cancel(); clients.Wait() })
	for range 2 {
		clients.Go(func() {
			rest := time.NewTicker(50 * time.Millisecond)
			defer rest.Stop()
			for ctx.Err() == nil {
				_ = node.Answers(ctx, address) // what becomes of requests is what other tests are about
				<-rest.C
			}
		})
	}
}

// slicesOf are the slices of the vCPUs' threads of a QEMU process.
func slicesOf(ctx context.Context, qemu int) ([]time.Duration, error) {
	threads, err := tasks.Threads(ctx, qemu)
	if err != nil {
		return nil, err
	}
	var found []time.Duration
	for _, t := range threads {
		if strings.HasPrefix(t.Name, "CPU ") {
			found = append(found, t.Slice)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("QEMU %d has no vCPU thread", qemu)
	}
	return found, nil
}

// quiet: neither virt-launcher nor virt-handler logged anything because of the product.
func (w *world) quiet(since time.Time) {
	w.Helper()
	read := 0
	w.check(w.node.EachLogLine("*_virt-*", func(container string, at time.Time, line string) {
		if at.Before(since) || strings.Contains(line, "/dev/kvm") { // libvirt looks for KVM now and then
			return
		}
		read++
		for _, ours := range []string{"joulevirt", `"level":"error"`, "unexpected qemu URI", "End of file while reading data"} {
			if strings.Contains(line, ours) {
				w.Errorf("%s: %s", container, line)
			}
		}
	}))
	w.Logf("%d lines of KubeVirt's logs since the product is installed", read)
}
