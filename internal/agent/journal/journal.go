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

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	fileName    = "journal.json"
	corruptName = "journal.corrupt.json"
	lockName    = "lock"
	// A journal of threads alone is of version 1, which every agent reads, and
	// one with uplinks of version 2.
	threadsVersion, uplinksVersion = 1, 2
	// maxSize is far above what a node's threads need; a larger file is not ours.
	maxSize = 64 << 20
)

var (
	// ErrCorrupt means that the journal could not be understood. It was set
	// aside under the name that the error tells. The error comes again until a
	// new journal was saved: a start that did not get that far changes nothing.
	ErrCorrupt = errors.New("journal is corrupt")
	// ErrInUse means that another agent uses the journal.
	ErrInUse = errors.New("another agent is running on the node: stop it first")
)

// unrestricted is how an Original of that kind is written.
const unrestricted = "unrestricted"

// Original is the affinity that a thread had before the agent's first write.
// The zero value is an unrestricted thread: one that ran on all CPUs of its
// cpuset, and follows the cpuset when that changes.
type Original struct {
	// CPUs of a thread that was restricted. Empty: unrestricted.
	CPUs units.CPUSet
}

// Unrestricted tells whether the thread ran on all CPUs of its cpuset.
func (o Original) Unrestricted() bool { return o.CPUs.IsEmpty() }

// MarshalText writes "unrestricted" or a CPU list.
func (o Original) MarshalText() ([]byte, error) {
	if o.Unrestricted() {
		return []byte(unrestricted), nil
	}
	return o.CPUs.MarshalText()
}

// UnmarshalText reads what MarshalText writes.
func (o *Original) UnmarshalText(text []byte) error {
	if string(text) == unrestricted {
		*o = Original{}
		return nil
	}
	if err := o.CPUs.UnmarshalText(text); err != nil {
		return err
	}
	if o.CPUs.IsEmpty() {
		return errors.New("a thread cannot have had no CPU")
	}
	return nil
}

// Entry is one thread that the agent bound to CPUs, or is about to.
type Entry struct {
	PodUID string `json:"podUID"`
	// Process of the thread, by its main thread.
	Process host.TaskID `json:"process"`
	Thread  host.TaskID `json:"thread"`
	// Original affinity, from before the agent's first write.
	Original Original `json:"original"`
	// Ours is what the agent wrote, and Previous what it wrote before that.
	Ours     units.CPUSet `json:"ours"`
	Previous units.CPUSet `json:"previous,omitzero"`
	// Since is when the agent first wrote, in ticks since boot. A thread that
	// was created later may have inherited what was written.
	Since uint64 `json:"since"`
	// Undone is true when the original is back. The entry stays for one more
	// round, for threads that were created in the meantime.
	Undone bool `json:"undone,omitempty"`
}

// Equal tells whether two entries say the same.
func (e Entry) Equal(o Entry) bool {
	return e.PodUID == o.PodUID && e.Process == o.Process && e.Thread == o.Thread &&
		e.Original.CPUs.Equal(o.Original.CPUs) && e.Ours.Equal(o.Ours) && e.Previous.Equal(o.Previous) &&
		e.Since == o.Since && e.Undone == o.Undone
}

// Uplink is a device of a VM's pod that the agent shaped, or is about to. What it
// had before needs no record: only the kernel's default is ever replaced.
type Uplink struct {
	PodUID string `json:"podUID"`
	// Process in whose network namespace the device is.
	Process host.TaskID `json:"process"`
	Name    string      `json:"name"`
}

type document struct {
	Version int      `json:"version"`
	BootID  string   `json:"bootID"`
	Entries []Entry  `json:"entries"`
	Uplinks []Uplink `json:"uplinks,omitempty"`
}

// Journal is a journal on disk. It is used by one goroutine at a time.
type Journal struct {
	dir    string
	bootID string
	lock   *os.File
	// entries and uplinks are what the disk holds, as far as it was loaded or
	// saved.
	entries []Entry
	uplinks []Uplink
}

// Open creates the folder when it is missing, and locks it against other
// processes until Close or the end of this one: ErrInUse. bootID is that of the
// node now.
func Open(dir, bootID string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
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

// Load returns the entries of threads, and makes Uplinks known. A journal of an
// earlier boot is empty: its threads are gone. A journal that cannot be
// understood is set aside, with ErrCorrupt.
func (j *Journal) Load() ([]Entry, error) {
	path, aside := filepath.Join(j.dir, fileName), filepath.Join(j.dir, corruptName)
	content, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(aside); err == nil {
			return nil, fmt.Errorf("%w, kept as %s since an earlier start", ErrCorrupt, aside)
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read journal %s: %w", path, err)
	}
	doc, err := parse(content)
	if err != nil {
		if renameErr := os.Rename(path, aside); renameErr != nil {
			return nil, fmt.Errorf("set corrupt journal aside: %w", renameErr)
		}
		return nil, fmt.Errorf("%w, kept as %s: %w", ErrCorrupt, aside, err)
	}
	if doc.BootID != j.bootID {
		return nil, nil
	}
	j.entries, j.uplinks = doc.Entries, doc.Uplinks
	return doc.Entries, nil
}

// Uplinks are those that Load found, or that were saved since.
func (j *Journal) Uplinks() []Uplink { return j.uplinks }

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

func parse(content []byte) (document, error) {
	var doc document
	if err := json.Unmarshal(content, &doc); err != nil {
		return document{}, err
	}
	if doc.Version != threadsVersion && doc.Version != uplinksVersion {
		return document{}, fmt.Errorf("version %d is none of %d and %d", doc.Version, threadsVersion, uplinksVersion)
	}
	for _, e := range doc.Entries {
		if e.Thread.PID <= 1 || e.Thread.TID <= 1 || e.Process.PID != e.Thread.PID || e.Ours.IsEmpty() {
			return document{}, fmt.Errorf("entry of thread %d of process %d makes no sense", e.Thread.TID, e.Thread.PID)
		}
	}
	for _, u := range doc.Uplinks {
		if u.Process.PID <= 1 || u.Name == "" {
			return document{}, fmt.Errorf("uplink %.32q of process %d makes no sense", u.Name, u.Process.PID)
		}
	}
	return doc, nil
}

// Save replaces the entries of threads. When it returns nil they are on disk; on
// an error the old ones are.
func (j *Journal) Save(entries []Entry) error {
	err := j.write(entries, j.uplinks)
	if err == nil {
		j.entries = entries
	}
	return err
}

// SaveUplinks replaces the uplinks, as Save does the entries.
func (j *Journal) SaveUplinks(uplinks []Uplink) error {
	err := j.write(j.entries, uplinks)
	if err == nil {
		j.uplinks = uplinks
	}
	return err
}

func (j *Journal) write(entries []Entry, uplinks []Uplink) error {
	version := threadsVersion
	if len(uplinks) > 0 {
		version = uplinksVersion
	}
	content, err := json.Marshal(document{Version: version, BootID: j.bootID, Entries: entries, Uplinks: uplinks})
	if err != nil {
		return fmt.Errorf("encode journal: %w", err)
	}
	path := filepath.Join(j.dir, fileName)
	if err := replace(path, content); err != nil {
		return fmt.Errorf("write journal %s: %w", path, err)
	}
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
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
