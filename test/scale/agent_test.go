//go:build e2e

package scale_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/accelerated"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
	"github.com/joulevirt/joulevirt/test/internal/proc"
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

// BenchmarkAgent runs the shipped agent, sampling each second, on a node with 200 VMs.
func BenchmarkAgent(b *testing.B) {
	must := must(b)
	process := runAgent(b, agentVMs, "")
	use, err := proc.Measure(b.Context(), process.PID, agentTime)
	must(err)
	b.Logf("figure agent_cpu_pct_200vms %.4g percent of one core", use.CPUPercent)
	b.Logf("figure agent_rss_mb_200vms %.4g MB", float64(use.Resident)/1e6)
	b.Logf("figure agent_rss_anon_mb_200vms %.4g MB of it that is not the program's file", float64(use.Anonymous)/1e6)
}

// TestAgentMemory: beside 50 VMs the agent lives within its DaemonSet's memory limit, which the
// kernel enforces.
func TestAgentMemory(t *testing.T) {
	const vms, mebi = 50, 1 << 20
	limit := agentMemoryLimit(t)
	cgroup := newMemoryCgroup(t, limit)
	process := runAgent(t, vms, cgroup.dir)
	pass(t, 10*time.Second) // it samples each second
	memory, err := process.NewStatus()
	must(t)(err)
	members, err := os.ReadFile(filepath.Join(cgroup.dir, "cgroup.procs"))
	must(t)(err)
	if kills := cgroup.kills(t); kills > 0 || !slices.Contains(strings.Fields(string(members)), strconv.Itoa(process.PID)) {
		t.Errorf("within %d bytes the agent was killed %d times; it is process %d, its cgroup has %q", limit, kills, process.PID, members)
	}
	t.Logf("%d VMs: %d MiB of %d at most", vms, memory.VmHWM/mebi, limit/mebi)
}

// memoryCgroup limits the memory of its processes. events is the file that counts those killed.
type memoryCgroup struct{ dir, events string }

func newMemoryCgroup(t *testing.T, limit uint64) memoryCgroup {
	t.Helper()
	name := "joulevirt-agent-" + strconv.Itoa(os.Getpid())
	c, file := memoryCgroup{filepath.Join("/sys/fs/cgroup/memory", name), "memory.oom_control"}, "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Dir(c.dir)); err != nil { // cgroup version 2
		c, file = memoryCgroup{filepath.Join("/sys/fs/cgroup", name), "memory.events"}, "memory.max"
	}
	must(t)(os.Mkdir(c.dir, 0o755))
	t.Cleanup(func() { must(t)(os.Remove(c.dir)) })
	must(t)(os.WriteFile(filepath.Join(c.dir, file), []byte(strconv.FormatUint(limit, 10)), 0))
	return c
}

// kills is how often the kernel killed a process for lack of memory.
func (c memoryCgroup) kills(t *testing.T) (count int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, c.events))
	must(t)(err)
	_, after, found := strings.Cut(string(text), "oom_kill ")
	if _, err := fmt.Sscan(after, &count); !found || err != nil {
		t.Fatalf("%s counts no processes that were killed: %q", c.events, text)
	}
	return count
}

// pass lets a time pass.
func pass(tb testing.TB, d time.Duration) {
	tb.Helper()
	select {
	case <-tb.Context().Done():
		tb.Fatal(tb.Context().Err())
	case <-time.After(d):
	}
}

// agentMemoryLimit is what the agent's DaemonSet allows, in bytes.
func agentMemoryLimit(t *testing.T) uint64 {
	t.Helper()
	text, err := os.ReadFile("../../config/agent/daemonset.yaml")
	must(t)(err)
	var daemonSet appsv1.DaemonSet
	must(t)(yaml.Unmarshal(text, &daemonSet))
	return uint64(daemonSet.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value())
}

func must(tb testing.TB) func(error) {
	return func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// runAgent runs the shipped agent on a node with paused VMs, and returns its process when it has
// found them all. It starts it in a cgroup, if one is named.
func runAgent(tb testing.TB, count int, cgroup string) procfs.Proc {
	tb.Helper()
	must := must(tb)
	c, err := accelerated.StartCluster(tb.Context(), binaries.FromEnvironment(os.Getenv, os.Stderr))
	must(err)
	tb.Cleanup(func() { must(c.Stop()) })
	must(c.AddNode(tb.Context(), agentNode))
	_, err = c.SeedVMIs(tb.Context(), cluster.Seed{Namespace: agentNamespace, Count: count, Nodes: []string{agentNode}})
	must(err)
	group := proc.NewGroup(c.Dir())
	tb.Cleanup(group.Stop)
	folder := filepath.Join(c.Dir(), "programs")
	program, err := stack.Build(tb.Context(), "manager", folder)
	must(err)
	_, err = stack.RunManager(tb.Context(), c, group, program)
	must(err)
	program, err = stack.Build(tb.Context(), "agent", folder)
	must(err)
	if cgroup != "" {
		script := fmt.Sprintf("#!/bin/sh\necho $$ > %s/cgroup.procs && exec %s \"$@\"\n", cgroup, program)
		program += "-limited"
		must(os.WriteFile(program, []byte(script), 0o700))
	}
	agent, err := stack.RunAgent(tb.Context(), c, group, program, agentNode)
	must(err)
	var pods corev1.PodList
	must(c.Client().List(tb.Context(), &pods, client.InNamespace(agentNamespace)))
	vms, err := startPaused(tb.Context(), pods.Items)
	must(err)
	tb.Cleanup(func() { must(vms.stop()) })
	must(c.WaitFor(tb.Context(), findTimeout, fmt.Sprintf("the agent reports %d VMs", count), func(ctx context.Context) error {
		var report v1alpha1.NodeReport
		if err := c.Client().Get(ctx, types.NamespacedName{Name: agentNode}, &report); err != nil {
			return err
		}
		if int(report.Status.VMs) != count {
			return fmt.Errorf("it reports %d", report.Status.VMs)
		}
		return nil
	}))
	process, err := procfs.NewProc(agent.PID)
	must(err)
	return process
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
