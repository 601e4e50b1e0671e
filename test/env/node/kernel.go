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
	"strings"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
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
	// processor keeps fast string instructions: without, Linux 6.12 was seen to panic while it runs
	// a nested VM.
	processor = "max,la57=off"
)

// ensure returns a folder with the kernel and its modules, getting them unless
// the cache has them.
func (k Kernel) ensure(ctx context.Context, source binaries.Source) (string, error) {
	if err := debian.Host().Ensure(ctx, source.Steps, "kmod"); err != nil {
		return "", err
	}
	return unpackDebian(ctx, source, "kernel", string(k), []string{"linux-image-cloud-amd64"}, func(dir string) error {
		// Debian's releases differ in whether /lib is a link.
		if err := os.Symlink("usr/lib", filepath.Join(dir, "lib")); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		releases, err := filepath.Glob(filepath.Join(dir, "lib", "modules", "*"))
		if err != nil || len(releases) != 1 {
			return fmt.Errorf("kernels of Debian %s are %q, want one", k, releases)
		}
		if output, err := exec.CommandContext(ctx, "depmod", "--basedir="+dir, filepath.Base(releases[0])).CombinedOutput(); err != nil {
			return fmt.Errorf("list the kernel's modules: %w: %s", err, output)
		}
		return nil
	})
}

// emulator is a folder with QEMU 10 and its server of files. Machines that QEMU 7.2 emulates were
// seen to end within five minutes of fast packets for their VM.
type emulator string

func ensureEmulator(ctx context.Context, source binaries.Source) (emulator, error) {
	dir, err := unpackDebian(ctx, source, "emulator", "trixie", []string{"qemu-system-x86", "virtiofsd"}, func(string) error { return nil })
	return emulator(dir), err
}

// path is that of what the folder has below /usr.
func (e emulator) path(elements ...string) string {
	return filepath.Join(append([]string{string(e), "usr"}, elements...)...)
}

// command starts a program with its own libraries: this machine's may be older.
func (e emulator) command(program string, args ...string) []string {
	libraries := e.path("lib", "x86_64-linux-gnu")
	return append([]string{filepath.Join(libraries, "ld-linux-x86-64.so.2"), "--library-path", libraries, program}, args...)
}

// unpackDebian returns the folder NAME-RELEASE of the cache, with packages of a release of Debian
// and those that they depend on. They are got, and finish is called with the folder, unless it is there.
func unpackDebian(ctx context.Context, source binaries.Source, name, release string, packages []string, finish func(dir string) error) (string, error) {
	if err := debian.Host().Ensure(ctx, source.Steps, "mmdebstrap"); err != nil {
		return "", err
	}
	dir := filepath.Join(source.Cache, name+"-"+release)
	unlock, err := filelock.Take(ctx, dir+".lock", func() {
		source.Steps.Printf("setup: another process gets the %s of Debian %s: waiting", name, release)
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
	return dir, source.Steps.Run("get the "+name+" of Debian "+release, func(log io.Writer) error {
		cmd := exec.CommandContext(ctx, "mmdebstrap", "--mode=root", "--variant=extract", "--include="+strings.Join(packages, ","), release, staged)
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("mmdebstrap %s (it takes root): %w", release, err)
		}
		if err := finish(staged); err != nil {
			return err
		}
		return os.Rename(staged, dir)
	})
}

// startEmulated starts QEMU, which emulates a machine with this machine's files.
func (n *Node) startEmulated(ctx context.Context) error {
	source := n.env.options.Cluster.Binaries
	dir, err := n.options.Kernel.ensure(ctx, source)
	if err != nil {
		return err
	}
	e, err := ensureEmulator(ctx, source)
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
	server := e.command(e.path("libexec", "virtiofsd"), "--socket-path="+socket, "--shared-dir=/", "--sandbox=chroot", "--rlimit-nofile=0",
		"--cache=always", "--xattr", "--modcaps=+sys_admin")
	files, err := n.env.group.Start(n.Name+"-files", server[0], server[1:]...)
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
	machine := e.command(e.path("bin", "qemu-system-x86_64"), "-L", e.path("share", "seabios"), "-L", e.path("share", "qemu"),
		"-accel", "tcg,thread=multi,tb-size=512", "-machine", "q35", "-cpu", processor,
		"-smp", "2", "-m", emulatedMiB, "-object", "memory-backend-memfd,id=memory,share=on,size="+emulatedMiB+"M", "-numa", "node,memdev=memory",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-kernel", packed.Kernel, "-initrd", initramfs,
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check net.ifnames=0 cgroup_no_v1=all -- boot "+n.config,
		"-chardev", "socket,id=files,path="+socket, "-device", "vhost-user-fs-pci,chardev=files,queue-size=1024,tag="+sandbox.FilesTag,
		"-netdev", "tap,id=card,ifname="+tap+",script=no,downscript=no", "-device", "virtio-net-pci,netdev=card,romfile=")
	n.machine, err = n.env.group.Start(n.Name, "/usr/bin/nsenter", append([]string{"--net=" + network.path(), "--"}, machine...)...)
	return err
}
