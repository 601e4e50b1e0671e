package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	libvirtdSocket = "/run/libvirt/libvirt-sock"
	socketDeadline = 2 * time.Minute
	socketPoll     = 10 * time.Millisecond
	// launcherReadyFD is the ready line's descriptor in virt-launcher, which
	// has no lifeline.
	launcherReadyFD = 3
)

// Launch is virt-launcher: it runs libvirt's daemons, starting them again when
// they exit, as KubeVirt's does; it reports on the ready line and ends on
// SIGTERM.
func Launch() int {
	ready := os.NewFile(launcherReadyFD, "ready")
	unix.CloseOnExec(launcherReadyFD)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	ended := make(chan error, 2)
	if _, err := startDaemon("/usr/sbin/virtlogd", ended); err != nil {
		report(ready, err)
		return 1
	}
	if err := startLibvirt(ctx, ended); err != nil {
		report(ready, err)
		return 1
	}
	report(ready, nil)
	if err := supervise(ctx, ended); err != nil {
		fmt.Fprintln(os.Stderr, LauncherName+":", err)
		return 1
	}
	return 0
}

// supervise starts daemons again as they end, until ctx is done.
func supervise(ctx context.Context, ended chan error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			fmt.Fprintln(os.Stderr, LauncherName+":", err, "(starting it again)")
			var exit *daemonExit
			if !errors.As(err, &exit) {
				return err
			}
			if exit.program == libvirtd {
				err = startLibvirt(ctx, ended)
			} else {
				_, err = startDaemon(exit.program, ended)
			}
			if err != nil {
				return err
			}
		}
	}
}

const libvirtd = "/usr/sbin/libvirtd"

// daemonExit says that a daemon ended, which none should.
type daemonExit struct {
	program string
	cause   error
}

func (e *daemonExit) Error() string {
	return fmt.Sprintf("%s ended: %v", filepath.Base(e.program), e.cause)
}
func (e *daemonExit) Unwrap() error { return e.cause }

// startDaemon runs program in the foreground and sends a *daemonExit when it
// ends.
func startDaemon(program string, ended chan<- error) (*os.Process, error) {
	cmd := exec.Command(program)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() { ended <- &daemonExit{program: program, cause: cmd.Wait()} }()
	return cmd.Process, nil
}

// startLibvirt runs libvirtd and returns when its socket has KubeVirt's name.
func startLibvirt(ctx context.Context, ended chan error) error {
	process, err := startDaemon(libvirtd, ended)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, socketDeadline)
	defer cancel()
	tick := time.NewTicker(socketPoll)
	defer tick.Stop()
	for {
		// A socket stays the same socket under another name.
		err := os.Rename(libvirtdSocket, SocketPath)
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("give libvirt's socket KubeVirt's name: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("libvirtd (process %d) opened no socket: %w", process.Pid, ctx.Err())
		case err := <-ended:
			return err
		}
	}
}
