// Package machine is what the first process of a VM does, and the calls that the node VM and
// its guest have in common.
package machine

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// mounts that every machine has, in this order.
func mounts() [][3]string {
	return [][3]string{
		{"proc", "proc", "/proc"}, {"sysfs", "sysfs", "/sys"}, {"devtmpfs", "devtmpfs", "/dev"}, {"tmpfs", "tmpfs", "/tmp"},
	}
}

// Boot mounts what a machine needs, and the given type-folder pairs, and loads the modules
// of the initramfs.
func Boot(more ...[2]string) error {
	all := mounts()
	for _, m := range more {
		all = append(all, [3]string{m[0], m[0], m[1]})
	}
	for _, m := range all {
		if err := os.MkdirAll(m[2], 0o755); err != nil {
			return fmt.Errorf("mount %s: %w", m[2], err)
		}
		if err := unix.Mount(m[0], m[2], m[1], 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m[2], err)
		}
	}
	order, err := os.Open("/modules/order")
	if err != nil {
		return fmt.Errorf("the modules to load: %w", err)
	}
	defer order.Close()
	lines := bufio.NewScanner(order)
	for lines.Scan() {
		if err := insert(filepath.Join("/modules", lines.Text())); err != nil {
			return err
		}
	}
	return lines.Err()
}

func insert(path string) error {
	module, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("load a module: %w", err)
	}
	defer module.Close()
	if err := unix.FinitModule(int(module.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}

// portTimeout bounds how long a device takes to be there.
const portTimeout = 20 * time.Second

// ServePort answers calls at the virtio-serial port of a name until it fails.
func ServePort(name string, server *rpc.Server) error {
	var device string
	err := Poll(portTimeout, func() error {
		names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		if err != nil {
			return err
		}
		for _, path := range names {
			if content, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(content)) == name {
				device = filepath.Join("/dev", filepath.Base(filepath.Dir(path)))
				return nil
			}
		}
		return fmt.Errorf("no virtio-serial port %s", name)
	})
	if err != nil {
		return err
	}
	port, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open port %s: %w", name, err)
	}
	server.ServeCodec(jsonrpc.NewServerCodec(port))
	return fmt.Errorf("port %s: %w", name, io.ErrUnexpectedEOF)
}

// pollInterval is how often something is looked at that is waited for.
const pollInterval = 20 * time.Millisecond

// Poll asks until there is no error, and returns the last one when that takes too long.
func Poll(within time.Duration, ask func() error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	deadline := time.After(within)
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-deadline:
			return fmt.Errorf("not within %v: %w", within, err)
		}
	}
}

// Tail is the end of a text: as many lines at most.
func Tail(text []byte, lines int) string {
	all := bytes.Split(bytes.TrimSpace(bytes.ReplaceAll(text, []byte("\r"), nil)), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// PowerOff ends the machine.
func PowerOff() {
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) // there is nobody to tell
}
