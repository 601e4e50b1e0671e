package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
)

// Pins are in a folder in the device's, named by the version of the program. It is made
// under another name, so that what is there is whole.
const unfinished = "unfinished"

// pinned is what can be pinned.
type pinned interface{ Pin(path string) error }

// OpenPinned takes over programs that were pinned in a folder, with all that they know.
// ErrOtherVersion when they are not those that Load makes, or have another lease;
// fs.ErrNotExist when there are none.
func OpenPinned(folder string, lease *Lease) (*Program, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == unfinished })
	if len(entries) == 0 {
		return nil, fmt.Errorf("no programs are pinned in %s: %w", folder, fs.ErrNotExist)
	}
	version := filepath.Join(folder, bpf.Version())
	if _, err := os.Stat(version); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has %s, and ours is %s: %w", folder, entries[0].Name(), bpf.Version(), ErrOtherVersion)
	}
	p := &Program{lease: lease}
	if err := p.open(version); err != nil {
		return nil, errors.Join(fmt.Errorf("open the programs that are pinned in %s: %w", version, err), p.closeOpened())
	}
	if err := p.checkLease(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", version, err), p.Close())
	}
	return p, nil
}

func (p *Program) open(folder string) error {
	for name, program := range map[string]**ebpf.Program{bpf.JvProgJvHold: &p.hold, bpf.JvProgJvHear: &p.hear} {
		opened, err := ebpf.LoadPinnedProgram(filepath.Join(folder, name), nil)
		if err != nil {
			return err
		}
		*program = opened
	}
	for name, m := range map[string]**ebpf.Map{
		bpf.JvMapJvConfig: &p.config, bpf.JvMapJvState: &p.state, bpf.JvMapJvGuest: &p.guest,
	} {
		opened, err := ebpf.LoadPinnedMap(filepath.Join(folder, name), nil)
		if err != nil {
			return err
		}
		*m = opened
	}
	return nil
}

// closeOpened closes what open got to: a nil program or map closes without an error.
func (p *Program) closeOpened() error { return p.Close() }

// checkLease tells whether the program goes by this lease.
func (p *Program) checkLease() error {
	ours, err := p.lease.until.Info()
	if err != nil {
		return err
	}
	id, ok := ours.ID()
	info, err := p.hold.Info()
	if err != nil {
		return err
	}
	maps, known := info.MapIDs()
	if !ok || !known {
		return fmt.Errorf("the kernel does not tell which maps a program has: %w", ErrUnsupported)
	}
	if !slices.Contains(maps, id) {
		return fmt.Errorf("the programs go by another lease: %w", ErrOtherVersion)
	}
	return nil
}

// Pin keeps the programs and their maps in a folder of a BPF file system, which is made.
func (p *Program) Pin(folder string) error {
	making := filepath.Join(folder, unfinished)
	if err := os.RemoveAll(making); err != nil {
		return fmt.Errorf("pin programs in %s: %w", folder, err)
	}
	if err := os.MkdirAll(making, 0o700); err != nil {
		return fmt.Errorf("pin programs in %s: %w", folder, err)
	}
	for name, object := range map[string]pinned{
		bpf.JvProgJvHold: p.hold, bpf.JvProgJvHear: p.hear,
		bpf.JvMapJvConfig: p.config, bpf.JvMapJvState: p.state, bpf.JvMapJvGuest: p.guest,
	} {
		if err := object.Pin(filepath.Join(making, name)); err != nil {
			return errors.Join(fmt.Errorf("pin %s in %s: %w", name, folder, err), Unpin(folder))
		}
	}
	if err := os.Rename(making, filepath.Join(folder, bpf.Version())); err != nil {
		return errors.Join(fmt.Errorf("pin programs in %s: %w", folder, err), Unpin(folder))
	}
	return nil
}

// Unpin removes the folder that Pin made.
func Unpin(folder string) error { return os.RemoveAll(folder) }
