package guesttools

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustOpen(t *testing.T, dir string) *journal {
	t.Helper()
	j, err := openJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestJournalOutlivesItsRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	j := mustOpen(t, dir)
	one, other := entry{Card: "eth0", Index: 2, Attached: true}, entry{Card: "eth1", Index: 3, Deferred: true}
	for _, e := range []entry{one, other, {Card: "eth2", Index: 4}} {
		if err := j.set(e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openJournal(dir); !errors.Is(err, ErrInUse) {
		t.Errorf("a second run: %v, want ErrInUse", err)
	}
	if locked, err := isLocked(dir); err != nil || !locked {
		t.Errorf("locked %v, %v", locked, err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	if locked, err := isLocked(dir); err != nil || locked {
		t.Errorf("after the end: locked %v, %v", locked, err)
	}
	j = mustOpen(t, dir)
	if diff := cmp.Diff([]entry{one, other}, j.entries); diff != "" {
		t.Errorf("the next run reads (-want +got):\n%s", diff)
	}
	if got := j.of(card{name: "eth0", index: 9}); got.Attached {
		t.Error("another card of the same name counts as changed")
	}
	if err := j.set(entry{Card: "eth0", Index: 2}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]entry{other}, j.entries); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestJournalThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	j := mustOpen(t, dir)
	if err := os.Mkdir(filepath.Join(dir, stateName+".new"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := j.set(entry{Card: "eth0", Index: 2, Attached: true}); err == nil || len(j.entries) != 0 {
		t.Errorf("error %v, entries %v; want an error and none", err, j.entries)
	}
}

func TestCorruptJournal(t *testing.T) {
	for _, text := range []string{
		"", "{", `{"card":"eth0"}`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, stateName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openJournal(dir); err == nil || !strings.Contains(err.Error(), stateName) {
			t.Errorf("%q: %v", text, err)
		}
		if locked, err := isLocked(dir); err != nil || locked {
			t.Errorf("%q: the folder stays locked: %v", text, err)
		}
	}
}
