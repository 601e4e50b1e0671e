package proc

import (
	"errors"
	"fmt"
	"syscall"
)

// Signal sends a signal to the program. A program that has ended is no error.
func (p *Process) Signal(signal syscall.Signal) error { return p.signal(p.PID, signal) }

// SignalAll is Signal to the program and those that it started.
func (p *Process) SignalAll(signal syscall.Signal) error { return p.signal(-p.PID, signal) }

func (p *Process) signal(pid int, signal syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to %s: %w", signal, p.Name, err)
	}
	return nil
}

// Log is the path of the file that has the program's output.
func (p *Process) Log() string { return p.log }
