package hosttest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Disk is a small file system of the test's own, which ends with the test.
type Disk struct {
	// Dir is where it is mounted.
	Dir string
	t   testing.TB
}

// NewDisk mounts a file system of 64 KiB in memory.
func NewDisk(t testing.TB) *Disk {
	t.Helper()
	d := &Disk{Dir: t.TempDir(), t: t}
	if err := unix.Mount("tmpfs", d.Dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Fatalf("mount a file system in memory: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.Dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Fill writes until no space is left, and returns what makes room again.
func (d *Disk) Fill() (free func()) {
	d.t.Helper()
	name := filepath.Join(d.Dir, "ballast")
	file, err := os.Create(name)
	if err != nil {
		d.t.Fatal(err)
	}
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, unix.Getpagesize()))
	}
	if !errors.Is(err, unix.ENOSPC) {
		d.t.Fatalf("fill %s: %v", d.Dir, err)
	}
	return func() {
		d.t.Helper()
		if err := os.Remove(name); err != nil {
			d.t.Fatal(err)
		}
	}
}

// MakeReadOnly has all writes refused, as Linux does after an error of the medium, and
// returns what lets them through again. No file may be open for writing.
func (d *Disk) MakeReadOnly() (writable func()) {
	d.t.Helper()
	remount := func(flags uintptr) {
		d.t.Helper()
		if err := unix.Mount("", d.Dir, "", unix.MS_REMOUNT|flags, ""); err != nil {
			d.t.Fatalf("mount %s anew: %v", d.Dir, err)
		}
	}
	remount(unix.MS_RDONLY)
	return func() { remount(0) }
}
