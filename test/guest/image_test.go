package guest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cavaliergopher/cpio"
	"github.com/google/go-cmp/cmp"
)

func TestLoadOrder(t *testing.T) {
	const modulesDep = `kernel/drivers/virtio/virtio.ko:
kernel/drivers/virtio/virtio_ring.ko: kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio-pci.ko.xz: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko
kernel/drivers/net/virtio_net.ko: kernel/net/failover.ko kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko
kernel/net/failover.ko:
`
	got, err := loadOrder(strings.NewReader(modulesDep), []string{"virtio_pci", "virtio_net"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"kernel/drivers/virtio/virtio.ko", "kernel/drivers/virtio/virtio_ring.ko", "kernel/drivers/virtio/virtio-pci.ko.xz",
		"kernel/net/failover.ko", "kernel/drivers/net/virtio_net.ko",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unexpected order (-want +got):\n%s", diff)
	}
	if _, err := loadOrder(strings.NewReader(modulesDep), []string{"e1000"}); err == nil || !strings.Contains(err.Error(), "e1000") {
		t.Errorf("a module that does not exist gave the error %v", err)
	}
}

func TestCompareReleases(t *testing.T) {
	want := []string{"5.10.0-30-cloud-amd64", "6.1.0-9-cloud-amd64", "6.1.0-10-cloud-amd64", "6.1.0-56-cloud-amd64", "6.12.4-1-cloud-amd64"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, compareReleases)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unexpected order (-want +got):\n%s", diff)
	}
}

func TestNoKernel(t *testing.T) {
	root := t.TempDir()
	_, err := newestCloudKernel(root)
	if err == nil || !strings.Contains(err.Error(), "install linux-image-cloud-amd64") {
		t.Errorf("without a kernel the error is %v", err)
	}
}

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
	for _, want := range []string{"init", "bin/busybox", "bin/guestd", "modules/order", "modules/virtio_net.ko", "proc", "dev"} {
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
