//go:build e2e

package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/joulevirt/joulevirt/test/env/product"
)

// uninstall removes the product while the node is cut off: the removal names the node and does not
// succeed. When the node is back, it succeeds.
func (f *fault) uninstall() {
	// The program of the Job before an uninstallation is the manager's.
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/manager", f.leader().pid))
	f.must(err)
	manager := filepath.Join(f.TempDir(), "manager")
	f.must(os.WriteFile(manager, text, 0o755))
	remove := func(timeout string) (string, error) {
		out, err := exec.CommandContext(f.Context(), manager, "remove", "--namespace="+product.Namespace,
			"--kubeconfig="+f.Kubeconfig(), "--timeout="+timeout).CombinedOutput()
		return string(out), err
	}

	agent := f.agent()
	f.signal(agent, syscall.SIGSTOP)
	out, err := remove("30s")
	if err == nil || !strings.Contains(out, f.node.Name) {
		f.Errorf("the removal ended with %v, want it to name node %s: %s", err, f.node.Name, out)
	}
	if len(f.actedNow()) == 0 {
		f.Error("no lever acts, though the node's agent is stopped")
	}
	f.signal(agent, syscall.SIGCONT)
	if out, err := remove(patience.String()); err != nil {
		f.Errorf("the removal ended with %v: %s", err, out)
	}
	f.policy = nil
}
