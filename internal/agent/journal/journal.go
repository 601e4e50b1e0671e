// Package journal stores on disk what the agent changed on its node and what
// was there before, so that whatever an agent left that was killed can be reverted.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	fileName    = "journal.json"
	corruptName = "journal.corrupt.json"
	lockName    = "lock"
)

var (
	// ErrCorrupt means that the journal could not be parsed. It was renamed to the name in
	// the error, if that could be done. The error comes again until a new journal was saved:
	// a start that did not get that far changes nothing.
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

// Value is an attribute's value: an affinity, a slice. The zero value is the kernel's
// default, which a thread has that nobody gave any.
type Value[V any] interface {
	Equal(other V) bool
}

// Record is one thread of which the agent changed an attribute, or is about to.
type Record[V Value[V]] struct {
	PodUID string `json:"podUID"`
	// Process that the thread works for, by its main thread. A kernel's worker is a
	// process of its own.
	Process host.TaskID `json:"process"`
	Thread  host.TaskID `json:"thread"`
	// Original value, from before the agent's first write. Zero: nobody had given the thread
	// one, and it follows the kernel's default, such as its cpuset when that changes.
	Original V `json:"original,omitzero"`
	// Ours is what the agent wrote, and Previous what it wrote before that.
	Ours     V `json:"ours"`
	Previous V `json:"previous,omitzero"`
	// Since is when the agent first wrote, in ticks since boot. A thread that
	// was created later may have inherited what was written.
	Since uint64 `json:"since"`
	// Undone is true when the original is back. The entry stays for one more
	// round, for threads that were created in the meantime.
	Undone bool `json:"undone,omitempty"`
}

// Entry is a thread that the agent bound to CPUs.
type Entry = Record[units.CPUSet]

// SliceEntry is a thread that the agent gave a scheduler slice.
type SliceEntry = Record[Slice]

// Equal reports whether two records are the same.
func (r Record[V]) Equal(o Record[V]) bool {
	return r.PodUID == o.PodUID && r.Process == o.Process && r.Thread == o.Thread &&
		r.Original.Equal(o.Original) && r.Ours.Equal(o.Ours) && r.Previous.Equal(o.Previous) &&
		r.Since == o.Since && r.Undone == o.Undone
}

// Slice is a scheduler slice. 0 is the kernel's default.
type Slice time.Duration

// Equal reports whether two slices are the same.
func (s Slice) Equal(o Slice) bool { return s == o }

// String shows it as a duration.
func (s Slice) String() string { return time.Duration(s).String() }

// Content is what a journal holds. It is immutable.
type Content struct {
	// Threads are pinned, and Slices are threads with scheduler slices.
	Threads []Entry      `json:"threads"`
	Slices  []SliceEntry `json:"slices,omitempty"`
	// Uplinks are shaped, and Taps buffered.
	Uplinks []Device `json:"uplinks,omitempty"`
	Taps    []Device `json:"taps,omitempty"`
	// Trips are levers that hurt.
	Trips []model.Trip `json:"trips,omitempty"`
}

type document struct {
	BootID string `json:"bootID"`
	Content
}

// Journal is a journal on disk. It is used by one goroutine at a time.
type Journal struct {
	dir    string
	bootID string
	lock   *os.File
	// content is what the disk has, as far as it was loaded or saved.
	content Content
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

// Load reads the journal. One of an earlier boot is empty: its threads are gone. A journal that
// cannot be parsed is renamed, with ErrCorrupt.
func (j *Journal) Load() (Content, error) {
	path, aside := filepath.Join(j.dir, fileName), filepath.Join(j.dir, corruptName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(aside); err == nil {
			return Content{}, fmt.Errorf("%w, renamed to %s by an earlier start", ErrCorrupt, aside)
		}
		return Content{}, nil
	}
	if err != nil {
		return Content{}, fmt.Errorf("read journal %s: %w", path, err)
	}
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		if renameErr := os.Rename(path, aside); renameErr != nil {
			return Content{}, fmt.Errorf("%w: %w; it cannot be renamed: %w", ErrCorrupt, err, renameErr)
		}
		return Content{}, fmt.Errorf("%w, renamed to %s: %w", ErrCorrupt, aside, err)
	}
	if doc.BootID == j.bootID {
		j.content = doc.Content
	}
	return j.content, nil
}

// Content is what was loaded, or saved since.
func (j *Journal) Content() Content { return j.content }

// SaveThreads replaces the pinned threads. When it returns nil they are on disk; on an error
// the old ones are.
func (j *Journal) SaveThreads(entries []Entry) error {
	next := j.content
	next.Threads = entries
	return j.write(next)
}

// SaveSlices replaces the threads with slices, as SaveThreads does those that are pinned.
func (j *Journal) SaveSlices(entries []SliceEntry) error {
	next := j.content
	next.Slices = entries
	return j.write(next)
}

// SaveUplinks replaces the uplinks, likewise.
func (j *Journal) SaveUplinks(uplinks []Device) error {
	next := j.content
	next.Uplinks = uplinks
	return j.write(next)
}

// SaveTaps replaces the taps, likewise.
func (j *Journal) SaveTaps(taps []Device) error {
	next := j.content
	next.Taps = taps
	return j.write(next)
}

// SaveTrips replaces the levers that hurt, likewise.
func (j *Journal) SaveTrips(trips []model.Trip) error {
	next := j.content
	next.Trips = trips
	return j.write(next)
}

func (j *Journal) write(next Content) error {
	text, err := json.Marshal(document{BootID: j.bootID, Content: next})
	if err != nil {
		return fmt.Errorf("encode journal: %w", err)
	}
	path := filepath.Join(j.dir, fileName)
	if err := replace(path, text); err != nil {
		return fmt.Errorf("write journal %s: %w", path, err)
	}
	j.content = next
	return nil
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
