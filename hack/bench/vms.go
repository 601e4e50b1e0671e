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

	corev1 "k8s.io/api/core/v1"
)

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
