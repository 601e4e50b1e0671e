package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Helm runs Helm with a home of its own.
type Helm struct {
	// Program is its path, Home its home, and Dir the folder that it runs in.
	Program, Home, Dir string
	// Kubeconfig of a cluster. Empty: it knows none.
	Kubeconfig string
}

// Run runs Helm and returns its standard output. The error quotes its standard error.
func (h *Helm) Run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, h.Program, args...)
	// Without a namespace but what the arguments say.
	cmd.Dir = h.Dir
	cmd.Env = []string{"HOME=" + h.Home, "KUBECONFIG=" + h.Kubeconfig, "PATH=" + filepath.Dir(h.Program)}
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, problems.String())
	}
	return out.String(), nil
}
