package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/joulevirt/joulevirt/test/cluster/debian"
	"github.com/joulevirt/joulevirt/test/env/node/internal/sandbox"
	"github.com/joulevirt/joulevirt/test/guest"
	"github.com/joulevirt/joulevirt/test/internal/filelock"
)

// Kernel is that of an emulated machine, by the release of Debian that has it.
type Kernel string

// Kernels with what the levers need: fq, tcx or clsact, and on Linux 6.12 slices.
const (
	Linux6_1  Kernel = "bookworm"
	Linux6_12 Kernel = "trixie"
)

const (
	// emulatedMiB is an emulated machine's memory. Its /var/lib is in it.
	emulatedMiB = "4096"
	filesServer = "/usr/lib/qemu/virtiofsd" // package qemu-system-common
	// processor keeps fast string instructions: without, Linux 6.12 was seen to panic while it runs
	// a nested VM.
	processor = "max,la57=off"
)

// emulatorPackages are what emulated machines take on this one.
func emulatorPackages() []string {
	return []string{"kmod", "mmdebstrap", "qemu-system-common", "qemu-system-x86"}
}

// ensure returns a folder with the kernel and its modules, getting them unless
// the cache has them.
func (k Kernel) ensure(ctx context.Context, e *Environment) (string, error) {
	source := e.options.Cluster.Binaries
	if err := debian.Host().Ensure(ctx, source.Steps, emulatorPackages()...); err != nil {
		return "", err
	}
	dir := filepath.Join(source.Cache, "kernel-"+string(k))
	unlock, err := filelock.Take(ctx, dir+".lock", func() {
		source.Steps.Printf("setup: another process gets the kernel of %s: waiting", k)
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(dir) {
		return dir, nil
	}
	staged := dir + ".tmp" // ours alone: we hold the lock
	if err := os.RemoveAll(staged); err != nil {
		return "", fmt.Errorf("remove what an earlier try left: %w", err)
	}
	defer os.RemoveAll(staged)
	return dir, source.Steps.Run("get the kernel of Debian "+string(k), func(log io.Writer) error {
		cmd := exec.CommandContext(ctx, "mmdebstrap", "--mode=root", "--variant=extract", "--include=linux-image-cloud-amd64", string(k), staged)
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("mmdebstrap %s (it takes root): %w", k, err)
		}
		// Debian's releases differ in whether /lib is a link.
		if err := os.Symlink("usr/lib", filepath.Join(staged, "lib")); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		releases, err := filepath.Glob(filepath.Join(staged, "lib", "modules", "*"))
		if err != nil || len(releases) != 1 {
			return fmt.Errorf("kernels of Debian %s are %q, want one", k, releases)
		}
		if output, err := exec.CommandContext(ctx, "depmod", "--basedir="+staged, filepath.Base(releases[0])).CombinedOutput(); err != nil {
			return fmt.Errorf("list the kernel's modules: %w: %s", err, output)
		}
		return os.Rename(staged, dir)
	})
}

// startEmulated starts QEMU, which emulates a machine with this machine's files.
func (n *Node) startEmulated(ctx context.Context) error {
	dir, err := n.options.Kernel.ensure(ctx, n.env)
	if err != nil {
		return err
	}
	network := n.env.network
	n.sandbox.Machine = &sandbox.Machine{
		Address: netip.PrefixFrom(n.Address(), 24), Gateway: network.machine(), Modules: filepath.Join(dir, "lib", "modules"),
	}
	if n.config, err = n.sandbox.Write(); err != nil {
		return err
	}
	packed, err := guest.Pack(guest.Options{HostRoot: dir}, guest.Contents{
		Files: map[string]string{"init": n.env.noded}, Modules: []string{"virtio_pci", "virtio_net", "virtiofs"},
	})
	if err != nil {
		return err
	}
	initramfs, socket := filepath.Join(n.sandbox.Dir, "initramfs"), filepath.Join(n.sandbox.Dir, "files.sock")
	if err := os.WriteFile(initramfs, packed.Initramfs, 0o600); err != nil {
		return fmt.Errorf("write the initramfs of node %s: %w", n.Name, err)
	}
	// CAP_SYS_ADMIN: layers of images have trusted attributes. Without cache=always the machine
	// reads a program anew with each start.
	files, err := n.env.group.Start(n.Name+"-files", filesServer, "--socket-path="+socket, "--rlimit-nofile=0",
		"-o", "source=/,sandbox=chroot,cache=always,xattr,modcaps=+sys_admin")
	if err != nil {
		return err
	}
	if err := files.WaitReady(ctx, func(context.Context) error {
		_, err := os.Stat(socket)
		return err
	}); err != nil {
		return err
	}
	tap, err := network.plugTap(n.number)
	if err != nil {
		return err
	}
	n.machine, err = n.env.group.Start(n.Name, "/usr/bin/nsenter", "--net="+network.path(), "--",
		"/usr/bin/qemu-system-x86_64", "-accel", "tcg,thread=multi,tb-size=512", "-machine", "q35", "-cpu", processor,
		"-smp", "2", "-m", emulatedMiB, "-object", "memory-backend-memfd,id=memory,share=on,size="+emulatedMiB+"M", "-numa", "node,memdev=memory",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-kernel", packed.Kernel, "-initrd", initramfs,
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check net.ifnames=0 cgroup_no_v1=all -- boot "+n.config,
		"-chardev", "socket,id=files,path="+socket, "-device", "vhost-user-fs-pci,chardev=files,queue-size=1024,tag="+sandbox.FilesTag,
		"-netdev", "tap,id=card,ifname="+tap+",script=no,downscript=no", "-device", "virtio-net-pci,netdev=card,romfile=")
	return err
}
