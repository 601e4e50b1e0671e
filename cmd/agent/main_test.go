package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/test/hosttest"
)

// agentVariable makes the test binary the agent, with the arguments of its
// command line and only the capabilities that its DaemonSet gives it.
const agentVariable = "JOULEVIRT_TEST_AGENT"

const (
	confine = "confine"
	serving = "serving"
)

func TestMain(m *testing.M) {
	switch os.Getenv(agentVariable) {
	case confine:
		if err := execConfined(); err != nil {
			fmt.Fprintln(os.Stderr, "confine the agent:", err)
			os.Exit(1)
		}
	case serving:
		main()
	default:
		hosttest.Main(m)
	}
}

// execConfined becomes the agent. Root has after an exec what the bounding set
// leaves.
func execConfined() error {
	runtime.LockOSThread()
	kept := map[uintptr]bool{
		unix.CAP_SYS_NICE: true, unix.CAP_SYS_PTRACE: true, unix.CAP_DAC_OVERRIDE: true,
		unix.CAP_SYS_ADMIN: true, unix.CAP_NET_ADMIN: true,
	}
	for bit := uintptr(0); bit <= unix.CAP_LAST_CAP; bit++ {
		if kept[bit] {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, bit, 0, 0, 0); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return unix.Exec(self, os.Args, []string{agentVariable + "=" + serving})
}

// agentProcess is the agent, running.
type agentProcess struct {
	t   *testing.T
	cmd *exec.Cmd
}

func startAgent(t *testing.T, args ...string) *agentProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &agentProcess{t: t, cmd: exec.Command(self, args...)}
	p.cmd.Env = []string{agentVariable + "=" + confine}
	p.cmd.Stdout, p.cmd.Stderr = t.Output(), t.Output()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// kill ends the agent as a crash does.
func (p *agentProcess) kill() {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended by itself
	_ = p.cmd.Wait()         // its status says that it was killed
}

// terminate asks the agent to end, as the kubelet does, and wants it to do so
// in the grace period with success.
func (p *agentProcess) terminate() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	grace, cancel := context.WithTimeout(p.t.Context(), hosttest.Patience)
	defer cancel()
	select {
	case err := <-ended:
		if err != nil {
			p.t.Errorf("the agent ended with %v", err)
		}
	case <-grace.Done():
		p.t.Fatal("the agent did not end after SIGTERM")
	}
}
