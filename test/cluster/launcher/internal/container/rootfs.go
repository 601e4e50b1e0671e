package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// programDir holds our executable under both names. KubeVirt's lies in
// /usr/bin, which here is the host's, read-only; argv[0] says /usr/bin.
const programDir = "/opt/kubevirt"

// driverDir holds libvirt's QEMU driver only, which makes Debian's monolithic
// libvirtd what KubeVirt runs: virtqemud.
const driverDir = "/opt/kubevirt/libvirt-drivers"

const hostDrivers = "/usr/lib/*/libvirt/connection-driver/libvirt_driver_qemu.so"

// qemuConf are KubeVirt's settings (cmd/virt-launcher/qemu.conf) with Debian's
// user and group names, and without a security driver: KubeVirt's nodes confine
// the launcher from outside.
const qemuConf = `stdio_handler = "logd"
vnc_listen = "0.0.0.0"
vnc_tls = 0
vnc_sasl = 0
user = "libvirt-qemu"
group = "libvirt-qemu"
dynamic_ownership = 1
remember_owner = 0
namespaces = [ ]
cgroup_controllers = [ ]
security_driver = "none"
`

const libvirtdConf = `listen_tls = 0
listen_tcp = 0
auth_unix_rw = "none"
auth_unix_ro = "none"
log_outputs = "3:stderr"
`

const virtlogdConf = `log_outputs = "3:stderr"
`

// enterRoot builds the container's root file system at spec.Root and makes it
// this process's root. The caller is alone in its mount and PID namespaces.
func enterRoot(spec Spec) error {
	// Nothing mounted from here on may propagate to the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := mount("tmpfs", spec.Root, "tmpfs", unix.MS_NOSUID, "mode=755"); err != nil {
		return err
	}
	steps := []func(Spec) error{makeTree, writeConfiguration, mountSystem, bindDevices, bindFiles, pivot}
	for _, step := range steps {
		if err := step(spec); err != nil {
			return err
		}
	}
	return nil
}

func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}

// makeTree lays out all that the container has, because its root starts empty.
func makeTree(spec Spec) error {
	folders := []string{
		"usr", "etc/libvirt", "proc", "sys", "dev/pts", "dev/shm", "dev/net", "run", "tmp", "root",
		"var/lib/libvirt", "var/cache/libvirt", "var/log/libvirt", driverDir,
	}
	for _, folder := range folders {
		if err := os.MkdirAll(filepath.Join(spec.Root, folder), 0o755); err != nil {
			return fmt.Errorf("lay out the container: %w", err)
		}
	}
	if err := os.Chmod(filepath.Join(spec.Root, "tmp"), 0o777|os.ModeSticky); err != nil {
		return fmt.Errorf("lay out the container: %w", err)
	}
	// Relative, as in KubeVirt's image: an absolute link would lead a reader
	// that comes through /proc/PID/root back into its own root.
	if err := os.Symlink("../run", filepath.Join(spec.Root, "var/run")); err != nil {
		return fmt.Errorf("lay out the container: %w", err)
	}
	binds := []Bind{{Source: "/usr", Target: "/usr", ReadOnly: true}}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		// Links into /usr on current systems.
		link, err := os.Readlink("/" + name)
		switch {
		case err == nil:
			if err := os.Symlink(link, filepath.Join(spec.Root, name)); err != nil {
				return fmt.Errorf("lay out the container: %w", err)
			}
		case !errors.Is(err, fs.ErrNotExist): // EINVAL: a folder of its own
			binds = append(binds, Bind{Source: "/" + name, Target: "/" + name, ReadOnly: true})
		}
	}
	return bindAll(spec.Root, binds)
}

func writeConfiguration(spec Spec) error {
	files := map[string]string{
		"etc/libvirt/qemu.conf":     qemuConf,
		"etc/libvirt/libvirtd.conf": libvirtdConf,
		"etc/libvirt/virtlogd.conf": virtlogdConf,
		"etc/hosts":                 "127.0.0.1 localhost\n" + spec.Address + " " + spec.Hostname + "\n",
		"etc/resolv.conf":           "",
	}
	copied := []string{"etc/passwd", "etc/group", "etc/nsswitch.conf", "etc/ld.so.cache", "etc/machine-id", "etc/localtime"}
	for _, name := range copied {
		content, err := os.ReadFile("/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("copy a host file into the container: %w", err)
		}
		files[name] = string(content)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(spec.Root, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("write the container's configuration: %w", err)
		}
	}
	drivers, err := filepath.Glob(hostDrivers)
	if err != nil || len(drivers) == 0 {
		return fmt.Errorf("no libvirt QEMU driver at %s: install libvirt-daemon (%w)", hostDrivers, fs.ErrNotExist)
	}
	link := filepath.Join(spec.Root, driverDir, filepath.Base(drivers[0]))
	if err := os.Symlink(drivers[0], link); err != nil {
		return fmt.Errorf("link libvirt's QEMU driver: %w", err)
	}
	return nil
}

func mountSystem(spec Spec) error {
	const guarded = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	at := func(path string) string { return filepath.Join(spec.Root, path) }
	return errors.Join(
		mount("proc", at("proc"), "proc", guarded, ""),
		// A new sysfs, because it shows the network namespace of its mounter.
		mount("sysfs", at("sys"), "sysfs", guarded|unix.MS_RDONLY, ""),
		bindAll(spec.Root, []Bind{{Source: "/sys/fs/cgroup", Target: "/sys/fs/cgroup", ReadOnly: true}}),
		mount("devpts", at("dev/pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"),
		mount("tmpfs", at("dev/shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"),
	)
}

func bindDevices(spec Spec) error {
	links := map[string]string{
		"dev/ptmx": "pts/ptmx", "dev/fd": "/proc/self/fd",
		"dev/stdin": "/proc/self/fd/0", "dev/stdout": "/proc/self/fd/1", "dev/stderr": "/proc/self/fd/2",
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(spec.Root, name)); err != nil {
			return fmt.Errorf("lay out /dev: %w", err)
		}
	}
	basic := []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/net/tun"}
	var binds []Bind
	for _, device := range append(basic, spec.Devices...) {
		binds = append(binds, Bind{Source: device, Target: device})
	}
	return bindAll(spec.Root, binds)
}

func bindFiles(spec Spec) error {
	binds := []Bind{
		{Source: spec.Program, Target: filepath.Join(programDir, MonitorName), ReadOnly: true},
		{Source: spec.Program, Target: filepath.Join(programDir, LauncherName), ReadOnly: true},
	}
	return bindAll(spec.Root, append(binds, spec.Binds...))
}

// bindAll shows each source at its target below root, creating the mount point.
func bindAll(root string, binds []Bind) error {
	for _, bind := range binds {
		target := filepath.Join(root, bind.Target)
		if err := makeMountPoint(bind.Source, target); err != nil {
			return fmt.Errorf("make the mount point for %s: %w", bind.Source, err)
		}
		if err := mount(bind.Source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
		if !bind.ReadOnly {
			continue
		}
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(-1, target, unix.AT_RECURSIVE, &attr); err != nil {
			return fmt.Errorf("make %s read-only: %w", bind.Target, err)
		}
	}
	return nil
}

func makeMountPoint(source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		if _, err := os.Stat(target); err == nil {
			return nil
		}
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

func pivot(spec Spec) error {
	if err := os.Chdir(spec.Root); err != nil {
		return fmt.Errorf("enter the container's root: %w", err)
	}
	// "." for both stacks the old root on the new one, from where it is
	// detached without a folder to hold it.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot to the container's root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach the host's root: %w", err)
	}
	return os.Chdir("/")
}
