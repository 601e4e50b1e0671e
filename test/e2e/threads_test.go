package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
	kubevirtv1 "kubevirt.io/api/core/v1"

	agentlibvirt "github.com/joulevirt/joulevirt/internal/agent/libvirt"
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
	return stack.Thread{}, fmt.Errorf("%w among %+v", errNoThread, all)
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

// domain gives a function the launcher's libvirt and the VM's domain in it.
func (m *machine) domain(use func(*libvirt.Libvirt, libvirt.Domain) error) error {
	socket := fmt.Sprintf("/proc/%d/root%s", m.sandbox.LauncherPID(), agentlibvirt.SocketPath)
	conn := libvirt.NewWithDialer(dialers.NewLocal(dialers.WithSocket(socket)))
	if err := conn.ConnectToURI(libvirt.QEMUSystem); err != nil {
		return fmt.Errorf("connect to %s: %w", socket, err)
	}
	defer conn.Disconnect() //nolint:errcheck // the work is done
	domain, err := conn.DomainLookupByName(m.vmi.Namespace + "_" + m.vmi.Name)
	if err != nil {
		return err
	}
	return use(conn, domain)
}

// addIOThread has QEMU create a thread, as its monitor does: libvirt's own call
// gives a new IO thread all CPUs afterwards.
func (m *machine) addIOThread(name string) error {
	command := fmt.Sprintf(`{"execute":"object-add","arguments":{"qom-type":"iothread","id":%q}}`, name)
	return m.domain(func(conn *libvirt.Libvirt, domain libvirt.Domain) error {
		answer, err := conn.QEMUDomainMonitorCommand(domain, command, 0)
		if err == nil && strings.Contains(answer, `"error"`) {
			err = fmt.Errorf("QEMU answers %s", answer)
		}
		return err
	})
}

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
	return m.domain(func(conn *libvirt.Libvirt, domain libvirt.Domain) error {
		if err := conn.DomainSetVcpusFlags(domain, uint32(count), uint32(libvirt.DomainVCPULive)); err != nil {
			return fmt.Errorf("plug in vCPUs up to %d: %w", count, err)
		}
		return nil
	})
}

// mainUnrestricted fails when QEMU's main thread may not run on all of mask: it is
// never bound to less than a last-level cache, and there is one.
func (m *machine) mainUnrestricted(ctx context.Context, mask string) error {
	main, err := m.mainThread(ctx)
	if err == nil && main.CPUs != mask {
		err = fmt.Errorf("QEMU's main thread may run on %s, want %s", main.CPUs, mask)
	}
	return err
}

// TestNewThreadIsBoundAsItsKind: a thread that inherits somebody else's binding gets
// what the plan has for its kind, and so does the thread that it inherited it from.
func TestNewThreadIsBoundAsItsKind(t *testing.T) {
	f := newFixture(t)
	every := asTaskset(allCPUs(t))
	web := f.startVM(f.newVM("web", 1))
	f.profile("web")
	f.enforce()
	cpu, _ := f.pinnedTo(web)

	// Without the manager nothing moves meanwhile.
	if err := world.Manager().Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := world.Manager().ExitCode(); code != 0 {
		t.Errorf("the manager ended with %d, want 0", code)
	}
	f.Cleanup(func() {
		if err := world.StartManager(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	f.eventually("the plan is in force", f.applied(1))
	planned, err := f.vmPlan(t.Context(), web)
	if err != nil {
		t.Fatal(err)
	}
	want := every
	if cpus := planned.Affinity.IOThreadCPUs; cpus != "" {
		want = asTaskset(cpus)
	}

	// An agent that stands still shows that the thread does inherit.
	isYoung := func(name string) bool { return strings.HasPrefix(name, "IO young") }
	if err := world.Agent().Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	young, err := web.bindMainAndAdd(t.Context(), cpu, "young", isYoung)
	if err := world.Agent().Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if young.CPUs != cpu || want == cpu {
		t.Fatalf("the new thread %+v is where it is to be: nothing is tested", young)
	}
	f.eventually("the new thread is where IO threads are to be", func(ctx context.Context) error {
		young, err := web.thread(ctx, isYoung)
		if err == nil && young.CPUs != want {
			err = fmt.Errorf("it may run on %s, want %s", young.CPUs, want)
		}
		return err
	})
	f.eventually("the main thread is let loose", func(ctx context.Context) error { return web.mainUnrestricted(ctx, every) })
	if err := web.only(cpu)(t.Context()); err != nil {
		t.Error(err)
	}
}

// bindMainAndAdd binds QEMU's main thread and has it create an IO thread.
func (m *machine) bindMainAndAdd(ctx context.Context, cpu, name string, is func(string) bool) (stack.Thread, error) {
	main, err := m.mainThread(ctx)
	if err == nil {
		err = taskset(ctx, main.ID, cpu)
	}
	if err == nil {
		err = m.addIOThread(name)
	}
	if err != nil {
		return stack.Thread{}, err
	}
	return m.thread(ctx, is)
}

// restore runs agent restore, and returns what it said.
func (f *fixture) restore() (string, error) {
	command := exec.CommandContext(f.Context(), filepath.Join(world.Dir(), "programs", "agent"), "restore", "--state-dir="+world.StateDir)
	command.Env = []string{} // it has nothing that leads to a cluster
	out, err := command.CombinedOutput()
	return string(out), err
}

func TestRestoreCommandUndoesWithoutAnAPIServer(t *testing.T) {
	f := newFixture(t)
	every := asTaskset(allCPUs(t))
	web := f.startVM(f.newVM("web", 2))
	f.profile("web")
	f.enforce()
	f.eventually("the plan is in force", f.applied(1))
	f.eventually("each vCPU is bound to one CPU", web.pinned)
	if out, err := f.restore(); err == nil || !strings.Contains(out, "another agent is running") {
		t.Errorf("beside the agent: %v, %s", err, out)
	}

	world.KillAgent()
	if err := web.pinned(t.Context()); err != nil {
		t.Errorf("pins went with the killed agent: %v", err)
	}
	for i, none := range []bool{false, true} {
		out, err := f.restore()
		if err != nil || !strings.Contains(out, " threads were bound") || strings.HasPrefix(out, "0 threads") != none {
			t.Errorf("time %d: it said %q, %v: none bound is to be %t", i+1, out, err, none)
		}
		if err := web.unrestricted(every)(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := world.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.eventually("each vCPU is bound to one CPU again", web.pinned)
}
