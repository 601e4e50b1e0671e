package evidence

import (
	"bytes"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
)

func xeon() verify.Class {
	return verify.Class{
		CPUModel: `Intel(R) Xeon(R) Gold 6430 "A": #1`, Kernel: "6.12", Idle: "C6", Clocks: "schedutil/follows", Workload: "Interactive",
	}
}

func noon(day int) time.Time { return time.Date(2026, 3, day, 12, 0, 0, 0, time.UTC) }

func entry() Entry {
	return Entry{
		Lever: model.LeverBuffering, Class: xeon(),
		Mean:    verify.Effect{Log: -0.0512345678, StdErr: 0.0041, Freedom: 11.04, Units: 12, Pairs: 240},
		Between: 0.0123, From: noon(1), Until: noon(20), Version: "v0.7.0",
	}
}

// put puts entries that a file can hold.
func put(e Evidence, entries ...Entry) Evidence {
	for _, entry := range entries {
		var err error
		if e, err = e.Put(entry); err != nil {
			panic(err)
		}
	}
	return e
}

// TestWhatAFileCannotHoldIsNotPut: one such entry would have the whole file refused.
func TestWhatAFileCannotHoldIsNotPut(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*Entry)
		want  string
	}{
		"a CPU that is not known":   {func(e *Entry) { e.Class.CPUModel = "" }, "cpuModel: is empty"},
		"a kernel without numbers":  {func(e *Entry) { e.Class.Kernel = verify.KernelOf("next") }, "kernel"},
		"one unit":                  {func(e *Entry) { e.Mean.Units = 1 }, "units: 1"},
		"an effect of no number":    {func(e *Entry) { e.Mean.Log = math.NaN() }, "log"},
		"freedom without end":       {func(e *Entry) { e.Mean.Freedom = math.Inf(1) }, ""},
		"an error of half and more": {func(e *Entry) { e.Mean.StdErr = 3 }, "stdErr"},
		"no version":                {func(e *Entry) { e.Version = "" }, "version"},
	} {
		spoiled := entry()
		test.spoil(&spoiled)
		got, err := both().Put(spoiled)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: error %v, want one with %q", name, err, test.want)
		}
		if err != nil && len(got.Entries()) != len(both().Entries()) {
			t.Errorf("%s: is refused, and changes the evidence", name)
		}
		if _, err := Import("evidence.yaml", Export(got)); err != nil {
			t.Errorf("%s: what was written is refused: %v", name, err)
		}
	}
}

const written = `apiVersion: joulevirt.io/v1alpha1
kind: Evidence
entries:
- lever: Affinity
  cpuModel: "EPYC"
  kernel: "6.1"
  idle: ""
  clocks: ""
  workload: "Throughput"
  savedPercent: -1
  interval95Percent: [-2.49, 0.47]
  log: 0.00995
  stdErr: 0.0046
  freedom: 3
  between: 0
  units: 4
  pairs: 40
  from: "2026-03-01"
  until: "2026-03-01"
  version: "v0.7.0"
- lever: Buffering
  cpuModel: "Intel(R) Xeon(R) Gold 6430 \"A\": #1"
  kernel: "6.12"
  idle: "C6"
  clocks: "schedutil/follows"
  workload: "Interactive"
  savedPercent: 4.99
  interval95Percent: [4.13, 5.85]
  log: -0.051235
  stdErr: 0.0041
  freedom: 11
  between: 0.0123
  units: 12
  pairs: 240
  from: "2026-03-01"
  until: "2026-03-20"
  version: "v0.7.0"
`

func both() Evidence {
	other := Entry{
		Lever: model.LeverAffinity, Class: verify.Class{CPUModel: "EPYC", Kernel: "6.1", Workload: "Throughput"},
		Mean: verify.Effect{Log: 0.00995, StdErr: 0.0046, Freedom: 3, Units: 4, Pairs: 40},
		From: noon(1), Until: noon(1), Version: "v0.7.0",
	}
	return put(Evidence{}, entry(), other)
}

