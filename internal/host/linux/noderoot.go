package linux

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

var errNotFile = errors.New("is not a plain file")

// nodeRoot is the node's own file system.
type nodeRoot struct{ fd int }

// openNodeRoot goes by the node's first process: no folder of the node needs to be
// mounted. The caller closes it.
func (h *Host) openNodeRoot() (nodeRoot, error) {
	path := filepath.Join(h.procRoot, "1/root")
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nodeRoot{}, fmt.Errorf("file system of the node at %s: %w", path, err)
	}
	return nodeRoot{fd: fd}, nil
}

func (r nodeRoot) close() { unix.Close(r.fd) }

// open opens a file or folder by its absolute path on the node, whose symbolic links
// stay on the node. It never waits, not even for a pipe.
func (r nodeRoot) open(path string) (*os.File, error) {
	fd, err := unix.Openat2(r.fd, path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("%s of the node: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// read returns the content of a plain file of at most limit bytes.
func (r nodeRoot) read(path string, limit int64) ([]byte, error) {
	file, err := r.open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s of the node: %w", path, errors.Join(err, errNotFile))
	}
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s of the node: %w", path, err)
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("%s of the node is longer than %d bytes", path, limit)
	}
	return content, nil
}
