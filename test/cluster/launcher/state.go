package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The state folder of a host, one for all runs:
//
//	lock               held while shared things (parents of cgroups, subnets,
//	                   run folders) are made or removed
//	run-PID-RANDOM/    one for each Runtime
//	  owner            locked for as long as its process lives
//	  record.json      what the run has made outside of this folder
//	  POD-UID/         the pod's files
//
// A file lock instead of the PID reports whether an owner lives: PIDs come again.
const (
	runPattern = "run-*"
	ownerFile  = "owner"
	recordFile = "record.json"
	sharedLock = "lock"
)

// record lists what a run has made, or was about to make, on the host. It is on
// disk before the first of them exists.
type record struct {
	Bridge string               `json:"bridge"`
	Pods   map[string]podRecord `json:"pods"`
}

// podRecord is the part of one pod, keyed by its UID.
type podRecord struct {
	CgroupNames []string `json:"cgroupNames"`
	HostVeth    string   `json:"hostVeth"`
}

// runFolder is the folder of one run.
type runFolder struct {
	path  string
	owner *os.File
}

// lockFile opens path and takes its lock; the lock ends with the file's
// closing, at the latest with the process. With wait false a lock held by
// somebody else is the error unix.EWOULDBLOCK.
func lockFile(path string, wait bool) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		err = unix.Flock(int(file.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return file, nil
}

// withSharedLock runs fn while no other run of this host is in its own.
func withSharedLock(stateDir string, fn func() error) error {
	lock, err := lockFile(filepath.Join(stateDir, sharedLock), true)
	if err != nil {
		return err
	}
	defer lock.Close()
	return fn()
}

// newRunFolder creates this run's folder. The shared lock is held.
func newRunFolder(stateDir string) (*runFolder, error) {
	path, err := os.MkdirTemp(stateDir, fmt.Sprintf("run-%d-*", os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("create the run's folder: %w", err)
	}
	owner, err := lockFile(filepath.Join(path, ownerFile), true)
	if err != nil {
		return nil, err
	}
	return &runFolder{path: path, owner: owner}, nil
}

// save replaces the run's record on disk.
func (f *runFolder) save(r record) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the run's record: %w", err)
	}
	path := filepath.Join(f.path, recordFile)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return fmt.Errorf("write the run's record: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write the run's record: %w", err)
	}
	return nil
}

// remove deletes the folder and gives up the ownership.
func (f *runFolder) remove() error {
	err := os.RemoveAll(f.path)
	return errors.Join(err, f.owner.Close())
}

// removeLeftovers undoes the runs whose owners are dead. The shared lock is
// held. Runs of the living are not touched.
func removeLeftovers(ctx context.Context, stateDir string, hierarchies []hierarchy) error {
	runs, err := filepath.Glob(filepath.Join(stateDir, runPattern))
	if err != nil {
		return fmt.Errorf("look for leftovers in %s: %w", stateDir, err)
	}
	var problems []error
	for _, path := range runs {
		owner, err := lockFile(filepath.Join(path, ownerFile), false)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		folder := &runFolder{path: path, owner: owner}
		if err := undoRun(ctx, folder, hierarchies); err != nil {
			owner.Close()
			problems = append(problems, fmt.Errorf("undo the ended run %s: %w", path, err))
		}
	}
	return errors.Join(problems...)
}

func undoRun(ctx context.Context, folder *runFolder, hierarchies []hierarchy) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeDeadline)
	defer cancel()
	var r record
	content, err := os.ReadFile(filepath.Join(folder.path, recordFile))
	if err == nil {
		err = json.Unmarshal(content, &r)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read its record: %w", err)
	}
	var problems []error
	for _, pod := range r.Pods {
		problems = append(problems, undoPod(ctx, pod, hierarchies))
	}
	if r.Bridge != "" {
		problems = append(problems, removeLink(r.Bridge))
	}
	// The record goes last: what could not be undone is tried again next time.
	if err := errors.Join(problems...); err != nil {
		return err
	}
	return folder.remove()
}

func undoPod(ctx context.Context, pod podRecord, hierarchies []hierarchy) error {
	return errors.Join(removeCgroup(ctx, hierarchies, pod.CgroupNames), removeLink(pod.HostVeth))
}
