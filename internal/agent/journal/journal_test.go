package journal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
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
			Original: Original[units.CPUSet]{Value: units.NewCPUSet(0, 1)}, Ours: units.NewCPUSet(2), Previous: units.NewCPUSet(3), Undone: true,
		},
	}
}

func TestWhatIsSavedIsLoaded(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, "boot-1")
	if got, err := j.Load(); err != nil || got != nil {
		t.Errorf("a new journal holds %v, %v", got, err)
	}
	if err := j.Save(entries()); err != nil {
		t.Fatal(err)
	}
	got, err := j.Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(entries(), got, cmp.Comparer(Entry.Equal)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func uplinks() []Device {
	return []Device{{PodUID: "a", Process: host.TaskID{PID: 100, TID: 100, Start: 7}, Name: "eth0"}}
}

func TestUplinksAndThreadsAreSavedApart(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, "boot-1")
	want := func(wantEntries []Entry, wantUplinks []Device, version string) {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(dir, fileName))
		if err != nil || !strings.HasPrefix(string(content), version) {
			t.Errorf("journal %s, %v", content, err)
		}
		j.Close()
		j = open(t, dir, "boot-1")
		got, err := j.Load()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wantEntries, got, cmp.Comparer(Entry.Equal)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if diff := cmp.Diff(wantUplinks, j.Uplinks()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(j.Save(entries()))
	want(entries(), nil, `{"version":1,`) // as agents before turns wrote it
	must(j.SaveUplinks(uplinks()))
	want(entries(), uplinks(), `{"version":2,`)
	must(j.Save(entries()[:1]))
	want(entries()[:1], uplinks(), `{"version":2,`)
	must(j.SaveUplinks(nil))
	want(entries()[:1], nil, `{"version":1,`)
}

func sliceEntries() []SliceEntry {
	process := host.TaskID{PID: 100, TID: 100, Start: 7}
	return []SliceEntry{
		{PodUID: "a", Process: process, Thread: process, Ours: Slice(500 * time.Microsecond), Since: 9},
		{
			PodUID: "a", Process: process, Thread: host.TaskID{PID: 100, TID: 101, Start: 8}, Undone: true,
			Original: Original[Slice]{Value: Slice(time.Millisecond)}, Ours: Slice(20 * time.Millisecond), Previous: Slice(time.Second),
		},
	}
}

func TestSlicesAreSavedApart(t *testing.T) {
	j := open(t, t.TempDir(), "boot-1")
	want := func(slices []SliceEntry, version string) {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(j.dir, fileName))
		if err != nil || !strings.HasPrefix(string(content), version) {
			t.Errorf("journal %s, %v", content, err)
		}
		if _, err := j.Load(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(slices, j.Slices(), cmp.Comparer(SliceEntry.Equal)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(j.Save(entries()))
	must(j.SaveSlices(sliceEntries()))
	want(sliceEntries(), `{"version":3,`)
	must(j.SaveUplinks(uplinks()))
	must(j.SaveSlices(sliceEntries()[1:]))
	want(sliceEntries()[1:], `{"version":3,`)
	must(j.SaveSlices(nil))
	want(nil, `{"version":2,`)
	must(j.SaveUplinks(nil))
	want(nil, `{"version":1,`)
	worker := entries()[0]
	worker.Thread = host.TaskID{PID: 300, TID: 300, Start: 9}
	must(j.Save([]Entry{worker})) // which earlier agents take for nonsense
	want(nil, `{"version":3,`)
	if got, err := j.Load(); err != nil || len(got) != 1 || !got[0].Equal(worker) {
		t.Errorf("loaded %v, %v", got, err)
	}
}

func TestTapsAreSavedApart(t *testing.T) {
	j := open(t, t.TempDir(), "boot-1")
	taps := []Device{{PodUID: "a", Process: host.TaskID{PID: 100, TID: 100, Start: 7}, Name: "tap0"}}
	save := func(err error, want []Device, version string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(j.dir, fileName))
		if err != nil || !strings.HasPrefix(string(content), version) {
			t.Errorf("journal %s, %v", content, err)
		}
		if _, err := j.Load(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, j.Taps()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	save(j.SaveTaps(taps), taps, `{"version":4,`)
	save(j.SaveUplinks(uplinks()), taps, `{"version":4,`)
	save(j.SaveSlices(sliceEntries()), taps, `{"version":4,`)
	save(j.SaveTaps(nil), nil, `{"version":3,`) // as agents before buffering wrote it
	save(j.SaveSlices(nil), nil, `{"version":2,`)
	if diff := cmp.Diff(uplinks(), j.Uplinks()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAJournalOfAnEarlierBootIsEmpty(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, "boot-1")
	if err := j.Save(entries()); err != nil {
		t.Fatal(err)
	}
	j.Close()
	if got, err := open(t, dir, "boot-2").Load(); err != nil || got != nil {
		t.Errorf("holds %v, %v", got, err)
	}
}

func TestACorruptJournalIsSetAside(t *testing.T) {
	for name, content := range map[string]string{
		"empty":                   "",
		"truncated":               `{"version":1,"bootID":"boot-1","entries":[{"podUID":"a","process":{"pid":100`,
		"not JSON":                "\x00\x01\x02",
		"another version":         `{"version":5}`,
		"a tap of init":           `{"version":4,"bootID":"boot-1","taps":[{"process":{"pid":1},"name":"tap0"}]}`,
		"a tap of no name":        `{"version":4,"bootID":"boot-1","taps":[{"process":{"pid":100}}]}`,
		"a slice of nothing":      `{"version":3,"bootID":"boot-1","slices":[{"process":{"pid":100},"thread":{"pid":100,"tid":101},"original":"unrestricted","ours":"0s"}]}`,
		"an original of no slice": `{"version":3,"bootID":"boot-1","slices":[{"process":{"pid":100},"thread":{"pid":100,"tid":101},"original":"0s","ours":"1ms"}]}`,
		"a negative slice":        `{"version":3,"bootID":"boot-1","slices":[{"process":{"pid":100},"thread":{"pid":100,"tid":101},"original":"unrestricted","ours":"-1ms"}]}`,
		"a thread of another":     `{"version":3,"bootID":"boot-1","entries":[{"process":{"pid":100},"thread":{"pid":200,"tid":201},"original":"unrestricted","ours":"1"}]}`,
		"an uplink of init":       `{"version":2,"bootID":"boot-1","uplinks":[{"process":{"pid":1},"name":"eth0"}]}`,
		"an uplink of no name":    `{"version":2,"bootID":"boot-1","uplinks":[{"process":{"pid":100}}]}`,
		"an original of no CPU":   `{"version":1,"bootID":"boot-1","entries":[{"process":{"pid":100},"thread":{"pid":100,"tid":101},"original":"","ours":"1"}]}`,
		"a thread of init":        `{"version":1,"bootID":"boot-1","entries":[{"process":{"pid":1},"thread":{"pid":1,"tid":1},"original":"unrestricted","ours":"1"}]}`,
		"no CPUs of ours":         `{"version":1,"bootID":"boot-1","entries":[{"process":{"pid":100},"thread":{"pid":100,"tid":101},"original":"unrestricted","ours":""}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, fileName), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			j := open(t, dir, "boot-1")
			for range 2 { // also a second start before anything was saved
				if _, err := j.Load(); !errors.Is(err, ErrCorrupt) {
					t.Fatalf("Load: %v, want ErrCorrupt", err)
				}
			}
			aside, err := os.ReadFile(filepath.Join(dir, corruptName))
			if err != nil || string(aside) != content {
				t.Errorf("set aside: %q, %v", aside, err)
			}
			if err := j.Save(nil); err != nil {
				t.Fatal(err)
			}
			if _, err := j.Load(); err != nil {
				t.Errorf("after a new journal: %v", err)
			}
		})
	}
}

func TestAFailedSaveKeepsTheOldJournal(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, "boot-1")
	if err := j.Save(entries()); err != nil {
		t.Fatal(err)
	}
	// A folder in the way of the next file makes writing fail, for root too.
	if err := os.Mkdir(filepath.Join(dir, fileName+".next"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := j.Save(nil); err == nil {
		t.Fatal("Save succeeded")
	}
	if err := j.SaveUplinks(uplinks()); err == nil || j.Uplinks() != nil {
		t.Fatal("SaveUplinks succeeded")
	}
	if err := j.SaveTaps(uplinks()); err == nil || j.Taps() != nil {
		t.Fatal("SaveTaps succeeded")
	}
	if got, err := j.Load(); err != nil || len(got) != 2 {
		t.Errorf("holds %v, %v; want the old entries", got, err)
	}
}

func TestOneProcessAtATime(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, "boot-1")
	if _, err := Open(dir, "boot-1"); !errors.Is(err, ErrInUse) {
		t.Errorf("second Open: %v, want ErrInUse", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir, "boot-1")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":1,"bootID":"b","entries":[{"process":{"pid":100},"thread":{"pid":100,"tid":101},"original":"0-3","ours":"1"}]}`))
	f.Add([]byte(`{"version":2,"bootID":"b","uplinks":[{"podUID":"a","process":{"pid":100},"name":"eth0"}]}`))
	f.Add([]byte(`{"version":3,"bootID":"b","slices":[{"process":{"pid":100},"thread":{"pid":100,"tid":101},"original":"1ms","ours":"500µs"}]}`))
	f.Add([]byte(`{"version":4,"bootID":"b","taps":[{"podUID":"a","process":{"pid":100},"name":"tap0"}],"uplinks":[{"process":{"pid":100},"name":"eth0"}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		doc, err := parse(content)
		if err != nil {
			return
		}
		for _, e := range doc.Entries {
			if e.Thread.TID <= 1 || e.Ours.IsEmpty() {
				t.Errorf("entry %+v accepted", e)
			}
		}
		for _, e := range doc.Slices {
			if e.Thread.TID <= 1 || e.Ours <= 0 || e.Original.Value < 0 {
				t.Errorf("slice %+v accepted", e)
			}
		}
		for _, d := range append(doc.Uplinks, doc.Taps...) {
			if d.Process.PID <= 1 || d.Name == "" {
				t.Errorf("device %+v accepted", d)
			}
		}
	})
}
