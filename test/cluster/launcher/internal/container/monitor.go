package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// exitKilled is the status of a container whose owner vanished.
const exitKilled = 137

// Monitor is virt-launcher-monitor: the container's process 1. It builds the
// root, starts virt-launcher, adopts and reaps what that leaves behind (QEMU is
// a daemon), and returns the exit status of the container.
//
// Being process 1 of a PID namespace is what makes ending certain: when it
// dies, in whatever way, the kernel kills every process of the container before
// its parent can reap it.
func Monitor() int {
	lifeline := os.NewFile(LifelineFD, "lifeline")
	ready := os.NewFile(ReadyFD, "ready")
	unix.CloseOnExec(LifelineFD)
	unix.CloseOnExec(ReadyFD)

	var spec Spec
	if err := json.NewDecoder(lifeline).Decode(&spec); err != nil {
		return exitKilled // the owner died or gave up before it told us anything
	}
	go func() {
		// Not PR_SET_PDEATHSIG: that follows the thread that forked, and Go may
		// end threads while the process lives on.
		_, _ = io.Copy(io.Discard, lifeline)
		os.Exit(exitKilled)
	}()

	child, err := startLauncher(spec, ready)
	if err != nil {
		report(ready, err)
		fmt.Fprintln(os.Stderr, MonitorName+":", err)
		return 1
	}
	ready.Close() // virt-launcher reports from here on
	return reap(child)
}

func startLauncher(spec Spec, ready *os.File) (*os.Process, error) {
	if err := enterRoot(spec); err != nil {
		return nil, err
	}
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return nil, fmt.Errorf("set the pod's host name: %w", err)
	}
	child, err := os.StartProcess(programDir+"/"+LauncherName, append([]string{"/usr/bin/" + LauncherName}, spec.LauncherArgs...), &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LIBVIRT_DRIVER_DIR=" + driverDir},
		Files: []*os.File{nil, os.Stdout, os.Stderr, ready},
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", LauncherName, err)
	}
	return child, nil
}

// reap collects every process that ends in the container and returns the status
// of child once that is among them.
func reap(child *os.Process) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for range signals {
			_ = child.Signal(syscall.SIGTERM) // already gone: reap returns
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, MonitorName+": wait for processes:", err)
			return 1
		}
		if pid == child.Pid {
			return status.ExitStatus()
		}
	}
}
