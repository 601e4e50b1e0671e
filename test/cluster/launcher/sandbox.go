package launcher

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/test/cluster/launcher/internal/container"
)

const (
	computeContainer = "compute"
	launcherLog      = "launcher.log"
	consolesFolder   = "consoles"
	// logTailBytes is how much of a log goes into an error.
	logTailBytes = 2000
)

// Sandbox is one launcher pod. Its methods may be called concurrently.
type Sandbox struct {
	runtime     *Runtime
	podUID      string
	containerID string
	names       podRecord
	address     netip.Addr
	dir         string
	logDir      string

	lifeline *os.File
	cmd      *exec.Cmd
	// exited is closed when the container has no process left.
	exited chan struct{}

	mu sync.Mutex
	// vmiUID is set by the first StartDomain, qemuPID when it has succeeded.
	vmiUID  string
	qemuPID int

	// stopMu lets one Stop work at a time; gone is set when it succeeded.
	stopMu sync.Mutex
	gone   bool
}

// randomID is 64 hexadecimal digits, the form of container runtimes' IDs.
func randomID() string {
	var id [32]byte
	rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// start runs the container and connects it.
func (s *Sandbox) start(ctx context.Context, pod *corev1.Pod) error {
	r := s.runtime
	res := resources{shares: sharesFor(pod), cpus: r.opts.CPUSet}
	err := withSharedLock(r.opts.StateDir, func() error { return createCgroup(r.hierarchies, s.names.CgroupNames, res) })
	if err != nil {
		return err
	}
	ready, err := s.spawn(pod)
	if err != nil {
		return err
	}
	defer ready.Close()
	// The container waits for its specification, so that no process of it ever
	// runs outside of its cgroup or without its network.
	if err := joinCgroup(r.hierarchies, s.names.CgroupNames, s.LauncherPID()); err != nil {
		return err
	}
	if err := connectPod(r.record.Bridge, s.names.HostVeth, s.LauncherPID(), r.opts.Subnet, s.address); err != nil {
		return err
	}
	if err := s.spec(pod).Send(s.lifeline); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { ready.Close() })
	defer stop()
	if err := container.AwaitReady(ready); err != nil {
		return errors.Join(err, ctx.Err())
	}
	return nil
}

// spawn starts the container's first process and returns its ready line.
func (s *Sandbox) spawn(pod *corev1.Pod) (*os.File, error) {
	for _, dir := range []string{filepath.Join(s.dir, "root"), filepath.Join(s.logDir, consolesFolder)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("create the pod's folders: %w", err)
		}
	}
	log, err := os.OpenFile(filepath.Join(s.logDir, launcherLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the launcher's log: %w", err)
	}
	defer log.Close()
	specReader, lifeline, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open the launcher's lifeline: %w", err)
	}
	defer specReader.Close()
	ready, readyWriter, err := os.Pipe()
	if err != nil {
		lifeline.Close()
		return nil, fmt.Errorf("open the launcher's ready line: %w", err)
	}
	defer readyWriter.Close()

	cmd := exec.Command(s.runtime.program)
	cmd.Args = append([]string{"/usr/bin/" + container.MonitorName}, launcherArgs(pod)...)
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{specReader, readyWriter} // from descriptor 3 on: LifelineFD, ReadyFD
	cmd.SysProcAttr = &syscall.SysProcAttr{
		// The PID namespace is what a container has too; seen from the host,
		// its processes have host PIDs.
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		// Own session: Ctrl-C in a terminal is the owner's to handle.
		Setsid: true,
	}
	if err := cmd.Start(); err != nil {
		lifeline.Close()
		ready.Close()
		return nil, fmt.Errorf("start the container: %w", err)
	}
	s.lifeline, s.cmd, s.exited = lifeline, cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait() // its status says how it was ended, which is in the log
		close(s.exited)
	}()
	return ready, nil
}

// launcherArgs are the arguments of the pod's compute container after the
// program, or KubeVirt's most important ones for a pod that gives none.
func launcherArgs(pod *corev1.Pod) []string {
	for _, c := range pod.Spec.Containers {
		if c.Name == computeContainer && len(c.Command) > 0 {
			return append(append([]string{}, c.Command[1:]...), c.Args...)
		}
	}
	return []string{
		"--qemu-timeout", "240s",
		"--name", pod.Annotations[kubevirtv1.DomainAnnotation],
		"--uid", pod.Labels[kubevirtv1.CreatedByLabel],
		"--namespace", pod.Namespace,
	}
}

