//go:build e2e

package guest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cavaliergopher/cpio"
)

func TestBuild(t *testing.T) {
	opts := Options{CacheDir: filepath.Join(t.TempDir(), "cache")}
	first, err := Build(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(first.Initramfs)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Build(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(second.Initramfs)
	if err != nil {
		t.Fatal(err)
	}
	if first != second || !os.SameFile(before, after) {
		t.Errorf("the same content gave %+v, then %+v", first, second)
	}
	content, err := os.ReadFile(first.Initramfs)
	if err != nil {
		t.Fatal(err)
	}
	names := list(t, content)
	for _, want := range []string{"init", "bin/busybox", "bin/guestd", "modules/order", "modules/virtio_net.ko", "modules/virtiofs.ko", "proc", "dev"} {
		if !slices.Contains(names, want) {
			t.Errorf("the initramfs %q lacks %s", names, want)
		}
	}
}

// list names the entries of an archive, and fails if a file comes before its
// folder.
func list(t *testing.T, archive []byte) []string {
	t.Helper()
	names := []string{"."}
	reader := cpio.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(names, filepath.Dir(header.Name)) {
			t.Errorf("%s comes before its folder", header.Name)
		}
		names = append(names, header.Name)
	}
}
