// Package install installs, upgrades and removes the product with the tools that people
// use, against a real API server and Kubernetes' controllers. The pods of the product run
// as processes of this machine (stack.Kubelet).
package install

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

const (
	root      = "../.."
	chart     = "charts/joulevirt" // from root, where Helm runs
	release   = "joulevirt"
	namespace = "joulevirt-system"
)

func source() binaries.Source { return binaries.FromEnvironment(os.Getenv, os.Stderr) }

// helm runs Helm with a home of its own.
type helm struct {
	program, home, kubeconfig string
}

// newHelm returns a Helm that knows no cluster when kubeconfig is empty.
func newHelm(t *testing.T, kubeconfig string) *helm {
	t.Helper()
	paths, err := source().Ensure(t.Context(), binaries.Helm)
	if err != nil {
		t.Fatal(err)
	}
	return &helm{program: paths[binaries.Helm], home: t.TempDir(), kubeconfig: kubeconfig}
}

func (h *helm) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, h.program, args...)
	// From where the documentation runs it; without a namespace but what the arguments say.
	cmd.Dir = root
	cmd.Env = []string{"HOME=" + h.home, "KUBECONFIG=" + h.kubeconfig, "PATH=" + filepath.Dir(h.program)}
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, problems.String())
	}
	return out.String(), nil
}

func (h *helm) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.run(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
