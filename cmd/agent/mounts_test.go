package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// What is mounted below becomes read-only in the agent's mount namespace, and only there.
func TestMakeReadOnly(t *testing.T) {
	folder := t.TempDir()
	below := filepath.Join(folder, "cgroup")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(t.TempDir(), "mnt")
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		done <- func() error {
			namespace, err := os.Readlink("/proc/thread-self/ns/mnt")
			if err != nil {
				return err
			}
			if err := os.Symlink(namespace, node); err != nil {
				return err
			}
			if err := makeReadOnly(folder, node); err != nil { // the node's namespace: nothing happens
				return err
			}
			if err := os.WriteFile(filepath.Join(folder, "before"), nil, 0o600); err != nil {
				return err
			}
			if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			for _, dir := range []string{folder, below} {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return err
				}
				if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
					return err
				}
			}
			if err := makeReadOnly(folder, node); err != nil {
				return err
			}
			for _, dir := range []string{folder, below} {
				if err := os.WriteFile(filepath.Join(dir, "after"), nil, 0o600); !errors.Is(err, unix.EROFS) {
					t.Errorf("a file is written in %s: %v", dir, err)
				}
			}
			return nil
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(below, "outside"), nil, 0o600); err != nil {
		t.Errorf("outside the namespace: %v", err)
	}
}
