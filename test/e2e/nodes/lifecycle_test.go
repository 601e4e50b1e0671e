//go:build e2e

package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/internal/fetch"
)

// lifecycle does to a VM what its owner may do: levers are there whenever it runs.
func (w *world) lifecycle() {
	n := w.Nodes()[0]
	w.eventually("levers act on web and bulk", w.inForce(n, web, bulk))
	same := w.sameAgent(n)
	first, err := n.QEMU(web)
	w.check(err)

	w.subresource(web, "pause")
	w.eventually("web is paused", w.paused(web, true))
	w.subresource(web, "unpause")
	w.eventually("web is not paused", w.paused(web, false))
	w.answers()
	w.eventually("levers act on web after its pause", w.inForce(n, web, bulk))

	for _, verb := range []string{"reset", "softreboot"} {
		w.reboot(verb)
		w.eventually("levers act on web after its "+verb, w.inForce(n, web, bulk))
		if now, err := n.QEMU(web); err != nil || now != first {
			w.Errorf("after its %s, web's QEMU was process %d and is %d: %v", verb, first, now, err)
		}
	}

	w.check(syscall.Kill(first, syscall.SIGKILL))
	w.eventually("web has a new QEMU", func(context.Context) error {
		if now, err := n.QEMU(web); err != nil || now == first {
			return fmt.Errorf("its process is %d: %w", now, err)
		}
		return nil
	})
	w.answers()
	w.eventually("levers act on the new web", w.inForce(n, web, bulk))
	w.eventually("nothing of the killed web is left", func(ctx context.Context) error { return w.journalOfRunning(ctx, n) })
	same()
}

// restarts has containerd and the kubelet end while levers are in force: they stay.
func (w *world) restarts() {
	n := w.Nodes()[0]
	w.eventually("levers act on web and bulk", w.inForce(n, web, bulk))
	same := w.sameAgent(n)
	var pids []int
	for _, vm := range []types.NamespacedName{web, bulk} {
		pid, err := n.QEMU(vm)
		w.check(err)
		pids = append(pids, pid)
	}
	sampler := sampleSlices(w.T, pids...)
	w.check(n.RestartContainerd(w.Context()))
	restarted := metav1.Now()
	w.check(n.RestartKubelet(w.Context()))
	w.eventually("the kubelet reports", func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := w.Client().Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.LastHeartbeatTime.After(restarted.Time) {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", node.Status.Conditions)
	})
	w.check(n.WaitSchedulable(w.Context()))
	w.eventually("the kubelet serves the agent's log", func(ctx context.Context) error {
		pod, err := w.agentPod(ctx, n)
		if err == nil {
			_, err = w.RunKubectl(ctx, "logs", "--namespace="+pod.Namespace, pod.Name, "--tail=1")
		}
		return err
	})
	w.answers()
	w.eventually("levers act on web and bulk after the restarts", w.inForce(n, web, bulk))
	if longest, without := sampler.stop(w.T); without > 0 {
		w.Errorf("levers were gone in %d readings, for up to %v, while containerd and the kubelet were restarted\n%s", without, longest, w.state())
	}
	same()
}

// drain empties the first node as an administrator does: its VMs move to the second, where
// levers act on them, and nothing of them is left.
func (w *world) drain() {
	w.addSecondNode()
	first, second := w.Nodes()[0], w.Nodes()[1]
	w.eventually("levers act on web and bulk", w.inForce(first, web, bulk))
	same := w.sameAgent(first)
	w.kubectl("drain", first.Name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout="+rollTimeout)
	w.answers()
	w.eventually("levers act on the VMs that moved", w.inForce(second, web, bulk, spare))
	for _, vm := range []types.NamespacedName{web, bulk} {
		w.eventually("nothing of "+vm.Name+" is left on the first node", w.unknown(first, vm))
	}
	same() // it runs on, for VMs that others put there
	w.kubectl("uncordon", first.Name)
}

// reboot has KubeVirt reboot web, and waits until it runs anew.
func (w *world) reboot(verb string) {
	w.Helper()
	var before string
	w.eventually("web's guest answers which boot it is in", func(ctx context.Context) (err error) {
		before, err = w.boot(ctx)
		return err
	})
	w.subresource(web, verb)
	w.eventually("web boots after its "+verb, func(ctx context.Context) error {
		if now, err := w.boot(ctx); err != nil || now == before {
			return errors.Join(err, fmt.Errorf("its boot was %s and is %s", before, now))
		}
		return nil
	})
	w.answers()
}

// boot is the identity of the boot of web's guest.
func (w *world) boot(ctx context.Context) (string, error) {
	vmi := &kubevirtv1.VirtualMachineInstance{}
	if err := w.Client().Get(ctx, web, vmi); err != nil {
		return "", err
	}
	address, err := w.Address(ctx, vmi)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	text, err := fetch.Body(ctx, fetch.Once(), "http://"+address+"/boot")
	return strings.TrimSpace(text), err
}

// subresource asks KubeVirt to do something to a VM.
func (w *world) subresource(vm types.NamespacedName, verb string) {
	w.Helper()
	body := filepath.Join(w.TempDir(), "body.json")
	w.check(os.WriteFile(body, []byte("{}"), 0o600))
	w.kubectl("replace", "--filename="+body, "--raw=/apis/subresources.kubevirt.io/v1/namespaces/"+vm.Namespace+"/virtualmachineinstances/"+vm.Name+"/"+verb)
}

func (w *world) paused(vm types.NamespacedName, want bool) func(context.Context) error {
	return func(ctx context.Context) error {
		vmi := &kubevirtv1.VirtualMachineInstance{}
		if err := w.Client().Get(ctx, vm, vmi); err != nil {
			return err
		}
		for _, c := range vmi.Status.Conditions {
			if c.Type == kubevirtv1.VirtualMachineInstancePaused && (c.Status == corev1.ConditionTrue) != want {
				return fmt.Errorf("its condition is %+v", c)
			}
			if c.Type == kubevirtv1.VirtualMachineInstancePaused && want {
				return nil
			}
		}
		if want {
			return fmt.Errorf("its conditions are %+v", vmi.Status.Conditions)
		}
		return nil
	}
}

// answers waits until web's guest answers.
func (w *world) answers() {
	w.Helper()
	_, err := w.WaitAnswers(w.Context(), web)
	w.check(err)
}
