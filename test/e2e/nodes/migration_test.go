//go:build e2e

package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/test/env/node"
)

// migration moves web to the second node while a lever acts on it, and back without the
// product: the guest answers all along, but for the time that KubeVirt takes. Both times
// KubeVirt migrates it to add a vCPU, on which levers act too. Its Service is adopted, and it
// keeps serving: KubeVirt copies the label that the manager gave the VM.
func (w *world) migration() {
	w.check(w.ApplyManifests(w.Context(), "../../../config/mutation"))
	w.addSecondNode()
	first, second := w.Nodes()[0], w.Nodes()[1]
	w.eventually("levers act on web and bulk", w.inForce(first, web, bulk))
	w.agree()
	w.selects(true)
	w.serving(first)

	with := w.migrate(first, second, 2)
	w.selects(true)
	w.serving(second)
	w.labelledByKubeVirt()
	w.eventually("web has two vCPUs", func(context.Context) error { return hasVCPUs(second, web, 2) })
	w.eventually("levers act on web on the second node", w.inForce(second, web, spare))
	w.eventually("nothing of web is left on the first node", w.unknown(first, web))

	w.check(w.Client().Delete(w.Context(), &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "slice"}}))
	for _, n := range w.Nodes() {
		w.eventually("levers are reverted", w.released(n))
	}
	w.selects(false)
	without := w.migrate(second, first, 3)
	w.serving(first)
	w.createPolicy()
	w.eventually("levers act on web and bulk again", w.inForce(first, web, bulk))
	w.Logf("longest time without an answer: %v with the product, %v without", with, without)
	w.Logf("figure migration_gap_ratio %.2f ratio", with.Seconds()/without.Seconds())
}

// addSecondNode starts the second node, whose kubelet gives CPUs to VMs for themselves, and
// spare there.
func (w *world) addSecondNode() {
	w.Helper()
	if len(w.Nodes()) > 1 {
		return
	}
	n, err := w.AddNode(w.Context(), node.NodeOptions{Kubelet: map[string]any{
		"cpuManagerPolicy": "static", "kubeReserved": map[string]string{"cpu": "100m"},
	}})
	w.check(err)
	_, err = w.StartVM(w.Context(), w.newVM(spare, func(t *kubevirtv1.VirtualMachineInstanceTemplateSpec) {
		t.Spec.NodeSelector = map[string]string{corev1.LabelHostname: n.Name}
	}))
	w.check(err)
}

// setSockets gives web more sockets, and waits until KubeVirt has migrated it for that.
func (w *world) setSockets(n int, to *node.Node) {
	w.Helper()
	w.kubectl("patch", "kubevirt", "kubevirt", "--namespace=kubevirt", "--type=merge",
		`--patch={"spec":{"workloadUpdateStrategy":{"workloadUpdateMethods":["LiveMigrate"]}}}`)
	w.kubectl("patch", "virtualmachine", web.Name, "--namespace="+shop, "--type=merge",
		fmt.Sprintf(`--patch={"spec":{"template":{"spec":{"domain":{"cpu":{"sockets":%d}}}}}}`, n))
	w.check(w.WaitFor(w.Context(), changeTimeout, "KubeVirt has migrated web", func(ctx context.Context) error {
		vmi := &kubevirtv1.VirtualMachineInstance{}
		if err := w.Client().Get(ctx, web, vmi); err != nil {
			return err
		}
		if state := vmi.Status.MigrationState; state == nil || !state.Completed || vmi.Status.NodeName != to.Name {
			return fmt.Errorf("it is on node %s, its migration is %+v, its conditions are %+v", vmi.Status.NodeName, state, vmi.Status.Conditions)
		}
		return nil
	}))
}

// hasVCPUs returns an error unless a VM's QEMU has so many threads of vCPUs.
func hasVCPUs(n *node.Node, vm client.ObjectKey, want int) error {
	pid, err := n.QEMU(vm)
	if err != nil {
		return err
	}
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		return err
	}
	var found []string
	for _, thread := range threads {
		if name, err := thread.Comm(); err == nil && strings.HasPrefix(name, "CPU ") { // it has not ended
			found = append(found, name)
		}
	}
	if len(found) != want {
		return fmt.Errorf("it has vCPUs %q", found)
	}
	return nil
}

// migrate moves web between nodes for more sockets, and returns the longest time in which its
// guest did not answer. Its threads on the target begin as the kernel has them.
func (w *world) migrate(from, to *node.Node, sockets int) time.Duration {
	w.Helper()
	w.clients.restart()
	clean := make(chan error, 1)
	go func() { clean <- startsClean(w.Context(), to) }()
	w.setSockets(sockets, to)
	if err := <-clean; err != nil {
		w.Error(err)
	}
	vmi, err := w.WaitAnswers(w.Context(), web)
	w.check(err)
	if vmi.Status.NodeName != to.Name {
		w.Fatalf("web is on node %s, want %s", vmi.Status.NodeName, to.Name)
	}
	gap := w.clients.gap()
	w.eventually("node "+from.Name+" has no QEMU of web", func(context.Context) error {
		if pid, err := from.QEMU(web); err == nil {
			return fmt.Errorf("it still is process %d", pid)
		}
		return nil
	})
	return gap
}