// TestImportReadsFilesThatTellOfNoClocks: what a version before wrote is of nodes whose clocks
// are not known, and says nothing of others.
func TestImportReadsFilesThatTellOfNoClocks(t *testing.T) {
	before := regexp.MustCompile(`(?m)^  clocks: .*\n`).ReplaceAllString(written, "")
	got, err := Import("before.yaml", []byte(before))
	if err != nil {
		t.Fatal(err)
	}
	known := entry()
	unknown := known.Class
	unknown.Clocks = ""
	if p := got.Prior(known.Lever, unknown); p.Mean.Units != known.Mean.Units {
		t.Errorf("of clocks that are not known: %+v", p)
	}
	if p := got.Prior(known.Lever, known.Class); p.Mean.IsKnown() {
		t.Errorf("it is taken for evidence of nodes with %s: %+v", known.Class.Clocks, p)
	}
}

func TestExportIsTheSameHoweverItCameAbout(t *testing.T) {
	if diff := cmp.Diff(written, string(Export(both()))); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	again := Evidence{}
	for _, e := range both().Entries() {
		again = put(again, entry(), e)
	}
	if diff := cmp.Diff(written, string(Export(again))); diff != "" {
		t.Errorf("put in another order (-want +got):\n%s", diff)
	}
	if got := string(Export(Evidence{})); got != "apiVersion: joulevirt.io/v1alpha1\nkind: Evidence\nentries: []\n" {
		t.Errorf("no evidence is written as %q", got)
	}
}

func TestImportOfWhatWasExported(t *testing.T) {
	for name, want := range map[string]Evidence{"both": both(), "none": {}} {
		got, err := Import("evidence.yaml", Export(want))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want.Entries(), got.Entries(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: (-exported +imported):\n%s", name, diff)
		}
	}
}

func TestImportRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		old, with string
		want      []string
	}{
		"another kind":        {"kind: Evidence", "kind: Proof", []string{`kind "Proof"`, "kind Evidence"}},
		"another version":     {"v1alpha1", "v2", []string{"joulevirt.io/v2"}},
		"an unknown field":    {"kind: Evidence", "kind: Evidence\nspec: {}", []string{`unknown fields "spec"`}},
		"unknown in an entry": {"idle: \"\"", "idle: \"\"\n  Watts: 3", []string{"entries[0]", `"Watts"`}},
		"another case":        {"  units: 4", "  Units: 4", []string{"entries[0]", `"Units"`}},
		"a field twice":       {"  units: 4", "  units: 4\n  units: 5", []string{"units"}},
		"a missing field":     {"  pairs: 40\n", "", []string{"entries[0]", "pairs: is missing"}},
		"a wrong type":        {"units: 4", "units: four", []string{"entries[0]", "units: is a string"}},
		"no number":           {"stdErr: 0.0046", "stdErr: .nan", []string{"evidence.yaml"}},
		"an unknown lever":    {"lever: Affinity", "lever: Magic", []string{"entries[0]", `lever: "Magic"`, "Affinity"}},
		"no CPU":              {`"EPYC"`, `""`, []string{"cpuModel: is empty"}},
		"a long CPU":          {`"EPYC"`, strings.Repeat("E", 200), []string{"cpuModel: has 200 bytes"}},
		"strange characters":  {`"EPYC"`, `"EP\u0007YC"`, []string{"cpuModel", "cannot be printed"}},
		"a whole release":     {`"6.1"`, `"6.1.3-x"`, []string{"kernel", "6.12"}},
		"a kernel's number":   {`"6.1"`, `6.1`, []string{"kernel: is a number"}},
		"no workload":         {`"Throughput"`, `"through put"`, []string{"workload"}},
		"too good":            {"log: 0.00995", "log: -3", []string{"log: -3 is out of bounds"}},
		"an error of nothing": {"stdErr: 0.0046", "stdErr: 0", []string{"stdErr"}},
		"no freedom":          {"freedom: 3", "freedom: 0", []string{"freedom"}},
		"one unit":            {"units: 4", "units: 1", []string{"units: 1"}},
		"less than no spread": {"between: 0\n", "between: -1\n", []string{"between"}},
		"no date":             {`from: "2026-03-01"`, `from: yesterday`, []string{"from", "yesterday"}},
		"backwards":           {`until: "2026-03-01"`, `until: "2026-02-01"`, []string{"until: 2026-02-01 is before"}},
		"edited by hand":      {"savedPercent: -1", "savedPercent: 30", []string{"savedPercent: 30", "remove savedPercent"}},
		"another interval":    {"[-2.49, 0.47]", "[-1.1, -0.9]", []string{"interval95Percent"}},
		"half an interval":    {"[-2.49, 0.47]", "[-2.49]", []string{"interval95Percent"}},
		"an entry twice":      {"- lever: Buffering", strings.SplitAfter(written, "entries:\n")[1] + "- lever: Buffering", []string{"entries[1]", "entries[3]", "twice"}},
		"no object":           {"entries:\n- lever: Affinity", "entries:\n- 5\n- lever: Affinity", []string{"entries[0]: must be an object"}},
		"no list":             {"kind: Evidence\nentries:", "kind: Evidence\nentries: 3\nrest:", []string{"rest"}},
		"no YAML":             {"kind: Evidence", "kind: [", []string{"is not YAML"}},
	} {
		text := strings.Replace(written, test.old, test.with, 1)
		if text == written {
			t.Fatalf("%s: nothing was changed", name)
		}
		got, err := Import("evidence.yaml", []byte(text))
		if err == nil {
			t.Errorf("%s: is accepted", name)
			continue
		}
		if len(got.Entries()) != 0 {
			t.Errorf("%s: is refused, yet has entries", name)
		}
		for _, want := range append(test.want, "evidence.yaml") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error is %q, without %q", name, err, want)
			}
		}
	}
	if _, err := Import("big.yaml", bytes.Repeat([]byte("#"), mostBytes+1)); err == nil || !strings.Contains(err.Error(), "big.yaml") {
		t.Errorf("a file that is too big: %v", err)
	}
}

