package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

// thread is the first thread of the VM's QEMU with such a name.
func (m *machine) thread(ctx context.Context, named func(string) bool) (stack.Thread, error) {
	all, err := stack.Threads(ctx, m.sandbox.QEMUPID())
	if err != nil {
		return stack.Thread{}, err
	}
	for _, t := range all {
		if named(t.Name) {
			return t, nil
		}
	}
	return stack.Thread{}, fmt.Errorf("no such thread among %+v", all)
}

func (m *machine) mainThread(ctx context.Context) (stack.Thread, error) {
	return m.thread(ctx, func(name string) bool { return strings.HasPrefix(name, "qemu-") })
}

// taskset binds one thread.
func taskset(ctx context.Context, tid int, mask string) error {
	out, err := exec.CommandContext(ctx, "taskset", "--cpu-list", "--pid", mask, strconv.Itoa(tid)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("bind thread %d to %s: %w: %s", tid, mask, err, out)
	}
	return nil
}

// libvirtSocket is where a launcher's libvirt listens, in the pod.
const libvirtSocket = "/var/run/libvirt/virtqemud-sock"

// pluggable leaves a VM room for a second vCPU, as KubeVirt does for each VM that says
// how many sockets it has.
func pluggable(vm *kubevirtv1.VirtualMachine) *kubevirtv1.VirtualMachine {
	cpu := vm.Spec.Template.Spec.Domain.CPU
	cpu.Sockets, cpu.MaxSockets = 1, 2
	return vm
}

// setVCPUs plugs vCPUs in until the VM has so many, as virt-launcher does when
// KubeVirt has moved a VM with more sockets to a pod with room for them.
func (m *machine) setVCPUs(count int) error {
	socket := fmt.Sprintf("/proc/%d/root%s", m.sandbox.LauncherPID(), libvirtSocket)
	conn := libvirt.NewWithDialer(dialers.NewLocal(dialers.WithSocket(socket)))
	if err := conn.ConnectToURI(libvirt.QEMUSystem); err != nil {
		return fmt.Errorf("connect to %s: %w", socket, err)
	}
	defer conn.Disconnect() //nolint:errcheck // the work is done
	domain, err := conn.DomainLookupByName(m.vmi.Namespace + "_" + m.vmi.Name)
	if err != nil {
		return err
	}
	if err := conn.DomainSetVcpusFlags(domain, uint32(count), uint32(libvirt.DomainVCPULive)); err != nil {
		return fmt.Errorf("plug in vCPUs up to %d: %w", count, err)
	}
	return nil
}

// mainUnrestricted fails if QEMU's main thread may not run on all of mask: it is never bound to
// less than a last-level cache, and the machine has one.
func (m *machine) mainUnrestricted(ctx context.Context, mask string) error {
	main, err := m.mainThread(ctx)
	if err == nil && main.CPUs != mask {
		err = fmt.Errorf("QEMU's main thread may run on %s, want %s", main.CPUs, mask)
	}
	return err
}

// restore runs agent restore, and returns its output.
func (f *fixture) restore() (string, error) {
	command := exec.CommandContext(f.Context(), filepath.Join(world.Dir(), "programs", "agent"), "restore", "--state-dir="+world.StateDir)
	command.Env = []string{} // it has nothing that leads to a cluster
	out, err := command.CombinedOutput()
	return string(out), err
}
