package handler

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watchExit calls ended once when the process is gone, which need not be a
// child. unwatch gives up and returns when ended will not be called any more.
func watchExit(pid int, ended func()) (unwatch func(), err error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	file := os.NewFile(uintptr(fd), fmt.Sprintf("pidfd of %d", pid))
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	var closed sync.Once
	stop := func() { closed.Do(func() { _ = file.Close() }) }
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A pidfd turns readable when its process ends; it cannot be read.
		if err := raw.Read(hasExited); err == nil {
			ended()
		}
		stop()
	}()
	return func() { stop(); <-done }, nil
}

// hasExited reports whether the process behind a pidfd has ended.
func hasExited(fd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0
}
