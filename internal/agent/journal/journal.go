// Package journal keeps on disk what the agent changed on its node and what
// was there before, so that an agent that was killed can put it back.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	fileName    = "journal.json"
	corruptName = "journal.corrupt.json"
	lockName    = "lock"
	// A journal of bound threads alone is of version 1, which every agent reads,
	// one with uplinks of version 2, one with slices or kernel's workers of 3, and one
	// with taps of 4.
	threadsVersion, uplinksVersion, slicesVersion, tapsVersion = 1, 2, 3, 4
	// maxSize is far above what a node's threads need; a larger file is not ours.
	maxSize = 64 << 20
)

var (
	// ErrCorrupt means that the journal could not be understood. It was set
	// aside under the name that the error tells, if that could be done. The error
	// comes again until a new journal was saved: a start that did not get that far
	// changes nothing.
	ErrCorrupt = errors.New("journal is corrupt")
	// ErrInUse means that another agent uses the journal.
	ErrInUse = errors.New("another agent is running on the node: stop it first")
)

// Device is a device of a VM's pod that the agent did something to, or is about to. What
// it had before needs no record: only the kernel's default is ever replaced.
type Device struct {
	PodUID string `json:"podUID"`
	// Process in whose network namespace the device is.
	Process host.TaskID `json:"process"`
	Name    string      `json:"name"`
}

func (d Device) isValid() bool { return d.Process.PID > 1 && d.Name != "" }

// content is what a journal holds.
type content struct {
	Entries []Entry      `json:"entries"`
	Slices  []SliceEntry `json:"slices,omitempty"`
	// Uplinks are shaped, and Taps buffered.
	Uplinks []Device `json:"uplinks,omitempty"`
	Taps    []Device `json:"taps,omitempty"`
	// Trips are levers that hurt. An agent that does not know them may leave them out.
	Trips []model.Trip `json:"trips,omitempty"`
}

type document struct {
	Version int    `json:"version"`
	BootID  string `json:"bootID"`
	content
}

// Journal is a journal on disk. It is used by one goroutine at a time.
type Journal struct {
	dir    string
	bootID string
	lock   *os.File
	// held is what the disk holds, as far as it was loaded or saved.
	held content
}

// Open creates the folder when it is missing, and locks it against other
// processes until Close or the end of this one: ErrInUse. bootID is that of the
// node now. A folder that cannot be written any more is opened all the same, if
// there may be a journal in it: what that says can be undone.
func Open(dir, bootID string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	name := filepath.Join(dir, lockName)
	lock, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, unix.EROFS) {
		lock, err = os.Open(name)
	}
	if err != nil {
		return nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	return &Journal{dir: dir, bootID: bootID, lock: lock}, nil
}

// Close lets other processes open the journal.
func (j *Journal) Close() error { return j.lock.Close() }

// Load returns the threads that were bound, and makes Slices, Uplinks, Taps
// and Trips known. A journal of an earlier boot is empty: its threads are gone. A journal that
// cannot be understood is set aside, with ErrCorrupt.
func (j *Journal) Load() ([]Entry, error) {
	path, aside := filepath.Join(j.dir, fileName), filepath.Join(j.dir, corruptName)
	text, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(aside); err == nil {
			return nil, fmt.Errorf("%w, kept as %s since an earlier start", ErrCorrupt, aside)
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read journal %s: %w", path, err)
	}
	doc, err := parse(text)
	if err != nil {
		if renameErr := os.Rename(path, aside); renameErr != nil {
			return nil, fmt.Errorf("%w: %w; it cannot be set aside: %w", ErrCorrupt, err, renameErr)
		}
		return nil, fmt.Errorf("%w, kept as %s: %w", ErrCorrupt, aside, err)
	}
	if doc.BootID != j.bootID {
		return nil, nil
	}
	j.held = doc.content
	return doc.Entries, nil
}

// Slices are the threads with slices that Load found, or that were saved since.
func (j *Journal) Slices() []SliceEntry { return j.held.Slices }

// Uplinks are those that Load found, or that were saved since.
func (j *Journal) Uplinks() []Device { return j.held.Uplinks }

// Taps are those that Load found, or that were saved since.
func (j *Journal) Taps() []Device { return j.held.Taps }

// Trips are those that Load found, or that were saved since.
func (j *Journal) Trips() []model.Trip { return j.held.Trips }

func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxSize {
		return nil, nil // which does not parse
	}
	return os.ReadFile(path)
}

func parse(text []byte) (document, error) {
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		return document{}, err
	}
	if doc.Version < threadsVersion || doc.Version > tapsVersion {
		return document{}, fmt.Errorf("version %d is none of %d to %d", doc.Version, threadsVersion, tapsVersion)
	}
	for _, e := range doc.Entries {
		if err := e.validate(); err != nil {
			return document{}, err
		}
	}
	for _, e := range doc.Slices {
		if err := e.validate(); err != nil {
			return document{}, err
		}
	}
	for _, u := range doc.Uplinks {
		if !u.isValid() {
			return document{}, fmt.Errorf("uplink %.32q of process %d makes no sense", u.Name, u.Process.PID)
		}
	}
	for _, t := range doc.Taps {
		if !t.isValid() {
			return document{}, fmt.Errorf("tap %.32q of process %d makes no sense", t.Name, t.Process.PID)
		}
	}
	return doc, nil
}

// Save replaces the threads that were bound. When it returns nil they are on disk; on
// an error the old ones are.
func (j *Journal) Save(entries []Entry) error {
	next := j.held
	next.Entries = entries
	return j.write(next)
}

// SaveSlices replaces the threads with slices, as Save does those that were bound.
func (j *Journal) SaveSlices(entries []SliceEntry) error {
	next := j.held
	next.Slices = entries
	return j.write(next)
}

// SaveUplinks replaces the uplinks, likewise.
func (j *Journal) SaveUplinks(uplinks []Device) error {
	next := j.held
	next.Uplinks = uplinks
	return j.write(next)
}

// SaveTaps replaces the taps, likewise.
func (j *Journal) SaveTaps(taps []Device) error {
	next := j.held
	next.Taps = taps
	return j.write(next)
}

// SaveTrips replaces the levers that hurt, likewise.
func (j *Journal) SaveTrips(trips []model.Trip) error {
	next := j.held
	next.Trips = trips
	return j.write(next)
}

func (j *Journal) write(next content) error {
	text, err := json.Marshal(document{Version: next.version(), BootID: j.bootID, content: next})
	if err != nil {
		return fmt.Errorf("encode journal: %w", err)
	}
	path := filepath.Join(j.dir, fileName)
	if err := replace(path, text); err != nil {
		return fmt.Errorf("write journal %s: %w", path, err)
	}
	j.held = next
	return nil
}

// version is the oldest that can hold it all.
func (c content) version() int {
	switch {
	case len(c.Taps) > 0:
		return tapsVersion
	case len(c.Slices) > 0 || slices.ContainsFunc(c.Entries, Entry.isWorker):
		return slicesVersion
	case len(c.Uplinks) > 0:
		return uplinksVersion
	default:
		return threadsVersion
	}
}

// replace writes a file such that a crash leaves the old or the new content.
func replace(path string, content []byte) error {
	next := path + ".next"
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next) // a part of it would be in the way of others on a full disk
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
