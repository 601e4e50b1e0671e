// Package showtest compares output of commands with files.
package showtest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/cli/show"
)

var update = flag.Bool("update", false, "write the golden files") //nolint:gochecknoglobals // a flag of tests

// Golden compares all tables of a view, wide ones too, with testdata/NAME.txt.
func Golden(t *testing.T, name string, view show.View) {
	t.Helper()
	var out bytes.Buffer
	if _, err := show.Tables(&out, view, true); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
