package sandbox

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/test/guest/modules"
)

// Machine says how an emulated machine of its own is the node.
type Machine struct {
	// Address of its card, with the network's length, and the gateway of its default route.
	Address netip.Prefix
	Gateway netip.Addr
	// Modules has the modules of its kernel, a folder by the kernel's release.
	Modules string
}

const (
	// FilesTag is the name by which the machine finds this machine's files, by virtio-fs.
	FilesTag = "files"
	// Card is that of a node.
	Card = "eth0"
)

// Boot is the first process of an emulated machine, started by the kernel from an
// initramfs. It makes this machine's files those of the emulated one, with the
// node's own mounts above them, and then does what Init does.
func Boot(config string) error {
	if err := modules.Load(); err != nil {
		return err
	}
	if err := switchRoot(); err != nil {
		return err
	}
	file, err := os.Open(config) // the node's /tmp hides it
	if err != nil {
		return fmt.Errorf("open the node's config: %w", err)
	}
	defer file.Close()
	c, err := ReadConfig(config)
	if err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(c.HostName)); err != nil {
		return fmt.Errorf("set the node's host name: %w", err)
	}
	// Before the node's own /tmp hides a cache there.
	if err := bind(c.Machine.Modules, "/lib/modules").do(); err != nil {
		return err
	}
	if err := c.mountAll(); err != nil {
		return err
	}
	here, err := netlink.NewHandle()
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer here.Close()
	if err := errors.Join(
		SetUp(here, "lo"), Configure(here, Card, c.Machine.Address),
		Route(here, netip.PrefixFrom(netip.IPv4Unspecified(), 0), c.Machine.Gateway),
	); err != nil {
		return err
	}
	if err := os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	// KVM's is the only one that the kernel does not load by itself.
	if output, err := exec.Command("modprobe", "kvm_amd").CombinedOutput(); err != nil {
		return fmt.Errorf("load the module of KVM: %w: %s", err, output)
	}
	if err := keepVM(); err != nil {
		return err
	}
	server := exec.Command("/proc/self/exe", "serve", "/proc/self/fd/3")
	server.Stdout, server.Stderr, server.ExtraFiles = os.Stdout, os.Stderr, []*os.File{file}
	if err := server.Start(); err != nil {
		return fmt.Errorf("start the node's server: %w", err)
	}
	reap()
	return nil
}

// kvmCreateVM is KVM_CREATE_VM of linux/kvm.h.
const kvmCreateVM = 0xae01

// keepVM makes an empty VM that stays. With its first VM, KVM changes the code by which each processor
// goes from one thread to the next (static key preempt_notifier_key). Emulated processors that run
// that code meanwhile were seen to panic, so it is done while they have nothing to do.
func keepVM() error {
	kvm, err := unix.Open("/dev/kvm", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/kvm: %w", err)
	}
	if _, err := unix.IoctlRetInt(kvm, kvmCreateVM); err != nil {
		return fmt.Errorf("make the VM that KVM has first: %w", err)
	}
	return nil
}

// switchRoot makes this machine's files the root.
func switchRoot() error {
	const files = "/files"
	if err := os.Mkdir(files, 0o755); err != nil {
		return fmt.Errorf("make a mount point: %w", err)
	}
	if err := (mount{FilesTag, files, "virtiofs", 0, ""}).do(); err != nil {
		return err
	}
	if err := os.Chdir(files); err != nil {
		return fmt.Errorf("enter this machine's files: %w", err)
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move this machine's files to the root: %w", err)
	}
	if err := errors.Join(unix.Chroot("."), os.Chdir("/")); err != nil {
		return fmt.Errorf("make this machine's files the root: %w", err)
	}
	return nil
}
