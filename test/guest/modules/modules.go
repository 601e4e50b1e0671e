// Package modules loads the kernel modules that package guest packs into an initramfs. It is
// apart from that package because first processes of machines are built with it alone.
package modules

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// packed is their folder in the initramfs.
const packed = "/modules"

// decompress has the kernel decompress a module: MODULE_INIT_COMPRESSED_FILE of <linux/module.h>.
const decompress = 4

// Load loads the packed modules in their order. One that the kernel has already is left out.
func Load() error {
	order, err := os.Open(filepath.Join(packed, "order"))
	if err != nil {
		return fmt.Errorf("find the modules to load: %w", err)
	}
	defer order.Close()
	lines := bufio.NewScanner(order)
	for lines.Scan() {
		if err := load(filepath.Join(packed, lines.Text())); err != nil {
			return err
		}
	}
	return lines.Err()
}

func load(path string) error {
	module, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("load a module: %w", err)
	}
	defer module.Close()
	flags := 0
	if strings.HasSuffix(path, ".xz") {
		flags = decompress
	}
	if err := unix.FinitModule(int(module.Fd()), "", flags); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load module %s: %w", path, err)
	}
	return nil
}
