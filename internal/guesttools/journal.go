package guesttools

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	stateName  = "state.json"
	lockName   = "lock"
	statusName = "status.json"
)

// ErrInUse means that other tools run in the guest.
var ErrInUse = errors.New("joulevirt-guest is running")

// entry is a card that was changed, or is about to be. What it had before needs no
// record: only the kernel's defaults are ever replaced.
type entry struct {
	// Card is what it was called when the entry was written, for people: its index stays.
	Card  string `json:"card"`
	Index int    `json:"index"`
	// Attached: the program and the queue.
	Attached bool `json:"attached,omitempty"`
	// Deferred: receive interrupts.
	Deferred bool `json:"deferred,omitempty"`
}

// journal records on disk what was changed, each time before it is.
type journal struct {
	dir     string
	lock    *os.File
	entries []entry
}

// openJournal reads what a run before left, and locks the folder until close: ErrInUse.
func openJournal(dir string) (*journal, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	j := &journal{dir: dir, lock: lock}
	if err := j.load(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return j, nil
}

func lockFolder(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	if err := unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		lock.Close()
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			err = ErrInUse
		}
		return nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	return lock, nil
}

// isLocked returns true if the folder is locked, without a moment in which this locks it.
func isLocked(dir string) (bool, error) {
	lock, err := os.Open(filepath.Join(dir, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Close()
	query := unix.Flock_t{Type: unix.F_RDLCK}
	err = unix.FcntlFlock(lock.Fd(), unix.F_OFD_GETLK, &query)
	return query.Type != unix.F_UNLCK, err
}

func (j *journal) load() error {
	path := filepath.Join(j.dir, stateName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the record of changes: %w", err)
	}
	if err := json.Unmarshal(text, &j.entries); err != nil {
		return fmt.Errorf("record of changes %s: %w; a reboot undoes them all and removes it", path, err)
	}
	return nil
}

// of is the entry of a card: an empty one when it was not changed.
func (j *journal) of(c card) entry {
	for _, e := range j.entries {
		if e.Index == c.index {
			return e
		}
	}
	return entry{Card: c.name, Index: c.index}
}

// set replaces the entry of a card. When it returns nil that is on disk; on an error
// what was there is.
func (j *journal) set(to entry) error {
	next := slices.DeleteFunc(slices.Clone(j.entries), func(e entry) bool { return e.Index == to.Index })
	if to.Attached || to.Deferred {
		next = append(next, to)
	}
	if slices.Equal(next, j.entries) {
		return nil
	}
	text, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("encode the record of changes: %w", err)
	}
	if err := replace(filepath.Join(j.dir, stateName), text); err != nil {
		return fmt.Errorf("record of changes: %w", err)
	}
	j.entries = next
	return nil
}

func (j *journal) close() error { return j.lock.Close() }

// replace writes a file in one step.
func replace(path string, text []byte) error {
	staged := path + ".new"
	if err := os.WriteFile(staged, text, 0o644); err != nil {
		return err
	}
	return os.Rename(staged, path)
}
