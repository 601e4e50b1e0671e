//go:build e2e

package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/env/node"
)

// dedicated starts a VM with a CPU of its own on the second node. The product leaves it
// alone, and the others stay on what the kubelet leaves them.
func (w *world) dedicated() {
	w.addSecondNode()
	n := w.Nodes()[1]
	key := types.NamespacedName{Namespace: shop, Name: "dedicated"}
	_, err := w.StartVM(w.Context(), w.newVM(key, func(t *kubevirtv1.VirtualMachineInstanceTemplateSpec) {
		t.ObjectMeta.Labels["app"] = spare.Name // of whose profile it is
		t.Spec.NodeSelector = map[string]string{corev1.LabelHostname: n.Name}
		t.Spec.Domain.CPU = &kubevirtv1.CPU{Cores: 1, DedicatedCPUPlacement: true}
	}))
	w.check(err)
	own, err := n.QEMU(key)
	w.check(err)
	w.eventually("the plan leaves the VM alone", func(ctx context.Context) error { return w.leftAlone(ctx, n, key) })
	w.eventually("no other VM may use its CPU", func(context.Context) error {
		taken, err := cpusOf(own)
		if err != nil || taken.Count() != 1 {
			return errors.Join(err, fmt.Errorf("VM %s has %d CPUs, want 1", key, taken.Count()))
		}
		for _, vm := range []types.NamespacedName{web, bulk, spare} {
			qemu, err := n.QEMU(vm)
			if err != nil {
				continue // it is on the first node
			}
			others, err := cpusOf(qemu)
			if err != nil {
				return err
			}
			for word := range others {
				if others[word]&taken[word] != 0 {
					return fmt.Errorf("a thread of VM %s may run on the CPU that VM %s has for itself", vm, key)
				}
			}
		}
		return nil
	})
	if set, err := isSliced(own); err != nil || set {
		w.Errorf("threads of VM %s, which has a CPU of its own, have slices: %v", key, err)
	}
	if _, err := n.QEMU(web); err == nil { // it moved here when the first node was drained
		w.eventually("levers act on the others", w.inForce(n, web, bulk, spare))
	}
}

// leftAlone returns an error unless a node's plan names a VM and does nothing to it.
func (w *world) leftAlone(ctx context.Context, n *node.Node, vm types.NamespacedName) error {
	plan := &v1alpha1.NodePlan{}
	if err := w.Client().Get(ctx, client.ObjectKey{Name: n.Name}, plan); err != nil {
		return err
	}
	for _, p := range plan.Spec.VMs {
		if p.Namespace != vm.Namespace || p.Name != vm.Name {
			continue
		}
		if p.SliceMicroseconds != nil || p.Affinity != nil {
			return fmt.Errorf("the plan has %+v", p)
		}
		return nil
	}
	return fmt.Errorf("the plan does not name the VM: %+v", plan.Spec.VMs)
}

// cpusOf returns the CPUs that some thread of a process may run on.
func cpusOf(pid int) (unix.CPUSet, error) {
	var all unix.CPUSet
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		return all, err
	}
	if len(threads) == 0 {
		return all, fmt.Errorf("process %d has no thread: %w", pid, os.ErrProcessDone)
	}
	for _, thread := range threads {
		var cpus unix.CPUSet
		if err := unix.SchedGetaffinity(thread.PID, &cpus); err != nil {
			continue // it has ended
		}
		for word := range cpus {
			all[word] |= cpus[word]
		}
	}
	return all, nil
}
