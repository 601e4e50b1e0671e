package nodevm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/joulevirt/joulevirt/test/guest"
	"github.com/joulevirt/joulevirt/test/guest/gobuild"
)

const (
	modulePath = "github.com/joulevirt/joulevirt/"
	qemu       = "/usr/bin/qemu-system-x86_64"
)

// nodeModules are what the node needs of its kernel, and guestModules the guest.
func nodeModules() []string {
	return []string{
		"virtio_pci", "virtio_net", "virtio_console", "kvm_amd", "vhost_net", "tun", "veth", "bridge",
		"sch_fq", "sch_ingress", "cls_bpf", "act_mirred",
	}
}

func guestModules() []string {
	return []string{"virtio_pci", "virtio_net", "virtio_console", "sch_fq", "sch_ingress", "cls_bpf"}
}

// firmware that QEMU starts a guest's kernel with, in folders that Debian has it in.
func firmware() []string {
	return []string{
		"/usr/share/seabios/bios-256k.bin", "/usr/share/qemu/kvmvapic.bin", "/usr/share/qemu/linuxboot_dma.bin",
	}
}

// image is what the node VM boots.
type image struct{ kernel, initramfs string }

// build makes both images in a folder: the guest's is a file of the node's.
func build(ctx context.Context, folder string, o Options) (image, error) {
	for name, pkg := range map[string]string{"noded": "test/nodevm/noded", "guestload": "test/nodevm/guestload"} {
		if err := gobuild.Static(ctx, modulePath+pkg, filepath.Join(folder, name)); err != nil {
			return image{}, err
		}
	}
	files := map[string]string{"init": filepath.Join(folder, "guestload")}
	for name, pkg := range o.GuestPrograms {
		built := filepath.Join(folder, "guest-"+name)
		if err := gobuild.Static(ctx, modulePath+pkg, built); err != nil {
			return image{}, err
		}
		files["usr/bin/"+name] = built
	}
	inner, err := guest.Pack(guest.Options{}, guest.Contents{Files: files, Modules: guestModules()})
	if err != nil {
		return image{}, err
	}
	innermost := filepath.Join(folder, "guest.cpio")
	if err := os.WriteFile(innermost, inner.Initramfs, 0o600); err != nil {
		return image{}, fmt.Errorf("write the guest's initramfs: %w", err)
	}
	files = map[string]string{
		"init": filepath.Join(folder, "noded"), "guest/vmlinuz": inner.Kernel, "guest/initramfs": innermost,
	}
	for name, pkg := range o.Programs {
		built := filepath.Join(folder, "node-"+name)
		if err := gobuild.Static(ctx, modulePath+pkg, built); err != nil {
			return image{}, err
		}
		files["usr/bin/"+name] = built
	}
	if err := addQEMU(ctx, files); err != nil {
		return image{}, err
	}
	outer, err := guest.Pack(guest.Options{}, guest.Contents{Files: files, Modules: nodeModules()})
	if err != nil {
		return image{}, err
	}
	made := image{kernel: outer.Kernel, initramfs: filepath.Join(folder, "node.cpio")}
	if err := os.WriteFile(made.initramfs, outer.Initramfs, 0o600); err != nil {
		return image{}, fmt.Errorf("write the node's initramfs: %w", err)
	}
	return made, nil
}

// addQEMU adds this machine's QEMU, its libraries and its firmware.
func addQEMU(ctx context.Context, files map[string]string) error {
	for _, path := range append(firmware(), qemu) {
		files[strings.TrimPrefix(path, "/")] = path
	}
	output, err := exec.CommandContext(ctx, "ldd", qemu).Output()
	if err != nil {
		return fmt.Errorf("libraries of %s (is qemu-system-x86 installed?): %w", qemu, err)
	}
	libraries := 0
	for line := range strings.Lines(string(output)) {
		// "libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x...)", "/lib64/ld-linux-x86-64.so.2 (0x...)"
		for _, field := range strings.Fields(line) {
			if strings.HasPrefix(field, "/") {
				files[strings.TrimPrefix(field, "/")] = field
				libraries++
			}
		}
	}
	if libraries == 0 {
		return errors.New("ldd names no libraries of " + qemu)
	}
	return nil
}
