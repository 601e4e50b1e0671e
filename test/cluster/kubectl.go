package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// RunKubectl runs kubectl as the administrator and returns its standard output.
// The error quotes its standard error.
func (c *Cluster) RunKubectl(ctx context.Context, args ...string) (string, error) {
	var output, problems bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Kubectl(), args...)
	// Plug-ins take no flag before their name.
	cmd.Env = append(cmd.Environ(), "KUBECONFIG="+c.kubeconfig)
	cmd.Stdout, cmd.Stderr = &output, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(problems.String()))
	}
	return output.String(), nil
}

// ApplyManifests applies a file, a folder of files, or a folder with a
// kustomization, server-side, as users do.
func (c *Cluster) ApplyManifests(ctx context.Context, path string) error {
	how := "--filename"
	if _, err := os.Stat(filepath.Join(path, "kustomization.yaml")); err == nil {
		how = "--kustomize"
	}
	_, err := c.RunKubectl(ctx, "apply", "--server-side", how, path)
	return err
}
