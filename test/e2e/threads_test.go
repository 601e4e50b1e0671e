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
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// addIOThread has QEMU create a thread, as its monitor does: libvirt's own call
// gives a new IO thread all CPUs afterwards.
func (m *machine) addIOThread(name string) error {
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
	command := fmt.Sprintf(`{"execute":"object-add","arguments":{"qom-type":"iothread","id":%q}}`, name)
	answer, err := conn.QEMUDomainMonitorCommand(domain, command, 0)
	if err == nil && strings.Contains(answer, `"error"`) {
		err = fmt.Errorf("QEMU answers %s", answer)
	}
	return err
}

func TestThreadThatInheritsAPinIsPutBack(t *testing.T) {
	f := newFixture(t)
	every := asTaskset(allCPUs(t))
	web := f.startVM(f.newVM("web", 1))
	f.profile("web")
	f.enforce()
	cpu, _ := f.pinnedTo(web)

	// The planner does not pin QEMU's main thread, which creates the others:
	// without the manager the plan says what the test wants.
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
	plan, err := f.plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := plan.DeepCopy()
	plan.Spec.VMs[0].Affinity.EmulatorCPUs = cpu
	if err := f.client.Patch(t.Context(), plan, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	f.eventually("the main thread is pinned", func(ctx context.Context) error {
		main, err := web.mainThread(ctx)
		if err == nil && main.CPUs != cpu {
			err = fmt.Errorf("it may run on %s, want %s", main.CPUs, cpu)
		}
		return err
	})
	f.eventually("the plan is in force", f.applied(1))

	// An agent that stands still shows that the thread does inherit.
	isYoung := func(name string) bool { return strings.HasPrefix(name, "IO young") }
	if err := world.Agent().Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	err = web.addIOThread("young")
	young, threadErr := web.thread(t.Context(), isYoung)
	if err := world.Agent().Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err != nil || threadErr != nil {
		t.Fatalf("a new IO thread: %v, %v", err, threadErr)
	}
	if young.CPUs != cpu {
		t.Fatalf("the new thread %+v inherited no pin: nothing is tested", young)
	}
	f.eventually("the new thread is unrestricted", func(ctx context.Context) error {
		young, err := web.thread(ctx, isYoung)
		if err == nil && young.CPUs != every {
			err = fmt.Errorf("it may run on %s", young.CPUs)
		}
		return err
	})
	if err := web.only(cpu)(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRestoreCommandUndoesWithoutAnAPIServer(t *testing.T) {
	f := newFixture(t)
	every := asTaskset(allCPUs(t))
	web := f.startVM(f.newVM("web", 2))
	f.profile("web")
	f.enforce()
	f.eventually("the plan is in force", f.applied(1))
	f.eventually("each vCPU has a CPU of its own", web.pinned)
	restore := func() (string, error) {
		command := exec.CommandContext(t.Context(), filepath.Join(world.Dir(), "programs", "agent"), "restore", "--state-dir="+world.StateDir)
		command.Env = []string{} // it has nothing that leads to a cluster
		out, err := command.CombinedOutput()
		return string(out), err
	}
	if out, err := restore(); err == nil || !strings.Contains(out, "another agent is running") {
		t.Errorf("beside the agent: %v, %s", err, out)
	}

	world.KillAgent()
	if err := web.pinned(t.Context()); err != nil {
		t.Errorf("pins went with the killed agent: %v", err)
	}
	for _, want := range []string{"2 threads were bound", "0 threads were bound"} {
		out, err := restore()
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("it said %q, %v: want %q", out, err, want)
		}
		if err := web.unrestricted(every)(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := world.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.eventually("each vCPU has a CPU of its own again", web.pinned)
}
