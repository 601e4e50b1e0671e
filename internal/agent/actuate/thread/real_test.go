package thread_test

import (
	"errors"
	"testing"

	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

func TestMain(m *testing.M) { hosttest.Main(m) }

// realAgent is the host and the journal of an agent that can be killed and started again, on
// the threads of a real process.
type realAgent struct {
	t   testing.TB
	dir string
	// Process whose threads are acted on.
	Process *hosttest.VM
	// VCPU is the thread of its first vCPU.
	VCPU    host.TaskID
	Host    *linux.Host
	Journal *journal.Journal
}

// newRealAgent starts a process of VM shop/web. start comes next.
func newRealAgent(t testing.TB) *realAgent {
	a := &realAgent{t: t, dir: t.TempDir(), Process: hosttest.StartVM(t, "shop", "web")}
	a.VCPU = a.Process.Thread("CPU 0/TCG")
	t.Cleanup(a.kill)
	return a
}

// load is the start of an agent, from what is on disk.
func (a *realAgent) load() journal.Content {
	a.t.Helper()
	h, err := linux.New(linux.Options{ProcRoot: "/proc", SysRoot: "/sys"})
	if err != nil {
		a.t.Fatal(err)
	}
	facts, err := h.Facts()
	if err != nil {
		a.t.Fatal(err)
	}
	j, err := journal.Open(a.dir, facts.BootID)
	if err != nil {
		a.t.Fatal(err)
	}
	content, err := j.Load()
	if err != nil {
		a.t.Fatal(err)
	}
	a.Host, a.Journal = h, j
	return content
}

// kill ends an agent without its putting anything back.
func (a *realAgent) kill() {
	a.t.Helper()
	if a.Journal == nil {
		return
	}
	if err := errors.Join(a.Journal.Close(), a.Host.Close()); err != nil {
		a.t.Error(err)
	}
	a.Journal, a.Host = nil, nil
}

// sample reads the process's threads.
func (a *realAgent) sample() host.ProcessSample {
	a.t.Helper()
	if _, err := a.Host.Processes(); err != nil {
		a.t.Fatal(err)
	}
	sample, err := a.Host.Sample(a.Process.ID())
	if err != nil {
		a.t.Fatal(err)
	}
	return sample
}
