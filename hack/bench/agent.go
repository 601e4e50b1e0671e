package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

const (
	agentNode      = "this-machine"
	agentNamespace = "vms"
	agentVMs       = 200
	// agentTime is what the mean of the CPU use is over.
	agentTime = 60 * time.Second
	// findTimeout covers 200 QEMU processes that start on two cores.
	findTimeout = 5 * time.Minute
)

// measureAgent runs the shipped agent, sampling each second, on a node with 200
// VMs.
func measureAgent(ctx context.Context, env environment) (figures []figure, err error) {
	fmt.Fprintf(env.progress, "bench: the agent on a node with %d VMs\n", agentVMs)
	s, err := stack.Start(ctx, stack.Options{
		Binaries: env.source, NodeName: agentNode, Progress: env.progress,
		Seeded: func(ctx context.Context, c *cluster.Cluster) error {
			_, err := c.SeedVMIs(ctx, cluster.Seed{Namespace: agentNamespace, Count: agentVMs, Nodes: []string{agentNode}})
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(ctx))) }()
	pods, err := s.LauncherPods(ctx, agentNamespace)
	if err != nil {
		return nil, err
	}
	vms, err := startPaused(ctx, pods)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, vms.stop()) }()
	if err := waitReported(ctx, s); err != nil {
		return nil, err
	}
	fmt.Fprintf(env.progress, "bench: the agent found all; measuring for %s\n", agentTime)
	return observeProcess(ctx, s.Agent().PID)
}

func waitReported(ctx context.Context, s *stack.Stack) error {
	return s.WaitFor(ctx, findTimeout, fmt.Sprintf("the agent reports %d VMs", agentVMs), func(ctx context.Context) error {
		var report v1alpha1.NodeReport
		if err := s.Client().Get(ctx, types.NamespacedName{Name: agentNode}, &report); err != nil {
			return err
		}
		if report.Status.VMs.Running != agentVMs {
			return fmt.Errorf("it reports %d running, %d unknown", report.Status.VMs.Running, report.Status.VMs.Unknown)
		}
		return nil
	})
}

// observeProcess returns a process's mean CPU use and its resident memory at
// the end.
func observeProcess(ctx context.Context, pid int) ([]figure, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return nil, err
	}
	before, err := process.Stat()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(agentTime):
	}
	after, err := process.Stat()
	if err != nil {
		return nil, err
	}
	used := (after.CPUTime() - before.CPUTime()) / time.Since(start).Seconds()
	return []figure{
		{"agent_cpu_pct_200vms", 100 * used, "percent of one core"},
		{"agent_rss_mb_200vms", float64(after.ResidentMemory()) / 1e6, "MB"},
	}, nil
}
