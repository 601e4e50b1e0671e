package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"gonum.org/v1/gonum/mat"

	"github.com/joulevirt/joulevirt/internal/power/curve"
)

const root = "../.."

func data(t *testing.T) fs.FS {
	t.Helper()
	folder, err := fs.Sub(embedded, "data")
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

func encoded(t *testing.T) []byte {
	t.Helper()
	priors, err := fit(data(t))
	if err != nil {
		t.Fatal(err)
	}
	text, err := encode(priors)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestFilesAreWhatTheTablesLeadTo keeps priors and note from being edited.
func TestFilesAreWhatTheTablesLeadTo(t *testing.T) {
	if err := run(root, true); err != nil {
		t.Error(err)
	}
	if first, second := encoded(t), encoded(t); !bytes.Equal(first, second) {
		t.Error("two fits of equal tables differ")
	}
}

// TestRunWritesBothFiles writes into a copy of what is written, and finds edits.
func TestRunWritesBothFiles(t *testing.T) {
	copied := t.TempDir()
	note := filepath.Join(copied, noteFile)
	for _, file := range []string{priorsFile, noteFile} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(copied, file)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(note, []byte("# Note\n"+reportStart+"old\n"+reportEnd), 0o644); err != nil {
		t.Fatal(err)
	}
	if run(copied, true) == nil {
		t.Error("a file that is not there passes")
	}
	if err := run(copied, false); err != nil {
		t.Fatal(err)
	}
	if err := run(copied, true); err != nil {
		t.Errorf("what was just written: %v", err)
	}
	text, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(note, bytes.Replace(text, []byte("-4.0 %"), []byte("-0.4 %"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(copied, true); err == nil || !strings.Contains(err.Error(), "the design note has other figures") {
		t.Errorf("an edited note: %v", err)
	}
	if err := os.Remove(note); err != nil {
		t.Fatal(err)
	}
	if run(copied, false) == nil {
		t.Error("a note that is gone passes")
	}
}

func TestCompareFindsEdits(t *testing.T) {
	text := encoded(t)
	for name, tc := range map[string]struct {
		edit func(map[string]any)
		says string
	}{
		"none": {func(map[string]any) {}, ""},
		"a value": {func(m map[string]any) {
			figure := m["node"].(map[string]any)["idle"].(map[string]any)
			figure["value"] = figure["value"].(float64) * (1 + 1e-5)
		}, ".node.idle.value"},
		"rounding": {func(m map[string]any) {
			figure := m["node"].(map[string]any)["idle"].(map[string]any)
			figure["value"] = figure["value"].(float64) * (1 + 1e-9)
		}, ""},
		"an error of a fit": {func(m map[string]any) {
			m["fits"].([]any)[0].(map[string]any)["maxRelativeError"] = 0.01
		}, ".fits[0].maxRelativeError"},
		"a fit that is left out": {func(m map[string]any) { m["fits"] = m["fits"].([]any)[1:] }, ".fits: of another length"},
		"another field":          {func(m map[string]any) { m["more"] = 1 }, "other fields"},
		"another digest":         {func(m map[string]any) { m["tables"] = "sha256:0" }, ".tables"},
		"no number":              {func(m map[string]any) { m["schema"] = "1" }, ".schema"},
	} {
		var edited map[string]any
		if err := json.Unmarshal(text, &edited); err != nil {
			t.Fatal(err)
		}
		tc.edit(edited)
		have, err := json.Marshal(edited)
		if err != nil {
			t.Fatal(err)
		}
		err = compare(have, text)
		if (err == nil) != (tc.says == "") || (err != nil && !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %v, want an error with %q", name, err, tc.says)
		}
	}
	if compare([]byte("{"), text) == nil {
		t.Error("a file that is no JSON passes")
	}
}

// edited returns the tables with one replacement, or without a table.
func edited(t *testing.T, table, old, replacement string) fstest.MapFS {
	t.Helper()
	folder := fstest.MapFS{}
	files, err := fs.Glob(data(t), "*.csv")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := fs.ReadFile(data(t), file)
		if err != nil {
			t.Fatal(err)
		}
		if file == table+".csv" {
			if !bytes.Contains(text, []byte(old)) {
				t.Fatalf("table %s has no %q", table, old)
			}
			text = bytes.Replace(text, []byte(old), []byte(replacement), 1)
		}
		folder[file] = &fstest.MapFile{Data: text}
	}
	return folder
}

func TestMalformedTablesAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		table, old, replacement string
		says                    []string
	}{
		"a word":            {tableSkew, "\n150,150,200,200,200,27.39,80", "\n150,150,200,200,200,27.39,eighty", []string{tableSkew, "line 5", "dom0_cpu_pct", `"eighty"`}},
		"NaN":               {tableSkew, "\n180,", "\nNaN,", []string{tableSkew, "line 4", "vm1"}},
		"infinite":          {tableXen, "55.2", "Inf", []string{tableXen, "dom0_cpu_pct"}},
		"negative":          {tableKVM, "57800", "-57800", []string{tableKVM, "line 5", "ctxt_per_s"}},
		"empty":             {tableKVM, "1.46e9", "", []string{tableKVM, "line 5", "cycles_per_s is empty"}},
		"a short row":       {tableXen, "0,200,700,81.1", "200,700,81.1", []string{tableXen, "line 7", "wrong number of fields"}},
		"a quote":           {tableXen, "0,200,700", "0,\"200,700", []string{tableXen, "line"}},
		"a column twice":    {tableXen, "vm2_mbps", "vm1_mbps", []string{tableXen, "line 4", "vm1_mbps"}},
		"no such column":    {tableXen, "rapl_w,wall_w", "rapl,wall_w", []string{tableXen, "no column rapl_w"}},
		"other rates":       {tableKVM, "300,300,300", "300,300,301", []string{tableXen, tableKVM}},
		"no idle host":      {tableKVMPower, "0,5.14,30.24\n", "", nil},
		"a set-up missing":  {tableAffinity, "pinned,", "pined,", []string{tableAffinity, "0 rows with setup=pinned"}},
		"a set-up twice":    {tableAffinity, "random,21.87", "random,21.87\nrandom,22", []string{tableAffinity, "2 rows"}},
		"below idle":        {tableAffinity, "18.04", "4", []string{tableAffinity, "line 6", "not above an idle host"}},
		"no base":           {tableBuffering, "apache_100_clients,rapl,w,0,24.2,0\n", "", []string{tableBuffering, "line", "no value without buffering"}},
		"all saved":         {tableBuffering, "pct,1000,32.3", "pct,1000,132.3", []string{tableBuffering, "line 10"}},
		"nothing saved":     {tableFlood, "708335,422471", "422471,708335", []string{tableFlood, "line", "saves nothing"}},
		"a card is missing": {tableOverhead, "rx,sriov", "rx,e1000", []string{tableOverhead, "0 rows with direction=rx, nic=sriov"}},
	} {
		_, err := fit(edited(t, tc.table, tc.old, tc.replacement))
		if tc.says == nil {
			// One of two idle hosts is enough.
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: taken", name)
			continue
		}
		for _, want := range tc.says {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
	}
}

func TestMissingAndUnknownTablesAreRefused(t *testing.T) {
	all := edited(t, tableSkew, "180", "180")
	less, more := maps.Clone(all), maps.Clone(all)
	delete(less, tableSkew+".csv")
	more["other.csv"] = &fstest.MapFile{Data: []byte("a\n1\n")}
	empty := edited(t, tableSkew, "180", "180")
	empty[tableSkew+".csv"] = &fstest.MapFile{Data: []byte("# nothing\n")}
	headed := edited(t, tableSkew, "180", "180")
	headed[tableSkew+".csv"] = &fstest.MapFile{Data: []byte("vm1,vm2\n")}
	for says, folder := range map[string]fstest.MapFS{
		"no such file": less, "nothing uses it": more, "no line of column names": empty, "no rows": headed,
	} {
		if _, err := fit(folder); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error with %q", err, says)
		}
	}
}

// TestDigestIsOfAllTables: any change of a table shows in the file.
func TestDigestIsOfAllTables(t *testing.T) {
	one, err := readTables(data(t))
	if err != nil {
		t.Fatal(err)
	}
	other, err := readTables(edited(t, tableFloodCPU, "# CPU", "# cpu"))
	if err != nil {
		t.Fatal(err)
	}
	if one.digest == other.digest {
		t.Error("a comment is changed, the digest is not")
	}
}

// TestNonNegativeIsOptimal checks the conditions of Karush, Kuhn and Tucker: no
// coefficient can be changed for the better.
func TestNonNegativeIsOptimal(t *testing.T) {
	for seed := range 200 {
		value := func(i, j int) float64 { return math.Sin(float64(1+seed*31+i*7) * float64(j+2)) }
		const rows, cols = 9, 5
		a := mat.NewDense(rows, cols, nil)
		y := make([]float64, rows)
		for i := range rows {
			y[i] = value(i, cols)
			for j := range cols {
				a.Set(i, j, value(i, j))
			}
		}
		x, err := nonNegative(a, y)
		if err != nil {
			t.Fatal(err)
		}
		left := mat.NewVecDense(rows, residual(a, x, y))
		for j := range cols {
			gain := mat.Dot(a.ColView(j), left)
			if x[j] < 0 || gain > 1e-9 || (x[j] > 0 && math.Abs(gain) > 1e-9) {
				t.Fatalf("case %d: coefficient %d is %v, a larger one gains %v", seed, j, x[j], gain)
			}
		}
	}
	if _, err := nonNegative(mat.NewDense(1, 1, []float64{1}), []float64{math.NaN()}); err == nil {
		t.Error("a value that is no number is fitted")
	}
	if _, err := nonNegative(mat.NewDense(1, 1, []float64{1}), []float64{1, 2}); err == nil {
		t.Error("two values for one equation")
	}
}

// TestWakeUpsAndAwakeCoresCannotBeFitted holds the design note to what it says:
// with the tables alone, all dynamic power is that of busy cores.
func TestWakeUpsAndAwakeCoresCannotBeFitted(t *testing.T) {
	xen, kvm := powerSamples(t)
	var cores, y []float64
	for _, s := range append(xen, kvm...) {
		if s.cores > 0 {
			cores = append(cores, s.cores, s.wakeUps/1e5, studyCores)
			y = append(y, s.rapl-5.32)
		}
	}
	x, err := nonNegative(mat.NewDense(len(y), 3, cores), y)
	if err != nil {
		t.Fatal(err)
	}
	if x[0] < 15 || x[1] != 0 || x[2] != 0 {
		t.Errorf("%v W per busy core, %v per 100,000 wake-ups/s, %v per awake core; want all in the first", x[0], x[1], x[2])
	}
}

func powerSamples(t *testing.T) (xen, kvm []powerSample) {
	t.Helper()
	tables, err := readTables(data(t))
	if err != nil {
		t.Fatal(err)
	}
	samples, err := readCurves(tables)
	if err != nil {
		t.Fatal(err)
	}
	if xen, err = readXenPower(tables.byName[tableXen], samples.kvmWakeUps); err != nil {
		t.Fatal(err)
	}
	if kvm, err = readKVMPower(tables.byName[tableKVMPower], samples); err != nil {
		t.Fatal(err)
	}
	return xen, kvm
}

// TestKnownCurveIsFound fits what a known curve gives.
func TestKnownCurveIsFound(t *testing.T) {
	want := curve.Terms{0, 0.1, 0.05, 0, 0.4, 0.06}
	var samples []sample
	for _, megabits := range [][]float64{{1}, {5, 5}, {20, 1}, {80, 80, 80}, {300, 10}, {900}, {500, 400, 0}} {
		s := sample{megabits: megabits}
		s.value = s.predict(want)
		samples = append(samples, s)
	}
	got, err := fitTerms(samples, want[curve.TermBits])
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-9 {
			t.Errorf("terms %v, want %v", got, want)
		}
	}
}

func TestSplice(t *testing.T) {
	got, err := splice([]byte("a\n"+reportStart+"old\n"+reportEnd+"b\n"), []byte("new\n"))
	if want := "a\n" + reportStart + "new\n" + reportEnd + "b\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for _, note := range []string{"", reportStart, reportEnd + reportStart} {
		if _, err := splice([]byte(note), nil); err == nil {
			t.Errorf("%q has a place for a report", note)
		}
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add("a,b\n1,2\n")
	f.Add("# comment\na\n\"1\"\n")
	f.Add("a,a\n1,1\n")
	f.Add("a,b\n1\n")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := parseTable("fuzzed", strings.NewReader(text))
		if err != nil {
			if !strings.Contains(err.Error(), "fuzzed") {
				t.Fatalf("%q: %v does not name the table", text, err)
			}
			return
		}
		for _, r := range parsed.rows {
			for _, column := range parsed.columns {
				if v, err := r.number(column); err == nil && !(v >= 0 && v <= math.MaxFloat64) {
					t.Fatalf("%q: %v in column %s", text, v, column)
				}
			}
		}
	})
}
