package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is one call of mount(2).
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mount) do() error {
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s %s on %s: %w", m.kind, m.source, m.target, err)
	}
	return nil
}

func bind(source, target string) mount {
	return mount{source: source, target: target, flags: unix.MS_BIND}
}

// mountAll makes the node's mounts, which no other namespace sees.
func (c Config) mountAll() error {
	for _, step := range []func() error{
		mount{target: "/", flags: unix.MS_REC | unix.MS_PRIVATE}.do,
		mount{"proc", "/proc", "proc", 0, ""}.do,
		mount{"sysfs", "/sys", "sysfs", 0, ""}.do,
		c.mountCgroups,
		mount{"bpf", "/sys/fs/bpf", "bpf", 0, ""}.do,
		c.coverSettings,
		c.mountDev,
		c.mountRun,
		c.mountState,
		func() error { return c.own("var-log", "/var/log") },
		func() error { return c.own("tmp", "/tmp") }, // last: it hides c.Dir
		// virt-handler's mounts reach containers.
		mount{target: "/", flags: unix.MS_REC | unix.MS_SHARED}.do,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

// own shows a folder of the sandbox's in place of one of the machine's.
func (c Config) own(name, target string) error {
	source := filepath.Join(c.Dir, name)
	if err := os.MkdirAll(source, 0o755); err != nil {
		return fmt.Errorf("make a folder of the node: %w", err)
	}
	return bind(source, target).do()
}

// mountState gives the node its /var/lib. That of an emulated machine is in its
// memory: containers' root file systems cannot lie on files of another machine.
func (c Config) mountState() error {
	const target = "/var/lib"
	if c.Machine == nil {
		return c.own("var-lib", target)
	}
	if err := (mount{"tmpfs", target, "tmpfs", 0, "mode=755"}).do(); err != nil {
		return err
	}
	if err := os.CopyFS(target, os.DirFS(filepath.Join(c.Dir, "var-lib"))); err != nil {
		return fmt.Errorf("copy the node's %s: %w", target, err)
	}
	return nil
}

// mountCgroups mounts the hierarchies with the sandbox's group as their root.
func (c Config) mountCgroups() error {
	if len(c.Hierarchies) == 1 && c.Hierarchies[0].unified() {
		if err := (mount{"cgroup2", root, "cgroup2", 0, ""}).do(); err != nil {
			return err
		}
		if c.Machine != nil { // nobody was there before
			if err := c.createGroups(); err != nil {
				return err
			}
		}
		return join(filepath.Join(root, leaf))
	}
	if err := (mount{"tmpfs", root, "tmpfs", 0, "mode=755"}).do(); err != nil {
		return err
	}
	for _, h := range c.Hierarchies {
		if err := os.Mkdir(h.Mount, 0o755); err != nil {
			return fmt.Errorf("make a mount point: %w", err)
		}
		options := h.Options
		if strings.HasPrefix(options, "name=") {
			options = "none," + options
		}
		if err := (mount{"cgroup", h.Mount, "cgroup", 0, options}).do(); err != nil {
			return err
		}
		for _, controller := range strings.Split(h.Options, ",") {
			link := filepath.Join(root, controller)
			if link == h.Mount || strings.HasPrefix(controller, "name=") {
				continue
			}
			if err := os.Symlink(filepath.Base(h.Mount), link); err != nil {
				return fmt.Errorf("link a controller of %s: %w", h.Mount, err)
			}
		}
	}
	return nil
}

// coverSettings puts files over the settings of the whole machine that a
// kubelet writes, with the values that it wants.
func (c Config) coverSettings() error {
	if c.Machine != nil {
		return nil // its settings are its own
	}
	for name, value := range map[string]string{
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",
	} {
		file := filepath.Join(c.Dir, "settings", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("make a folder of the node: %w", err)
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return fmt.Errorf("write a setting of the node: %w", err)
		}
		err := bind(file, filepath.Join("/proc/sys", name)).do()
		if err != nil && !errors.Is(err, unix.ENOENT) { // a kernel without the setting
			return err
		}
	}
	return nil
}

// device is a character device of /dev.
type device struct {
	name         string
	major, minor uint32
}

// mountDev makes a /dev without what the machine's devices would add to the
// node, above all KVM: its VMs are emulated wherever the tests run. An emulated
// machine has the KVM that is emulated with it.
func (c Config) mountDev() error {
	dev := filepath.Join(c.Dir, "dev")
	if err := os.MkdirAll(dev, 0o755); err != nil {
		return fmt.Errorf("make a folder of the node: %w", err)
	}
	if err := (mount{"tmpfs", dev, "tmpfs", unix.MS_NOSUID, "mode=755"}).do(); err != nil {
		return err
	}
	for _, folder := range []string{"net", "shm", "pts", "mqueue"} {
		if err := os.Mkdir(filepath.Join(dev, folder), 0o755); err != nil {
			return fmt.Errorf("make a folder of the node's /dev: %w", err)
		}
	}
	unix.Umask(0)
	devices := []device{
		{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9},
		{"kmsg", 1, 11}, {"tty", 5, 0}, {"fuse", 10, 229}, {"net/tun", 10, 200},
	}
	if c.Machine != nil {
		devices = append(devices, device{"kvm", 10, 232}, device{"vhost-net", 10, 238})
	}
	for _, d := range devices {
		if err := unix.Mknod(filepath.Join(dev, d.name), unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("make the device /dev/%s (that takes CAP_MKNOD): %w", d.name, err)
		}
	}
	unix.Umask(0o022)
	for link, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd",
		"stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, filepath.Join(dev, link)); err != nil {
			return fmt.Errorf("make a link of the node's /dev: %w", err)
		}
	}
	for _, m := range []mount{
		{"devpts", filepath.Join(dev, "pts"), "devpts", 0, "newinstance,ptmxmode=0666,mode=620,gid=5"},
		{"tmpfs", filepath.Join(dev, "shm"), "tmpfs", 0, "mode=1777"},
		{"mqueue", filepath.Join(dev, "mqueue"), "mqueue", 0, ""},
		{source: dev, target: "/dev", flags: unix.MS_BIND | unix.MS_REC},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	return nil
}

// mountRun makes a /run with what the config binds.
func (c Config) mountRun() error {
	if err := (mount{"tmpfs", "/run", "tmpfs", 0, "mode=755"}).do(); err != nil {
		return err
	}
	for name, source := range c.Binds {
		target := filepath.Join(Run, name)
		info, err := os.Stat(source)
		if err != nil {
			return fmt.Errorf("find what the node is to see as %s: %w", target, err)
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return fmt.Errorf("make a mount point: %w", err)
		}
		if info.IsDir() {
			err = os.MkdirAll(target, 0o755)
		} else {
			err = os.WriteFile(target, nil, 0o755)
		}
		if err != nil {
			return fmt.Errorf("make a mount point: %w", err)
		}
		if err := bind(source, target).do(); err != nil {
			return err
		}
	}
	return nil
}
