package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

func open(t *testing.T, dir, boot string) *Journal {
	t.Helper()
	j, err := Open(dir, boot)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func entries() []Entry {
	process := host.TaskID{PID: 100, TID: 100, Start: 7}
	return []Entry{
		{PodUID: "a", Process: process, Thread: host.TaskID{PID: 100, TID: 101, Start: 8}, Ours: units.NewCPUSet(1), Since: 9},
		{
			PodUID: "a", Process: process, Thread: host.TaskID{PID: 100, TID: 102, Start: 8},
			Original: units.NewCPUSet(0, 1), Ours: units.NewCPUSet(2), Previous: units.NewCPUSet(3), Undone: true,
		},
	}
}

func devices(name string) []Device {
	return []Device{{PodUID: "a", Process: host.TaskID{PID: 100, TID: 100, Start: 7}, Name: name}}
}

func sliceEntries() []SliceEntry {
	process := host.TaskID{PID: 100, TID: 100, Start: 7}
	return []SliceEntry{
		{PodUID: "a", Process: process, Thread: process, Ours: Slice(500 * time.Microsecond), Since: 9},
		{
			PodUID: "a", Process: process, Thread: host.TaskID{PID: 100, TID: 101, Start: 8}, Undone: true,
			Original: Slice(time.Millisecond), Ours: Slice(20 * time.Millisecond), Previous: Slice(time.Second),
		},
	}
}

// Each lever saves its own part, and the others stay, also for the next agent.
func TestLeversAreSavedApart(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, "boot-1")
	if got, err := j.Load(); err != nil || got.Threads != nil {
		t.Errorf("a new journal has %v, %v", got, err)
	}
	trips := []model.Trip{{
		PodUID: "a", Namespace: "shop", Name: "web", Lever: v1alpha1.LeverAffinity, Symptom: model.SymptomRunDelay,
		Time: time.Unix(1000, 0).UTC(), Until: time.Unix(1300, 0).UTC(), Count: 1,
	}}
	want := Content{}
	for i, save := range []func() error{
		func() error { want.Threads = entries(); return j.SaveThreads(want.Threads) },
		func() error { want.Trips = trips; return j.SaveTrips(trips) },
		func() error { want.Uplinks = devices("eth0"); return j.SaveUplinks(want.Uplinks) },
		func() error { want.Slices = sliceEntries(); return j.SaveSlices(want.Slices) },
		func() error { want.Taps = devices("tap0"); return j.SaveTaps(want.Taps) },
		func() error { want.Threads = want.Threads[1:]; return j.SaveThreads(want.Threads) },
		func() error { want.Uplinks = nil; return j.SaveUplinks(nil) },
		func() error { want.Slices = want.Slices[1:]; return j.SaveSlices(want.Slices) },
		func() error { want.Taps = nil; return j.SaveTaps(nil) },
		func() error { want.Trips = nil; return j.SaveTrips(nil) },
	} {
		if err := save(); err != nil {
			t.Fatal(err)
		}
		j.Close()
		j = open(t, dir, "boot-1")
		got, err := j.Load()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(Entry.Equal), cmp.Comparer(SliceEntry.Equal)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
	j.Close()
	if got, err := open(t, dir, "boot-2").Load(); err != nil || got.Threads != nil {
		t.Errorf("after a reboot it has %v, %v", got, err)
	}
}

func TestACorruptJournalIsRenamed(t *testing.T) {
	disk := hosttest.NewDisk(t)
	if err := open(t, disk.Dir, "boot-1").Close(); err != nil {
		t.Fatal(err)
	}
	const content = `{"bootID":"boot-1","threads":[{"podUID":"a","process":{"pid":100`
	if err := os.WriteFile(filepath.Join(disk.Dir, fileName), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	writable := disk.MakeReadOnly()
	j := open(t, disk.Dir, "boot-1")
	if _, err := j.Load(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Load of a journal that cannot be renamed: %v, want ErrCorrupt", err)
	}
	writable()
	for range 2 { // also a second start before anything was saved
		if _, err := j.Load(); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("Load: %v, want ErrCorrupt", err)
		}
	}
	aside, err := os.ReadFile(filepath.Join(disk.Dir, corruptName))
	if err != nil || string(aside) != content {
		t.Errorf("renamed: %q, %v", aside, err)
	}
	if err := j.SaveThreads(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Load(); err != nil {
		t.Errorf("after a new journal: %v", err)
	}
}

func TestAFullDiskKeepsTheOldJournal(t *testing.T) {
	disk := hosttest.NewDisk(t)
	j := open(t, disk.Dir, "boot-1")
	if err := j.SaveThreads(entries()); err != nil {
		t.Fatal(err)
	}
	free := disk.Fill()
	if err := j.SaveThreads(nil); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("SaveThreads on a full disk: %v, want no space left", err)
	}
	if err := j.SaveUplinks(devices("eth0")); !errors.Is(err, unix.ENOSPC) || j.Content().Uplinks != nil {
		t.Fatalf("SaveUplinks on a full disk: %v, has %v", err, j.Content().Uplinks)
	}
	if left, err := filepath.Glob(filepath.Join(disk.Dir, "*.next")); err != nil || len(left) > 0 {
		t.Errorf("half a journal is left on the full disk: %v, %v", left, err)
	}
	j.Close()
	j = open(t, disk.Dir, "boot-1")
	if got, err := j.Load(); err != nil || len(got.Threads) != len(entries()) {
		t.Errorf("the next start finds %v, %v; want the old entries", got, err)
	}
	free()
	if err := j.SaveThreads(nil); err != nil {
		t.Errorf("with space again: %v", err)
	}
	if got, err := j.Load(); err != nil || len(got.Threads) != 0 {
		t.Errorf("has %v, %v; want what was saved last", got, err)
	}
}

func TestAFolderThatCannotBeWritten(t *testing.T) {
	disk := hosttest.NewDisk(t)
	writable := disk.MakeReadOnly()
	if _, err := Open(disk.Dir, "boot-1"); err == nil {
		t.Error("it was opened, without a lock")
	}
	writable()
	j := open(t, disk.Dir, "boot-1")
	if err := j.SaveThreads(entries()); err != nil {
		t.Fatal(err)
	}
	j.Close()
	writable = disk.MakeReadOnly()
	j = open(t, disk.Dir, "boot-1")
	if _, err := Open(disk.Dir, "boot-1"); !errors.Is(err, ErrInUse) {
		t.Errorf("a second Open: %v, want ErrInUse", err)
	}
	if got, err := j.Load(); err != nil || len(got.Threads) != len(entries()) {
		t.Errorf("has %v, %v; want what there is to undo", got, err)
	}
	if err := j.SaveThreads(nil); !errors.Is(err, unix.EROFS) {
		t.Errorf("SaveThreads: %v, want that nothing can be written", err)
	}
	writable()
	if err := j.SaveThreads(nil); err != nil {
		t.Error(err)
	}
}
