package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
)

// pins keep programs and their maps beyond the life of this process, in a BPF file system:
//
//	lease
//	ID/program/...  as program.pin writes it
//	ID/device       a symbolic link whose target is the device's number
//	ID/clsact       one that means that the device had a clsact before
type pins struct{ root string }

const (
	pinLease, pinProgram, pinDevice, pinClsact = "lease", "program", "device", "clsact"
	mostIDBytes                                = 200
)

// open makes the root, also where the file system was replaced meanwhile.
func (p pins) open() error {
	if p.root == "" {
		return errors.New("no BPF file system is given to keep programs in")
	}
	if err := os.MkdirAll(p.root, 0o700); err != nil {
		return fmt.Errorf("programs cannot be kept: %w: mount a BPF file system there", err)
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(p.root, &stat); err != nil {
		return fmt.Errorf("programs cannot be kept: file system of %s: %w", p.root, err)
	}
	if stat.Type != unix.BPF_FS_MAGIC {
		return fmt.Errorf("programs cannot be kept: %s is not in a BPF file system: mount one there", p.root)
	}
	return nil
}

// haveLease returns true if an earlier process left one.
func (p pins) haveLease() bool {
	_, err := os.Lstat(p.path(pinLease))
	return err == nil
}

// checkID refuses what is no name of a folder of a BPF file system.
func checkID(id string) error {
	allowed := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_=", r)
	}
	if id == "" || id == pinLease || len(id) > mostIDBytes || strings.ContainsFunc(id, func(r rune) bool { return !allowed(r) }) {
		return fmt.Errorf("device ID %.32q: give letters, digits, -, _ and =, and not %q", id, pinLease)
	}
	return nil
}

func (p pins) path(names ...string) string {
	return filepath.Join(append([]string{p.root}, names...)...)
}

// begin makes the folder of a device, without a program.
func (p pins) begin(id string, index int) error {
	if err := os.RemoveAll(p.path(id, pinProgram)); err != nil {
		return fmt.Errorf("pins: %w", err)
	}
	if err := os.Mkdir(p.path(id), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("pins: %w", err)
	}
	if p.device(id) == index {
		return nil
	}
	if err := removeFile(p.path(id, pinDevice)); err != nil {
		return err
	}
	if err := os.Symlink(strconv.Itoa(index), p.path(id, pinDevice)); err != nil {
		return fmt.Errorf("pins: %w", err)
	}
	return nil
}

// device that the pins are of, by its number; 0: not known.
func (p pins) device(id string) int {
	target, err := os.Readlink(p.path(id, pinDevice))
	if err != nil {
		return 0
	}
	index, err := strconv.Atoi(target)
	if err != nil {
		return 0
	}
	return index
}

// markClsact records that the device had a clsact before ours.
func (p pins) markClsact(id string) error {
	if err := os.Symlink(pinClsact, p.path(id, pinClsact)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("pins: %w", err)
	}
	return nil
}

func (p pins) clsactWasThere(id string) bool {
	_, err := os.Lstat(p.path(id, pinClsact))
	return err == nil
}

// remove all of a device.
func (p pins) remove(id string) error {
	if p.root == "" {
		return nil
	}
	if err := os.RemoveAll(p.path(id)); err != nil {
		return fmt.Errorf("pins: %w", err)
	}
	return nil
}

// ids of all devices that something is kept of.
func (p pins) ids() ([]string, error) {
	entries, err := os.ReadDir(p.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pins: %w", err)
	}
	var ids []string
	for _, entry := range entries {
		if entry.IsDir() && checkID(entry.Name()) == nil {
			ids = append(ids, entry.Name())
		}
	}
	return ids, nil
}

// tidy removes the root when nothing is kept there.
func (p pins) tidy() error {
	if ids, err := p.ids(); err != nil || len(ids) > 0 || p.root == "" {
		return err
	}
	return errors.Join(removeFile(p.path(pinLease)), removeFile(p.root))
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("pins: %w", err)
	}
	return nil
}

// lease is the time until which packets may be held, shared by all programs that were
// loaded with it. Past it every packet leaves at once.
type lease struct {
	until *ebpf.Map
}

// newLease returns a lease that has expired. The error wraps ErrUnsupported when the kernel
// refuses it.
func newLease() (*lease, error) {
	spec, err := bpf.LoadJv()
	if err != nil {
		return nil, err
	}
	until, err := ebpf.NewMap(spec.Maps[bpf.JvMapJvLease])
	if err != nil {
		return nil, fmt.Errorf("make the lease of packets: %w: %w", ErrUnsupported, err)
	}
	return &lease{until: until}, nil
}

// openPinnedLease takes over the lease that is pinned at a path, or pins a new one there.
func openPinnedLease(path string) (*lease, error) {
	until, err := ebpf.LoadPinnedMap(path, nil)
	if err == nil {
		return &lease{until: until}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open the lease of packets at %s: %w", path, err)
	}
	l, err := newLease()
	if err != nil {
		return nil, err
	}
	if err := l.until.Pin(path); err != nil {
		return nil, errors.Join(fmt.Errorf("pin the lease of packets at %s: %w", path, err), l.close())
	}
	return l, nil
}

// extend lets packets be held until a time of CLOCK_MONOTONIC.
func (l *lease) extend(until time.Duration) error {
	if err := l.until.Put(uint32(0), uint64(until)); err != nil {
		return fmt.Errorf("extend the lease of packets: %w", err)
	}
	return nil
}

// close closes the lease. Programs keep it, and so does its pin.
func (l *lease) close() error { return l.until.Close() }
