package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
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
		if report.Status.VMs != agentVMs {
			return fmt.Errorf("it reports %d", report.Status.VMs)
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
	memory, err := process.NewStatus()
	if err != nil {
		return nil, err
	}
	used := (after.CPUTime() - before.CPUTime()) / time.Since(start).Seconds()
	return []figure{
		{"agent_cpu_pct_200vms", 100 * used, "percent of one core"},
		{"agent_rss_mb_200vms", float64(after.ResidentMemory()) / 1e6, "MB"},
		{"agent_rss_anon_mb_200vms", float64(memory.RssAnon) / 1e6, "MB of it that is not the program's file"},
	}, nil
}

// paused is many paused VMs: real QEMU processes of four threads (main, RCU and
// two vCPUs), each with a tap in a network namespace of its own and in the
// cgroup of its launcher pod. Their guests do nothing, so that on a small
// machine the agent that is measured has a core to itself.
type paused struct {
	base     string
	folders  []string
	commands []*exec.Cmd
}

// pausedVM becomes QEMU, so that the process that was started is the VM.
const pausedVM = `ip tuntap add tap0 mode tap && ip link set tap0 up &&
echo $$ > "$1/cgroup.procs" &&
exec qemu-system-x86_64 -name "guest=$2,debug-threads=on" -S -accel tcg,thread=multi -smp 2 -m 16 \
  -machine q35 -nodefaults -no-user-config -display none \
  -netdev tap,id=n0,ifname=tap0,script=no,downscript=no -device virtio-net-pci,netdev=n0`

func startPaused(ctx context.Context, pods []corev1.Pod) (*paused, error) {
	p := &paused{base: filepath.Join("/sys/fs/cgroup/cpuset", "joulevirt-bench-"+strconv.Itoa(os.Getpid()))}
	if _, err := os.Stat(filepath.Dir(p.base)); err != nil {
		p.base = filepath.Join("/sys/fs/cgroup", filepath.Base(p.base))
	}
	for _, parent := range []string{p.base, p.base + "/kubepods", p.base + "/kubepods/burstable"} {
		if err := p.makeCgroup(parent); err != nil {
			return nil, errors.Join(err, p.stop())
		}
	}
	for i := range pods {
		if err := p.startOne(ctx, &pods[i]); err != nil {
			return nil, errors.Join(err, p.stop())
		}
	}
	return p, nil
}

func (p *paused) startOne(ctx context.Context, pod *corev1.Pod) error {
	folder := filepath.Join(p.base, "kubepods/burstable", "pod"+string(pod.UID))
	container := filepath.Join(folder, strings.Repeat("c0", 32))
	for _, dir := range []string{folder, container} {
		if err := p.makeCgroup(dir); err != nil {
			return err
		}
	}
	domain := pod.Namespace + "_" + strings.TrimPrefix(pod.Name, "virt-launcher-")
	cmd := exec.CommandContext(ctx, "unshare", "--net", "--", "sh", "-c", pausedVM, "sh", container, domain)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a paused VM: %w", err)
	}
	p.commands = append(p.commands, cmd)
	return nil
}

func (p *paused) makeCgroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make a cgroup: %w", err)
	}
	p.folders = append(p.folders, dir)
	// A new cpuset of cgroup version 1 has no CPUs and takes no process.
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err != nil || strings.TrimSpace(string(value)) == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), value, 0); err != nil {
			return fmt.Errorf("fill cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// stop ends the VMs and removes their cgroups.
func (p *paused) stop() error {
	for _, cmd := range p.commands {
		_ = cmd.Process.Kill() // one that ended by itself is waited for all the same
	}
	for _, cmd := range p.commands {
		_ = cmd.Wait() // says that it was killed
	}
	var problems []error
	for i := len(p.folders) - 1; i >= 0; i-- {
		problems = append(problems, os.Remove(p.folders[i]))
	}
	return errors.Join(problems...)
}
