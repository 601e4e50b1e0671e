package shares

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/test/hosttest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newRoot returns a folder of shares that is a mount of its own, of a kind of propagation.
func newRoot(t *testing.T, propagation uintptr) string {
	t.Helper()
	dir := t.TempDir()
	must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	must(t, unix.Mount("", dir, "", propagation, ""))
	return dir
}

// only mounts the shares of these folders, of 1 MiB.
func only(root string, folders ...string) error {
	wanted := map[string]share{}
	for _, folder := range folders {
		wanted[folder] = share{volume: "v", bytes: 1 << 20}
	}
	return errors.Join(mountOnly(root, wanted, logr.Discard())...)
}

// isMounted checks a share as kubelet, virtiofsd and nginx find it.
func isMounted(t *testing.T, root, folder string) string {
	t.Helper()
	files := filepath.Join(root, folder, "files")
	var stat unix.Statfs_t
	must(t, unix.Statfs(files, &stat))
	if flags := int64(unix.ST_NODEV | unix.ST_NOSUID | unix.ST_NOEXEC); stat.Type != unix.TMPFS_MAGIC || stat.Flags&flags != flags ||
		int64(stat.Blocks)*stat.Bsize != 1<<20 || stat.Files != inodes {
		t.Errorf("%s: %+v", files, stat)
	}
	for path, want := range map[string]struct {
		mode  fs.FileMode
		owner uint32
	}{filepath.Dir(files): {0o755 | fs.ModeDir, 0}, files: {0o770 | fs.ModeDir | fs.ModeSetgid, 107}} {
		info, err := os.Lstat(path)
		must(t, err)
		of := info.Sys().(*syscall.Stat_t)
		if info.Mode() != want.mode || of.Uid != want.owner || of.Gid != want.owner {
			t.Errorf("%s has mode %v and belongs to %d:%d", path, info.Mode(), of.Uid, of.Gid)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(files))
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the files there is %v: %v", entries, err)
	}
	return files
}

func isGone(t *testing.T, root, folder string) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(root, folder)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", folder, err)
	}
}

func TestMountOnly(t *testing.T) {
	root := newRoot(t, unix.MS_SHARED)
	must(t, checkRoot(root))
	foreign := filepath.Join(root, "of-somebody-else")
	must(t, os.Mkdir(foreign, 0o700))
	must(t, only(root, one, other))
	isMounted(t, root, other)
	kept := filepath.Join(isMounted(t, root, one), "kept")
	must(t, os.WriteFile(kept, []byte("x"), 0o600))

	must(t, only(root, one))
	isGone(t, root, other)
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a share that stays lost a file: %v", err)
	}
	must(t, only(root))
	isGone(t, root, one)
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("a folder that is no share: %v", err)
	}
}

// TestMountGoesOn finds what a process left that was killed between two system calls.
func TestMountGoesOn(t *testing.T) {
	root := newRoot(t, unix.MS_SHARED)
	path := filepath.Join(root, one)
	for name, left := range map[string]func(){
		"the folder":                  func() { must(t, os.Mkdir(path, 0o755)) },
		"the mount":                   func() { must(t, only(root, one)); must(t, os.Remove(filepath.Join(path, "files"))) },
		"files that belong to root":   func() { must(t, only(root, one)); remake(t, path) },
		"the folder, to be unmounted": func() { must(t, only(root, one)); must(t, unix.Unmount(path, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			left()
			must(t, only(root, one))
			isMounted(t, root, one)
			must(t, unix.Unmount(path, 0))
			must(t, only(root))
			isGone(t, root, one)
		})
	}
}

// remake leaves the files as they are before they have their name.
func remake(t *testing.T, path string) {
	t.Helper()
	must(t, os.Remove(filepath.Join(path, "files")))
	must(t, os.Mkdir(filepath.Join(path, "made"), 0o700))
}

// TestBusyShareStays: a share in use is not taken away, and is unmounted when it is not in use.
func TestBusyShareStays(t *testing.T) {
	root := newRoot(t, unix.MS_SHARED)
	must(t, only(root, one))
	open, err := os.Create(filepath.Join(isMounted(t, root, one), "open"))
	must(t, err)
	if err := only(root); !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), one) {
		t.Errorf("a share in use: %v, want that it is busy", err)
	}
	isMounted(t, root, one)
	must(t, open.Close())
	must(t, only(root))
	isGone(t, root, one)
}

// TestShareIsBounded: neither bytes nor small files take more of the node's memory than a share has.
func TestShareIsBounded(t *testing.T) {
	root := newRoot(t, unix.MS_SHARED)
	must(t, only(root, one))
	files := isMounted(t, root, one)
	large := filepath.Join(files, "large")
	if err := os.WriteFile(large, make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("2 MiB in a share of 1 MiB: %v", err)
	}
	must(t, os.Remove(large))
	made := 0
	for ; made < 100_000; made++ {
		if err := os.WriteFile(filepath.Join(files, fmt.Sprint(made)), nil, 0o600); err != nil {
			if !errors.Is(err, unix.ENOSPC) {
				t.Fatal(err)
			}
			break
		}
	}
	if made > inodes {
		t.Errorf("%d files were made, want at most %d", made, inodes)
	}
	must(t, only(root))
}

func TestCheckRoot(t *testing.T) {
	private := newRoot(t, unix.MS_PRIVATE)
	file := filepath.Join(newRoot(t, unix.MS_SHARED), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for root, want := range map[string]string{
		private:        "mountPropagation Bidirectional",
		private + "/x": "no such file",
		file:           "no directory",
	} {
		if err := checkRoot(root); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", root, err, want)
		}
	}
}

// TestUnmountReachesTheNode: what another view of the folder has, as kubelet does, goes with the share.
func TestUnmountReachesTheNode(t *testing.T) {
	root := newRoot(t, unix.MS_SHARED)
	node := t.TempDir()
	must(t, unix.Mount(root, node, "", unix.MS_BIND|unix.MS_REC, ""))
	t.Cleanup(func() { must(t, unix.Unmount(node, unix.MNT_DETACH)) })
	must(t, only(root, one))
	isMounted(t, node, one)
	must(t, only(root))
	hosttest.Eventually(t, "the node has no share", func() bool {
		_, err := os.Lstat(filepath.Join(node, one))
		return errors.Is(err, fs.ErrNotExist)
	})
}
