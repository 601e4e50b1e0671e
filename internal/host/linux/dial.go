package linux

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
)

// DialUnix implements host.Host. The path is walked by the kernel with the
// process's root as its root, so that a link which the VM's owner planted there
// never leads out; the connection then goes to the very file that was found,
// through its descriptor.
func (h *Host) DialUnix(ctx context.Context, process host.TaskID, path string) (net.Conn, error) {
	root, err := unix.Open(filepath.Join(h.procRoot, strconv.Itoa(process.PID), "root"),
		unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("file system of process %d: %w", process.PID, goneOr(err))
	}
	defer unix.Close(root)
	// Asked after the opening: a number given to a new process is seen.
	if err := h.check(process); err != nil {
		return nil, fmt.Errorf("socket %s of process %d: %w", path, process.PID, err)
	}
	fd, err := openSocket(root, path)
	if err != nil {
		return nil, fmt.Errorf("socket %s of process %d: %w", path, process.PID, err)
	}
	defer unix.Close(fd)
	var dialer net.Dialer
	// /proc/self is that of the agent itself, whatever the roots are.
	conn, err := dialer.DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd))
	if err != nil {
		return nil, fmt.Errorf("socket %s of process %d: %w", path, process.PID, err)
	}
	return conn, nil
}

var errNotSocket = errors.New("is not a socket")

func openSocket(root int, path string) (int, error) {
	fd, err := unix.Openat2(root, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC,
		// No magic links: those of /proc lead anywhere.
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, err
	}
	var stat unix.Stat_t
	if err = unix.Fstat(fd, &stat); err == nil && stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		err = errNotSocket
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
