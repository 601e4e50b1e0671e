// Package debian makes sure that the Debian packages are installed which the
// real VMs of the test cluster need.
package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/joulevirt/joulevirt/test/env/steps"
	"github.com/joulevirt/joulevirt/test/internal/filelock"
)

// NodePackages lists what it takes to run VMs on this machine: QEMU, libvirt,
// the tools of their network, and the guest's kernel and user land.
func NodePackages() []string {
	return []string{
		"busybox-static",
		"cpio",
		"iproute2",
		"kmod",
		"libvirt-clients",
		"libvirt-daemon",
		"libvirt-daemon-driver-qemu",
		"libvirt-daemon-system", // QEMU's user
		"linux-image-cloud-amd64",
		"nftables",
		"qemu-system-x86",
		"strace",
		"util-linux",
	}
}

// KubeletPackages lists what a node with a kubelet takes on this machine: the
// programs that start containers and give pods a network.
func KubeletPackages() []string {
	return []string{"containernetworking-plugins", "iproute2", "iptables", "nftables", "runc", "util-linux"}
}

// System is the machine that packages are installed on.
type System struct {
	// Run runs a program and returns its standard output, which goes to log too.
	Run func(ctx context.Context, log io.Writer, name string, args ...string) ([]byte, error)
	// Root reports whether we may install.
	Root bool
}

// Host is this machine.
func Host() System { return System{Run: run, Root: os.Geteuid() == 0} }

// Ensure installs those of the packages that are missing when we are root on
// Debian (or a system with its tools); else the error names them and the
// command to run.
func (s System) Ensure(ctx context.Context, reporter *steps.Reporter, packages ...string) error {
	missing, err := s.Missing(ctx, packages...)
	if err != nil || len(missing) == 0 {
		return err
	}
	if s.Root {
		unlock, err := filelock.Take(ctx, filepath.Join(os.TempDir(), "joulevirt-apt.lock"), func() {})
		if err != nil {
			return err
		}
		defer unlock()
		if missing, err = s.Missing(ctx, packages...); err != nil || len(missing) == 0 {
			return err
		}
	}
	install := append([]string{"install", "--yes", "--no-install-recommends"}, missing...)
	if !s.Root {
		return fmt.Errorf("missing Debian packages: %s: run as root: apt-get %s",
			strings.Join(missing, " "), strings.Join(install, " "))
	}
	err = reporter.Run("install Debian packages", func(log io.Writer) error {
		for _, args := range [][]string{{"update"}, install} {
			args = append([]string{"DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet"}, args...)
			if _, err := s.Run(ctx, log, "env", args...); err != nil {
				return fmt.Errorf("apt-get %s: %w", args[3], err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("install %s: %w", strings.Join(missing, " "), err)
	}
	if missing, err = s.Missing(ctx, packages...); err == nil && len(missing) > 0 {
		err = fmt.Errorf("apt-get succeeded, but these packages are missing still: %s", strings.Join(missing, " "))
	}
	return err
}

// Missing returns those of the packages that are not installed, sorted.
func (s System) Missing(ctx context.Context, packages ...string) ([]string, error) {
	// dpkg-query fails when it does not know one of the packages, but still
	// tells of the others.
	args := append([]string{"--show", "--showformat=${db:Status-Abbrev} ${Package}\\n"}, packages...)
	output, err := s.Run(ctx, io.Discard, "dpkg-query", args...)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("no dpkg-query: this is no Debian: install the equivalents of %s: %w", strings.Join(packages, " "), err)
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("ask for installed packages: %w", err)
	}
	return absent(string(output), packages), nil
}

// absent reads dpkg-query's lines "ii  name" and returns the packages that none
// says to be installed.
func absent(output string, packages []string) []string {
	installed := map[string]bool{}
	for line := range strings.Lines(output) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "ii" {
			installed[fields[1]] = true
		}
	}
	var all []string
	for _, name := range packages {
		if !installed[name] {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func run(ctx context.Context, log io.Writer, name string, args ...string) ([]byte, error) {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout = io.MultiWriter(&output, log)
	cmd.Stderr = log
	err := cmd.Run()
	return output.Bytes(), err
}
