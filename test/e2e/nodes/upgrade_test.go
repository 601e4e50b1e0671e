//go:build e2e

package nodes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// upgrade restarts virt-handler, rolls its DaemonSet, and then rolls the agent's.
func (w *world) upgrade() {
	n := w.Nodes()[0]
	var pids []int
	for _, vm := range []client.ObjectKey{web, bulk} {
		pid, err := n.QEMU(vm)
		w.check(err)
		pids = append(pids, pid)
	}
	same := w.sameAgent(n)
	kubeVirt := sampleSlices(w.T, pids...)
	old := w.virtHandler()
	w.kubectl("delete", "pod", "--namespace="+old.Namespace, old.Name)
	w.eventually("virt-handler is back", func(ctx context.Context) error {
		if now := w.virtHandler(); now == nil || now.UID == old.UID {
			return fmt.Errorf("its pod is still %s", old.Name)
		}
		return n.WaitSchedulable(ctx)
	})
	w.roll("daemonset/virt-handler", old.Namespace)
	w.check(n.WaitSchedulable(w.Context()))
	same()
	if longest, without := kubeVirt.stop(w.T); without > 0 {
		w.Errorf("levers were gone in %d readings, for up to %v, while virt-handler was restarted\n%s", without, longest, w.state())
	}

	agent := sampleSlices(w.T, pids...)
	before, err := w.agentPod(w.Context(), n)
	w.check(err)
	w.roll("daemonset/joulevirt-agent", before.Namespace)
	after, err := w.agentPod(w.Context(), n)
	w.check(err)
	if after.UID == before.UID {
		w.Error("the agent was not upgraded")
	}
	w.eventually("the new agent acts", w.inForce(n, web, bulk))
	longest, _ := agent.stop(w.T)
	w.Logf("figure upgrade_lever_gap_s %.2f s", longest.Seconds())
}

// roll changes the template of a DaemonSet, as an upgrade does, and waits for its new pods.
func (w *world) roll(daemonSet, namespace string) {
	w.Helper()
	w.kubectl("patch", daemonSet, "--namespace="+namespace, `--patch={"spec":{"template":{"metadata":{"annotations":{"test.joulevirt.io/version":"next"}}}}}`)
	w.kubectl("rollout", "status", daemonSet, "--namespace="+namespace, "--timeout="+rollTimeout)
}

// virtHandler is virt-handler's pod on the first node. Nil while none runs there.
func (w *world) virtHandler() *corev1.Pod {
	w.Helper()
	var pods corev1.PodList
	w.check(w.Client().List(w.Context(), &pods, client.MatchingLabels{"kubevirt.io": "virt-handler"}))
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil && pods.Items[i].Spec.NodeName == w.Nodes()[0].Name {
			return &pods.Items[i]
		}
	}
	return nil
}
