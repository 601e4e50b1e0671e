package hosttest

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// NewPinRoot returns a folder that may be made in a BPF file system of the test's own, which
// ends with the test.
func NewPinRoot(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0700"); err != nil {
		t.Fatalf("mount a BPF file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "joulevirt")
}
