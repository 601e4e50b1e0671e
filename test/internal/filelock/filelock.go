// Package filelock lets one process at a time fill a part of the cache.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Take takes an exclusive lock on a file, which the kernel drops when the
// holder dies. waiting is called once if another process holds it.
func Take(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for reported := false; ; reported = true {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !reported {
			waiting()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("wait for the lock %s: %w", path, ctx.Err())
		}
	}
}
