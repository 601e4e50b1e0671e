package guest

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed run-init.sh
var runScript string

// Job is what a guest runs, with the kernel of Image.
type Job struct {
	// Programs are static executables of this machine, by the names that they
	// have in /bin of the guest.
	Programs map[string]string
	// Modules of the kernel that are loaded first, with what they need.
	Modules []string
	// Script is run by the guest's shell.
	Script string
	// MemoryMiB of the guest, and its CPUs: one when that is 0.
	MemoryMiB, CPUs int
	// Cards gives the guest two virtio network cards, eth0 and eth1, that are connected. QEMU
	// takes packets from them 50 us after it was told of the first: so does a thread that has to
	// wake up.
	Cards bool
}

// Run boots a guest on an emulated CPU, has it run a job, and returns what its
// console showed. Kernel and programs are from opts.HostRoot; the cache is not
// used. An error when the guest did not end by itself before the context, or
// its script failed.
func Run(ctx context.Context, opts Options, job Job) (console string, err error) {
	host, release, err := opts.kernel()
	if err != nil {
		return "", err
	}
	paths := map[string]string{"bin/busybox": filepath.Join(host, "usr/bin/busybox")}
	for name, path := range job.Programs {
		paths["bin/"+name] = path
	}
	archive, err := pack(host, release, map[string]string{"init": runScript, "run.sh": job.Script}, paths, job.Modules)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "guest-run-")
	if err != nil {
		return "", fmt.Errorf("create a folder for the guest: %w", err)
	}
	defer os.RemoveAll(dir)
	initramfs := filepath.Join(dir, "initramfs.cpio")
	if err := os.WriteFile(initramfs, archive, 0o600); err != nil {
		return "", fmt.Errorf("write the guest's initramfs: %w", err)
	}
	return job.boot(ctx, filepath.Join(host, "boot", "vmlinuz-"+release), initramfs)
}

// boot runs the guest until it powers off. The clock of a guest with one CPU counts its
// instructions, one a nanosecond, and does not wait while it idles: how busy this
// machine is changes nothing that the guest measures. With several CPUs, which do not
// start under such a clock, it is this machine's.
func (j Job) boot(ctx context.Context, kernel, initramfs string) (string, error) {
	args := []string{"-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-rtc", "clock=vm"}
	if j.CPUs > 1 {
		args = []string{"-accel", "tcg,thread=multi"}
	}
	args = append(args, "-machine", "q35", "-cpu", "max",
		"-m", strconv.Itoa(j.MemoryMiB), "-smp", strconv.Itoa(max(1, j.CPUs)),
		"-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", kernel, "-initrd", initramfs,
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check")
	if j.Cards {
		for _, end := range []string{"a", "b"} {
			args = append(args, "-netdev", "hubport,hubid=0,id="+end, "-device", "virtio-net-pci,romfile=,tx=timer,x-txtimer=50000,netdev="+end)
		}
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	cmd.WaitDelay = 5 * time.Second
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	console := strings.ReplaceAll(output.String(), "\r", "")
	switch {
	case ctx.Err() != nil:
		return console, fmt.Errorf("the guest did not end by itself: %w", ctx.Err())
	case err != nil:
		return console, fmt.Errorf("run the guest (is qemu-system-x86 installed?): %w", err)
	case !strings.Contains(console, "\nEXIT "):
		return console, errors.New("the guest ended before its script did")
	case !strings.Contains(console, "\nEXIT 0\n"):
		return console, errors.New("the guest's script failed")
	}
	return console, nil
}