func TestImportTellsAllErrors(t *testing.T) {
	text := strings.NewReplacer("units: 4", "units: 0", "pairs: 240", "pairs: -1").Replace(written)
	_, err := Import("evidence.yaml", []byte(text))
	if err == nil || !strings.Contains(err.Error(), "entries[0]: units") || !strings.Contains(err.Error(), "entries[1]: pairs") {
		t.Errorf("two errors are told as %v", err)
	}
}

func TestPercentsAreForReaders(t *testing.T) {
	text := strings.ReplaceAll(strings.ReplaceAll(written, "  savedPercent: -1\n", ""), "  interval95Percent: [-2.49, 0.47]\n", "")
	got, err := Import("evidence.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(both().Entries(), got.Entries()); diff != "" {
		t.Errorf("without percents (-want +got):\n%s", diff)
	}
}

func TestPriorStartsAUnitAndIsDroppedWhenContradicted(t *testing.T) {
	e := both()
	prior := e.Prior(model.LeverBuffering, xeon())
	start := prior.Unit(verify.Effect{})
	if math.Abs(start.Log+0.051235) > 1e-9 || start.Own != 0.0123 || start.Common != 0.0041 {
		t.Errorf("a new unit starts from %+v", start)
	}
	newer := xeon()
	newer.Kernel = "6.18"
	if e.Prior(model.LeverBuffering, newer).Mean.IsKnown() || e.Prior(model.LeverSlice, xeon()).Mean.IsKnown() {
		t.Error("evidence of another class or lever is taken")
	}
	same := verify.Effect{Log: -0.04, StdErr: 0.01, Freedom: 30, Units: 1}
	if kept, dropped := e.Check(model.LeverBuffering, xeon(), same); dropped || len(kept.Entries()) != 2 {
		t.Errorf("an effect as foretold drops the entry")
	}
	other := verify.Effect{Log: 0.02, StdErr: 0.005, Freedom: 30, Units: 4}
	kept, dropped := e.Check(model.LeverBuffering, xeon(), other)
	if !dropped || len(kept.Entries()) != 1 || kept.Entries()[0].Lever != model.LeverAffinity {
		t.Errorf("what contradicts the entry leaves %+v", kept.Entries())
	}
	if len(e.Entries()) != 2 {
		t.Error("the evidence that was checked changed itself")
	}
	if _, again := kept.Check(model.LeverBuffering, xeon(), other); again {
		t.Error("an entry that is not there was dropped")
	}
}

func FuzzImport(f *testing.F) {
	f.Add([]byte(written))
	f.Add([]byte("apiVersion: joulevirt.io/v1alpha1\nkind: Evidence\nentries: [null, {}, 5]\n"))
	f.Add([]byte("a: &a [*a, *a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Import("fuzz.yaml", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fuzz.yaml: ") {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		again, err := Import("again.yaml", Export(got))
		if err != nil {
			t.Fatalf("what was imported is not taken again: %v\n%s", err, Export(got))
		}
		if diff := cmp.Diff(got.Entries(), again.Entries()); diff != "" {
			t.Errorf("imported again (-before +after):\n%s", diff)
		}
	})
}
