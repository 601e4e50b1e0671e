package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

// installTimeout covers an install on a busy machine.
const installTimeout = 5 * time.Minute

// measureImages weighs what the images add to their bases: the programs, built as the
// Dockerfile builds them, and their bills of materials.
func measureImages(ctx context.Context, env environment) (figures []figure, err error) {
	dir, err := os.MkdirTemp("", "joulevirt-bench-image")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, name := range []string{"manager", "agent"} {
		program, bill := filepath.Join(dir, name), filepath.Join(dir, name+".cdx.json")
		for _, args := range [][]string{
			{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, "./cmd/" + name},
			{"run", "./hack/sbom", program, bill},
		} {
			command := exec.CommandContext(ctx, "go", args...)
			command.Stderr, command.Env = env.progress, append(os.Environ(), "CGO_ENABLED=0")
			if err := command.Run(); err != nil {
				return nil, fmt.Errorf("build the files of the image of %s: %w", name, err)
			}
		}
		var bytes int64
		for _, file := range []string{program, bill} {
			info, err := os.Stat(file)
			if err != nil {
				return nil, err
			}
			bytes += info.Size()
		}
		figures = append(figures, figure{name + "_image_mb", float64(bytes) / 1e6, "MB"})
	}
	return figures, nil
}

// measureInstall times helm install on a cluster of one node, until its agent's report has
// a status.
func measureInstall(ctx context.Context, env environment) (figures []figure, err error) {
	fmt.Fprintln(env.progress, "bench: helm install, until the first report")
	paths, err := env.source.Ensure(ctx, binaries.Helm)
	if err != nil {
		return nil, err
	}
	c, err := cluster.Start(ctx, cluster.Options{Binaries: env.source, ControllerManager: true, KubeVirt: cluster.KubeVirtAPI})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := v1alpha1.AddToScheme(c.Client().Scheme()); err != nil {
		return nil, err
	}
	if err := c.AddNode(ctx, cluster.RealNode{Name: agentNode}); err != nil {
		return nil, err
	}
	programs := filepath.Join(c.Dir(), "programs")
	for _, name := range []string{"manager", "agent"} {
		if _, err := stack.Build(ctx, name, programs); err != nil {
			return nil, err
		}
	}
	kubelet := stack.StartKubelet(c, agentNode, programs)
	defer func() { err = errors.Join(err, kubelet.Stop()) }()

	start := time.Now()
	helm := exec.CommandContext(ctx, paths[binaries.Helm], "install", "joulevirt", "charts/joulevirt",
		"--namespace", stack.Namespace, "--create-namespace", "--kubeconfig", c.Kubeconfig())
	helm.Stderr = env.progress
	if err := helm.Run(); err != nil {
		return nil, fmt.Errorf("helm install: %w", err)
	}
	err = c.WaitFor(ctx, installTimeout, "the agent reports", func(ctx context.Context) error {
		var report v1alpha1.NodeReport
		if err := c.Client().Get(ctx, types.NamespacedName{Name: agentNode}, &report); err != nil {
			return err
		}
		if report.Status.ReportedAt == nil {
			return errors.New("its status is empty")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return []figure{{"install_to_first_report_s", time.Since(start).Seconds(), "s"}}, nil
}