// startsClean waits for web's QEMU on a node. Its threads begin as the kernel has them.
func startsClean(ctx context.Context, n *node.Node) error {
	for ctx.Err() == nil {
		if pid, err := n.QEMU(web); err == nil {
			set, err := isSliced(pid)
			if err == nil && set {
				return fmt.Errorf("threads of web's QEMU on node %s have slices from the start", n.Name)
			}
			if err == nil { // or that QEMU has ended
				return nil
			}
		}
		wait(ctx, sampleInterval)
	}
	return ctx.Err()
}

// serving waits until the Service has web at its address on a node, and no other.
func (w *world) serving(n *node.Node) {
	w.Helper()
	w.eventually("the Service has web on node "+n.Name, func(ctx context.Context) error {
		vmi := &kubevirtv1.VirtualMachineInstance{}
		if err := w.Client().Get(ctx, web, vmi); err != nil {
			return err
		}
		var list discoveryv1.EndpointSliceList
		if err := w.Client().List(ctx, &list, client.InNamespace(shop), client.MatchingLabels{discoveryv1.LabelServiceName: web.Name}); err != nil {
			return err
		}
		var found []string
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				if e.Conditions.Ready != nil && *e.Conditions.Ready {
					found = append(found, e.Addresses...)
				}
			}
		}
		address, err := w.Address(ctx, vmi)
		if err == nil && (len(found) != 1 || found[0] != address) {
			err = fmt.Errorf("its endpoints are %v, the VM has %s", found, address)
		}
		return err
	})
}

// selects waits until the Service of web selects by the label, or does not.
func (w *world) selects(want bool) {
	w.Helper()
	w.eventually(fmt.Sprintf("the Service selects by the label: %t", want), func(ctx context.Context) error {
		service := &corev1.Service{}
		err := w.Client().Get(ctx, web, service)
		if got := service.Spec.Selector[v1alpha1.LabelServing] == v1alpha1.ServingActive; err == nil && got != want {
			err = fmt.Errorf("its selector is %v, its labels are %v", service.Spec.Selector, service.Labels)
		}
		return err
	})
}

// labelledByKubeVirt checks that web's pod was created with the label.
func (w *world) labelledByKubeVirt() {
	w.Helper()
	vmi := &kubevirtv1.VirtualMachineInstance{}
	w.check(w.Client().Get(w.Context(), web, vmi))
	var pods corev1.PodList
	w.check(w.Client().List(w.Context(), &pods, client.InNamespace(shop), client.MatchingLabels{"app": web.Name}))
	for i := range pods.Items {
		pod := &pods.Items[i]
		if _, active := vmi.Status.ActivePods[pod.UID]; !active || pod.Spec.NodeName != vmi.Status.NodeName {
			continue
		}
		if owners := routing.FieldManagers(pod, "f:metadata", "f:labels", "f:"+v1alpha1.LabelServing); !slices.Equal(owners, []string{"virt-controller"}) {
			w.Errorf("the label of pod %s is of %v, want it to be KubeVirt's", pod.Name, owners)
		}
		return
	}
	w.Errorf("web has no pod on node %s: %v", vmi.Status.NodeName, vmi.Status.ActivePods)
}

// unknown is satisfied when a node's plan, its agent's status and its journal have nothing
// of a VM.
func (w *world) unknown(n *node.Node, vm client.ObjectKey) func(context.Context) error {
	return func(ctx context.Context) error {
		plan := &v1alpha1.NodePlan{}
		if err := w.Client().Get(ctx, client.ObjectKey{Name: n.Name}, plan); err != nil {
			return err
		}
		for _, p := range plan.Spec.VMs {
			if p.Namespace == vm.Namespace && p.Name == vm.Name {
				return fmt.Errorf("the plan has %+v", p)
			}
		}
		for _, s := range plan.Status.VMs {
			if s.Namespace == vm.Namespace && s.Name == vm.Name {
				return fmt.Errorf("the status has %+v", s)
			}
		}
		return w.journalOfRunning(ctx, n)
	}
}

// released is satisfied when nothing acts on a node.
func (w *world) released(n *node.Node) func(context.Context) error {
	return func(ctx context.Context) error {
		journal, err := w.journal(n)
		if err != nil {
			return err
		}
		if len(journal.Slices) > 0 {
			return fmt.Errorf("the agent's journal on node %s has %d threads", n.Name, len(journal.Slices))
		}
		for _, vm := range []client.ObjectKey{web, bulk, spare} {
			qemu, err := n.QEMU(vm)
			if err != nil {
				continue // it is on the other node
			}
			if set, err := isSliced(qemu); err != nil || set {
				return errors.Join(err, fmt.Errorf("threads of VM %s have a slice", vm))
			}
		}
		return nil
	}
}
