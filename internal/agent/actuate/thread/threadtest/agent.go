// Package threadtest is what tests of actuators need to work on the threads of a real
// process as an agent does.
package threadtest

import (
	"errors"
	"testing"

	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/host/linux"
)

// Agent is the host and the journal of an agent that can be killed and started again.
type Agent struct {
	t   testing.TB
	dir string
	// Process whose threads are acted on.
	Process *hosttest.VM
	// VCPU is the thread of its first vCPU.
	VCPU    host.TaskID
	Host    *linux.Host
	Journal *journal.Journal
}

// New starts a process of VM shop/web. Start comes next.
func New(t testing.TB) *Agent {
	a := &Agent{t: t, dir: t.TempDir(), Process: hosttest.StartVM(t, "shop", "web")}
	a.VCPU = a.Process.Thread("CPU 0/TCG")
	t.Cleanup(a.Kill)
	return a
}

// Start is the start of an agent, from what is on disk: the journal's entries of
// affinities are returned, Journal has the others.
func (a *Agent) Start() []journal.Entry {
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
	entries, err := j.Load()
	if err != nil {
		a.t.Fatal(err)
	}
	a.Host, a.Journal = h, j
	return entries
}

// Kill ends an agent without its putting anything back.
func (a *Agent) Kill() {
	a.t.Helper()
	if a.Journal == nil {
		return
	}
	if err := errors.Join(a.Journal.Close(), a.Host.Close()); err != nil {
		a.t.Error(err)
	}
	a.Journal, a.Host = nil, nil
}

// Sample reads the process's threads.
func (a *Agent) Sample() host.ProcessSample {
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