func (s *Sandbox) spec(pod *corev1.Pod) container.Spec {
	r := s.runtime
	spec := container.Spec{
		Hostname: pod.Name,
		Address:  s.IP(),
		Root:     filepath.Join(s.dir, "root"),
		Program:  r.program,
		Binds: []container.Bind{
			{Source: r.image.Kernel, Target: kernelPath, ReadOnly: true},
			{Source: r.image.Initramfs, Target: initramfsPath, ReadOnly: true},
			{Source: filepath.Join(s.logDir, consolesFolder), Target: container.PrivateDir},
		},
		LauncherArgs: launcherArgs(pod),
	}
	if r.opts.KVM {
		spec.Devices = append(spec.Devices, "/dev/kvm")
	}
	const vhost = "/dev/vhost-net"
	if _, err := os.Stat(vhost); err == nil {
		spec.Devices = append(spec.Devices, vhost)
	}
	return spec
}

// IP is the pod's address, which leads to the guest.
func (s *Sandbox) IP() string { return s.address.String() }

// ContainerID is the 64 hexadecimal digits in the pod's cgroup path.
func (s *Sandbox) ContainerID() string { return s.containerID }

// LauncherPID is the host PID of virt-launcher-monitor, the container's first
// process.
func (s *Sandbox) LauncherPID() int { return s.cmd.Process.Pid }

// QEMUPID is the host PID of QEMU, 0 before StartDomain has returned and after
// QEMU has ended.
func (s *Sandbox) QEMUPID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The PID may be another's by now, but not in the pod's cgroup.
	pids, err := containerProcesses(s.runtime.hierarchies, s.names.CgroupNames)
	if err != nil || !slices.Contains(pids, s.qemuPID) {
		return 0
	}
	return s.qemuPID
}

// Exited is closed when no process of the pod is left, whatever the cause.
func (s *Sandbox) Exited() <-chan struct{} { return s.exited }

// SetCPUSet changes the container's cpuset, as the kubelet does when its pool
// of shared CPUs changes.
func (s *Sandbox) SetCPUSet(cpus string) error {
	for _, h := range s.runtime.hierarchies {
		dir := filepath.Join(h.mount, filepath.Join(s.names.CgroupNames...))
		if err := h.set(dir, resources{cpus: cpus}); err != nil {
			return fmt.Errorf("change the CPUs of pod %s: %w", s.podUID, err)
		}
	}
	return nil
}

// Stop ends the VM and the launcher and removes all that StartPod made; logs in
// Options.LogDir stay. It may be called again, also after an error. It finishes
// its work when ctx is cancelled, because callers stop pods on their way out; a
// time limit of its own bounds it.
func (s *Sandbox) Stop(ctx context.Context) error {
	s.stopMu.Lock()
	defer s.stopMu.Unlock()
	if s.gone {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeDeadline)
	defer cancel()
	if s.cmd != nil {
		if err := s.kill(ctx); err != nil {
			return err
		}
	}
	r := s.runtime
	err := withSharedLock(r.opts.StateDir, func() error { return undoPod(ctx, s.names, r.hierarchies) })
	if err == nil {
		err = os.RemoveAll(s.dir)
	}
	if err == nil {
		err = r.forget(s.podUID)
	}
	if err != nil {
		return fmt.Errorf("remove pod %s: %w", s.podUID, err)
	}
	s.gone = true
	return nil
}

// kill ends the container's first process, and with it the kernel ends all
// others before that counts as exited.
func (s *Sandbox) kill(ctx context.Context) error {
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the launcher of pod %s: %w", s.podUID, err)
	}
	select {
	case <-s.exited:
	case <-ctx.Done():
		return fmt.Errorf("wait for the launcher of pod %s to end: %w", s.podUID, ctx.Err())
	}
	s.lifeline.Close()
	return nil
}

// logTail is the end of the launcher's log, for an error message.
func (s *Sandbox) logTail() string {
	content, err := os.ReadFile(filepath.Join(s.logDir, launcherLog))
	if err != nil || len(content) == 0 {
		return ""
	}
	tail := content[max(0, len(content)-logTailBytes):]
	return "\nthe launcher's log ends with:\n" + strings.TrimSpace(string(tail))
}
