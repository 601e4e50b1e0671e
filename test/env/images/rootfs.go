package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/debian"
	"github.com/joulevirt/joulevirt/test/internal/filelock"
)

// release of Debian that libvirt and QEMU are of.
const release = "trixie"

// rootFS is a root file system of Debian, as a tar file in the cache.
type rootFS struct {
	source   binaries.Source
	packages []string
	// more arguments of mmdebstrap.
	more []string
}

// newRootFS returns the one with what virt-launcher and virt-handler run.
func newRootFS(source binaries.Source) rootFS {
	return rootFS{source: source, packages: []string{
		"iproute2", "libvirt-clients", "libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-daemon-log",
		"nftables", "procps", "qemu-system-x86", "qemu-utils", "util-linux", "virtiofsd", "xorriso",
	}, more: []string{
		// Debian has only libvirt's monolithic daemon. KubeVirt looks for a
		// process of the name virtqemud: see hack/controlplane/kubevirt/virtqemud.
		`--customize-hook=mkdir -p "$1/usr/libexec/joulevirt"`,
		`--customize-hook=ln "$1/usr/sbin/libvirtd" "$1/usr/libexec/joulevirt/virtqemud"`,
		// virt-handler opens /proc/PID/root/var/run/kubevirt: an absolute link
		// would lead it to its own /run, and live migration fails.
		`--customize-hook=ln -sfn ../run "$1/var/run"`,
	}}
}

// arguments of mmdebstrap.
func (r rootFS) arguments() []string {
	args := []string{
		"--variant=essential", "--mode=root", "--format=tar", "--skip=output/dev",
		"--include=" + strings.Join(r.packages, ","),
		`--aptopt=APT::Install-Recommends "false"`,
	}
	args = append(args, r.more...)
	for _, unused := range []string{
		"/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*",
		"/usr/bin/qemu-system-i386", "/usr/bin/qemu-system-x86_64-microvm",
	} {
		args = append(args, "--dpkgopt=path-exclude="+unused)
	}
	return append(args, release)
}

// path of the tar file.
func (r rootFS) path() string {
	sum := sha256.Sum256([]byte(strings.Join(r.arguments(), "\n")))
	return filepath.Join(r.source.Cache, "images", "root-"+hex.EncodeToString(sum[:])[:12]+".tar")
}

// ensure returns the tar file, building it unless the cache has it.
func (r rootFS) ensure(ctx context.Context) (string, error) {
	path := r.path()
	unlock, err := filelock.Take(ctx, filepath.Join(filepath.Dir(path), "root.lock"), func() {
		r.source.Steps.Printf("setup: another process makes the root file system: waiting")
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	if err := debian.Host().Ensure(ctx, r.source.Steps, "mmdebstrap"); err != nil {
		return "", err
	}
	temporary := path + ".tmp" // ours alone: we hold the lock
	defer os.Remove(temporary)
	err = r.source.Steps.Run("make a root file system of Debian", func(log io.Writer) error {
		cmd := exec.CommandContext(ctx, "mmdebstrap", append(r.arguments(), temporary)...)
		cmd.Stdout, cmd.Stderr = log, log
		// Files' times are at most this one, so that they are the same each time.
		cmd.Env = append(cmd.Environ(), "SOURCE_DATE_EPOCH=0")
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 10 * time.Second
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("mmdebstrap %s (it takes root): %w", release, err)
		}
		return os.Rename(temporary, path)
	})
	return path, err
}
