package faults

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

// uninstall removes the product while the node is cut off: the removal names the node and does not
// succeed. When the node is back, it succeeds.
func (f *fault) uninstall() {
	f.must(world.Agent().Signal(syscall.SIGSTOP))
	out, err := f.remove("15s")
	if err == nil || !strings.Contains(out, nodeName) {
		f.Errorf("the removal ended with %v, want it to name node %s: %s", err, nodeName, out)
	}
	if len(f.actedNow()) == 0 {
		f.Error("no lever acts, though the node's agent is stopped")
	}
	f.must(world.Agent().Signal(syscall.SIGCONT))
	if out, err := f.remove(patience.String()); err != nil {
		f.Errorf("the removal ended with %v: %s", err, out)
	}
	f.policy = nil
	f.leftUnchanged()
	f.requests()
}

// remove runs what the Job before an uninstallation does, and ends manager's pods as kubelets do.
func (f *fault) remove(timeout string) (string, error) {
	f.Helper()
	command := exec.CommandContext(f.Context(), filepath.Join(world.Dir(), "programs", "manager"), "remove",
		"--namespace="+stack.Namespace, "--kubeconfig="+world.Kubeconfig(), "--timeout="+timeout)
	var out strings.Builder
	command.Stdout, command.Stderr = &out, &out
	f.must(command.Start())
	done := make(chan error, 1)
	go func() { done <- command.Wait() }()
	for {
		select {
		case err := <-done:
			return out.String(), err
		default:
		}
		var pods corev1.PodList
		f.must(world.Client().List(f.Context(), &pods, client.InNamespace(stack.Namespace), client.MatchingLabels{"app.kubernetes.io/component": "manager"}))
		for i := range pods.Items {
			if pods.Items[i].DeletionTimestamp != nil {
				f.must(world.Manager().Signal(syscall.SIGTERM))
				f.must(client.IgnoreNotFound(world.Client().Delete(f.Context(), &pods.Items[i], client.GracePeriodSeconds(0))))
			}
		}
	}
}
