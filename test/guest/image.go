// Package guest builds the small Linux guest that the tests boot as VMs:
// Debian's cloud kernel with an initramfs of busybox, the drivers of virtio's
// network and file system, and one server (see guestd).
package guest

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/joulevirt/joulevirt/test/guest/gobuild"
)

const guestdPackage = "github.com/joulevirt/joulevirt/test/guest/guestd"

//go:embed init.sh
var initScript string

// Image is a guest ready for direct kernel boot. Both files lie in the cache,
// so that a hypervisor may change their owner without touching the host's.
type Image struct {
	Kernel    string
	Initramfs string
}

// Options says where an image is built from and to.
type Options struct {
	// CacheDir keeps the images and the programs in them. Required.
	CacheDir string
	// HostRoot is the file system that holds /boot, /lib/modules and
	// /usr/bin/busybox; empty means "/".
	HostRoot string
	// KernelRelease picks a kernel, as in `uname -r`; empty means the newest
	// Debian cloud kernel under HostRoot.
	KernelRelease string
}

// kernel is the file system that holds it, and its release.
func (o Options) kernel() (host, release string, err error) {
	if host = o.HostRoot; host == "" {
		host = "/"
	}
	if release = o.KernelRelease; release == "" {
		release, err = newestCloudKernel(host)
	}
	return host, release, err
}

// Build returns the image for opts, building what the cache lacks. File names
// carry the kernel release and a hash of the contents: a changed kernel,
// busybox or server yields a new image beside the old one. Safe to run
// concurrently on one cache.
func Build(ctx context.Context, opts Options) (Image, error) {
	host, release, err := opts.kernel()
	if err != nil {
		return Image{}, err
	}
	guestd := filepath.Join(opts.CacheDir, "guestd")
	if err := gobuild.Static(ctx, guestdPackage, guestd); err != nil {
		return Image{}, err
	}
	// The modules that the guest cannot do without.
	archive, err := pack(host, release, map[string]string{"init": initScript},
		map[string]string{"bin/busybox": filepath.Join(host, "usr/bin/busybox"), "bin/guestd": guestd}, []string{"button", "virtio_pci", "virtio_net", "virtiofs"})
	if err != nil {
		return Image{}, err
	}
	// Uncompressed: an emulated CPU unpacks slower than QEMU copies.
	initramfs, err := store(opts.CacheDir, "initramfs-"+release, ".cpio", pad(archive))
	if err != nil {
		return Image{}, err
	}
	vmlinuz, err := os.ReadFile(filepath.Join(host, "boot", "vmlinuz-"+release))
	if err != nil {
		return Image{}, fmt.Errorf("read the guest's kernel (install linux-image-cloud-amd64): %w", err)
	}
	kernel, err := store(opts.CacheDir, "vmlinuz-"+release, "", pad(vmlinuz))
	if err != nil {
		return Image{}, err
	}
	return Image{Kernel: kernel, Initramfs: initramfs}, nil
}

// pad adds zeros, which kernels skip, until the checksum fits into 31 bits: KubeVirt 1.7.0 writes it into
// a field of a VMI's status that its schema bounds so, and the VM never gets Running.
func pad(content []byte) []byte {
	for crc32.ChecksumIEEE(content) > math.MaxInt32 {
		content = append(content, 0, 0, 0, 0) // archives have blocks of four
	}
	return content
}

// store writes content to dir under a name that carries its hash, unless it is
// there already, and returns the path.
func store(dir, name, suffix string, content []byte) (string, error) {
	sum := sha256.Sum256(content)
	path := filepath.Join(dir, name+"-"+hex.EncodeToString(sum[:8])+suffix)
	if info, err := os.Stat(path); err == nil && info.Size() == int64(len(content)) {
		return path, nil
	}
	staged, err := os.CreateTemp(dir, ".image-")
	if err != nil {
		return "", fmt.Errorf("create a staging file for %s: %w", path, err)
	}
	defer os.Remove(staged.Name())
	_, err = io.Copy(staged, bytes.NewReader(content))
	if closeErr := staged.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		// The hypervisor reads it as its own user.
		err = os.Chmod(staged.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(staged.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return path, nil
}
