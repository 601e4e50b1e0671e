package guest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Contents are those of an initramfs without a shell.
type Contents struct {
	// Files of this machine, by their paths in the guest without the first slash. The
	// kernel runs "init".
	Files map[string]string
	// Modules of the kernel, which the guest finds in /modules with all that they need:
	// /modules/order has their files in the order to load them in.
	Modules []string
}

// Packed is a kernel and what goes with it.
type Packed struct {
	// Kernel is the path of opts.HostRoot's.
	Kernel string
	// Initramfs is an archive, uncompressed.
	Initramfs []byte
}

// Pack makes an initramfs for the kernel of opts, whose cache is not used.
func Pack(opts Options, contents Contents) (Packed, error) {
	host, release, err := opts.kernel()
	if err != nil {
		return Packed{}, err
	}
	files, err := moduleFiles(host, release, contents.Modules)
	if err != nil {
		return Packed{}, err
	}
	for _, path := range slices.Sorted(maps.Keys(contents.Files)) {
		content, err := os.ReadFile(contents.Files[path])
		if err != nil {
			return Packed{}, fmt.Errorf("read a file for the guest: %w", err)
		}
		files = append(files, file{path: path, mode: 0o755, content: content})
	}
	var archive bytes.Buffer
	if err := writeArchive(&archive, files); err != nil {
		return Packed{}, fmt.Errorf("pack the guest's initramfs: %w", err)
	}
	return Packed{Kernel: filepath.Join(host, "boot", "vmlinuz-"+release), Initramfs: archive.Bytes()}, nil
}
