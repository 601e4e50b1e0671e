package proc

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
)

// Signal sends a signal to the program. A program that has ended is no error.
func (p *Process) Signal(signal syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := syscall.Kill(p.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to %s: %w", signal, p.Name, err)
	}
	return nil
}

// ExitCode waits for the program's end and returns its exit code, -1 when a
// signal ended it.
func (p *Process) ExitCode() int {
	<-p.done
	var exit *exec.ExitError
	switch {
	case p.err == nil:
		return 0
	case errors.As(p.err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// Log is the path of the file that has the program's output.
func (p *Process) Log() string { return p.log }
