package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host/hosttest"
)

func TestAFullDiskKeepsTheOldJournal(t *testing.T) {
	disk := hosttest.NewDisk(t)
	j := open(t, disk.Dir, "boot-1")
	if err := j.Save(entries()); err != nil {
		t.Fatal(err)
	}
	free := disk.Fill()
	if err := j.Save(nil); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("Save on a full disk: %v, want no space left", err)
	}
	if err := j.SaveUplinks(uplinks()); !errors.Is(err, unix.ENOSPC) || j.Uplinks() != nil {
		t.Fatalf("SaveUplinks on a full disk: %v, holding %v", err, j.Uplinks())
	}
	if left, err := filepath.Glob(filepath.Join(disk.Dir, "*.next")); err != nil || len(left) > 0 {
		t.Errorf("half a journal is left on the full disk: %v, %v", left, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, disk.Dir, "boot-1")
	if got, err := j.Load(); err != nil || len(got) != len(entries()) {
		t.Errorf("the next start finds %v, %v; want the old entries", got, err)
	}
	free()
	if err := j.Save(nil); err != nil {
		t.Errorf("with space again: %v", err)
	}
	if got, err := j.Load(); err != nil || len(got) != 0 {
		t.Errorf("holds %v, %v; want what was saved last", got, err)
	}
}

func TestAFolderThatCannotBeWritten(t *testing.T) {
	disk := hosttest.NewDisk(t)
	j := open(t, disk.Dir, "boot-1")
	if err := j.Save(entries()); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	writable := disk.MakeReadOnly()
	j = open(t, disk.Dir, "boot-1")
	if _, err := Open(disk.Dir, "boot-1"); !errors.Is(err, ErrInUse) {
		t.Errorf("a second Open: %v, want ErrInUse", err)
	}
	if got, err := j.Load(); err != nil || len(got) != len(entries()) {
		t.Errorf("holds %v, %v; want what there is to undo", got, err)
	}
	if err := j.Save(nil); !errors.Is(err, unix.EROFS) {
		t.Errorf("Save: %v, want that nothing can be written", err)
	}
	writable()
	if err := j.Save(nil); err != nil {
		t.Error(err)
	}
}

func TestACorruptJournalThatCannotBeSetAside(t *testing.T) {
	disk := hosttest.NewDisk(t)
	if err := open(t, disk.Dir, "boot-1").Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(disk.Dir, fileName), []byte(`{"version":1,"bootID":"boo`), 0o600); err != nil {
		t.Fatal(err)
	}
	writable := disk.MakeReadOnly()
	j := open(t, disk.Dir, "boot-1")
	for range 2 {
		if _, err := j.Load(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("Load: %v, want ErrCorrupt", err)
		}
	}
	writable()
	if _, err := j.Load(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Load: %v, want ErrCorrupt", err)
	}
	if _, err := os.Stat(filepath.Join(disk.Dir, corruptName)); err != nil {
		t.Errorf("it was not set aside: %v", err)
	}
}

// A folder in which no journal can ever have been needs none.
func TestAFolderThatNeverCouldBeWritten(t *testing.T) {
	disk := hosttest.NewDisk(t)
	disk.MakeReadOnly()
	if _, err := Open(disk.Dir, "boot-1"); err == nil {
		t.Error("it was opened, without a lock")
	}
}
