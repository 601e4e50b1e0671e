// Package stack installs Joulevirt in a test cluster as its manifests do, and runs manager
// and agent as processes with the arguments, the ServiceAccounts and the capabilities that
// the shipped Deployment and DaemonSet give them: for fleets of nodes and VMs that are
// objects only. On real nodes they are pods, see package test/env/product.
package stack

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/guest/gobuild"
)

const modulePath = "github.com/joulevirt/joulevirt"

// Namespace is where the manifests install the product.
const Namespace = "joulevirt-system"

// Build builds one of the product's programs, manager or agent, in a folder and
// returns its path.
func Build(ctx context.Context, name, dir string) (string, error) {
	path := filepath.Join(dir, name)
	return path, gobuild.Static(ctx, modulePath+"/cmd/"+name, path)
}

// Install installs the product in a cluster as its manifests do.
func Install(ctx context.Context, c *cluster.Cluster) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	return c.ApplyManifests(ctx, filepath.Join(root, "config", "default"))
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", modulePath).Output()
	if err != nil {
		return "", fmt.Errorf("find the sources of %s (run inside its folder): %w", modulePath, err)
	}
	return strings.TrimSpace(string(out)), nil
}
