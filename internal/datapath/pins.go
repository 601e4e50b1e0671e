package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// pins keep programs, their maps and where they are attached beyond the life of this
// process, in a BPF file system:
//
//	lease
//	ID/program/...   as Program.Pin has it
//	ID/hold, hear    links to the device, with tcx
//	ID/device        a symbolic link that names the device's number
//	ID/clsact        one that tells that the device had a clsact before
//
// Without a root nothing is kept.
type pins struct {
	root string
	// marks stand in for ID/clsact without a root.
	marks map[string]bool
}

const (
	pinLease, pinProgram, pinDevice, pinClsact = "lease", "program", "device", "clsact"
	mostIDBytes                                = 200
)

// openPins makes the root, or tells why nothing can be kept there.
func openPins(root string) error {
	if root == "" {
		return errors.New("no BPF file system is given to keep programs in")
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return fmt.Errorf("programs are not kept: %w", err)
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(root, &stat); err != nil {
		return fmt.Errorf("programs are not kept: file system of %s: %w", root, err)
	}
	if stat.Type != unix.BPF_FS_MAGIC {
		return fmt.Errorf("programs are not kept: %s is not in a BPF file system: mount one there", root)
	}
	return nil
}

// ready makes the root again where the file system was taken away meanwhile.
func (p *pins) ready() error {
	if p.root == "" {
		return nil
	}
	if _, err := os.Lstat(p.root); err == nil {
		return nil
	}
	return openPins(p.root)
}

// haveLease tells whether an earlier process left one.
func (p *pins) haveLease() bool {
	if p.root == "" {
		return false
	}
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

func (p *pins) path(id string, names ...string) string {
	return filepath.Join(append([]string{p.root, id}, names...)...)
}

// begin makes the folder of a device.
func (p *pins) begin(id string, index int) error {
	if p.root == "" {
		return nil
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
func (p *pins) device(id string) int {
	if p.root == "" {
		return 0
	}
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

func (p *pins) pinLink(id, name string, l link.Link) error {
	if p.root == "" {
		return nil
	}
	if err := l.Pin(p.path(id, name)); err != nil {
		return fmt.Errorf("pin link %s: %w", name, err)
	}
	return nil
}

// links that an earlier life attached.
func (p *pins) links(id string) map[string]link.Link {
	found := map[string]link.Link{}
	if p.root == "" {
		return found
	}
	for _, name := range []string{hookHold, hookHear} {
		if l, err := link.LoadPinnedLink(p.path(id, name), nil); err == nil {
			found[name] = l
		}
	}
	return found
}

func (p *pins) unpinLink(id, name string) error {
	if p.root == "" {
		return nil
	}
	return removeFile(p.path(id, name))
}

// markClsact remembers that the device had a clsact before ours.
func (p *pins) markClsact(id string) error {
	if p.root == "" {
		p.marks[id] = true
		return nil
	}
	if err := os.Symlink(pinClsact, p.path(id, pinClsact)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("pins: %w", err)
	}
	return nil
}

func (p *pins) clsactWasThere(id string) bool {
	if p.root == "" {
		return p.marks[id]
	}
	_, err := os.Lstat(p.path(id, pinClsact))
	return err == nil
}

// remove all of a device.
func (p *pins) remove(id string) error {
	delete(p.marks, id)
	if p.root == "" {
		return nil
	}
	err := Unpin(p.path(id, pinProgram))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	failures := []error{err}
	for _, name := range []string{hookHold, hookHear, pinDevice, pinClsact, ""} {
		failures = append(failures, removeFile(p.path(id, name)))
	}
	return errors.Join(failures...)
}

// ids of all devices that something is kept of.
func (p *pins) ids() ([]string, error) {
	if p.root == "" {
		return nil, nil
	}
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
func (p *pins) tidy() error {
	if ids, err := p.ids(); p.root == "" || err != nil || len(ids) > 0 {
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
