package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBillOfThisProgram reads what is linked into the running test.
func TestBillOfThisProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "new", "test.cdx.json")
	if err := run([]string{"--assets=" + assets, self, file}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got document
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("the test tells nothing of itself")
	}
	if len(got.Components) != len(info.Deps)+1 {
		t.Errorf("%d components, want %d modules and the standard library", len(got.Components), len(info.Deps))
	}
}

func TestBill(t *testing.T) {
	got := bill(&debug.BuildInfo{
		GoVersion: "go1.26.0", Path: "example.test/m/cmd/program", Main: debug.Module{Path: "example.test/m", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "example.test/b", Version: "v1.2.3+incompatible"},
			{Path: "example.test/a", Version: "v0.1.0", Replace: &debug.Module{Path: "example.test/fork", Version: "v0.2.0"}},
		},
	}, nil)
	std := "pkg:golang/std@1.26.0"
	a, b := "pkg:golang/example.test/fork@v0.2.0", "pkg:golang/example.test/b@v1.2.3%2Bincompatible"
	want := document{
		BOMFormat: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata: metadata{Component: component{Ref: "pkg:golang/example.test/m", Type: "application", Name: "program", PURL: "pkg:golang/example.test/m"}},
		Components: []component{
			{Ref: b, Type: "library", Name: "example.test/b", Version: "v1.2.3+incompatible", PURL: b},
			{Ref: a, Type: "library", Name: "example.test/fork", Version: "v0.2.0", PURL: a},
			{Ref: std, Type: "library", Name: "std", Version: "1.26.0", PURL: std},
		},
		Dependencies: []dependency{{Ref: "pkg:golang/example.test/m", DependsOn: []string{b, a, std}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestNoProgramIsRefused(t *testing.T) {
	for _, args := range [][]string{nil, {"main.go"}, {"main.go", "out"}, {"missing", "out"}} {
		if err := run(args); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
