package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/policies"
)

const root = "../.."

// TestPagesSayWhatPresetsDo compares each page with the table that its policy makes now.
func TestPagesSayWhatPresetsDo(t *testing.T) {
	for _, name := range []string{"observe", "conservative", "balanced", "latency-critical", "flood-hardened", "backup-heavy"} {
		page, err := os.ReadFile(filepath.Join(root, "docs", "presets", name+".md"))
		if err != nil {
			t.Fatal(err)
		}
		want, err := withTable(name, string(page))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(page)); diff != "" {
			t.Errorf("docs/presets/%s.md is not what the policy says (run make chart), -want +got:\n%s", name, diff)
		}
		for _, answer := range []string{"**For whom.**", "**What it does.**", "**What it risks.**", "**What is expected.**", "**How to go back.**"} {
			if !strings.Contains(string(page), answer) {
				t.Errorf("docs/presets/%s.md has no %s", name, answer)
			}
		}
	}
}

// TestEveryPresetIsInTheKustomization: what is embedded is what kubectl apply -k applies.
func TestEveryPresetIsInTheKustomization(t *testing.T) {
	names, err := fs.Glob(policies.Files, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "policies", "*.yaml"))
	if err != nil || len(files) != len(names)+1 {
		t.Errorf("%d presets are embedded of %d files (%v)", len(names), len(files)-1, err)
	}
	kustomization, err := os.ReadFile(filepath.Join(root, "policies", "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(string(kustomization), "- "+name+"\n") {
			t.Errorf("policies/kustomization.yaml lacks %s", name)
		}
	}
}

func TestPagesWithoutPlaceAreRefused(t *testing.T) {
	for _, page := range []string{"", begin, end, end + begin} {
		if _, err := withTable("observe", page); err == nil {
			t.Errorf("page %q: no error", page)
		}
	}
	if _, err := withTable("unknown", begin+end); err == nil {
		t.Error("no error for a page without a preset")
	}
}

// TestActingPresetsSayTheirBounds: what a page tells as a number is the policy's, not a
// default that may change.
func TestActingPresetsSayTheirBounds(t *testing.T) {
	for _, name := range []string{"conservative", "balanced", "latency-critical", "flood-hardened", "backup-heavy"} {
		written, err := withTable(name, begin+end)
		if err != nil {
			t.Fatal(err)
		}
		for _, empty := range []string{"| , with", "with 0 %", "| 0 ", "|  |"} {
			if strings.Contains(strings.TrimPrefix(written, begin+"| | |"), empty) {
				t.Errorf("preset %s leaves something to the defaults that its page tells:\n%s", name, written)
			}
		}
	}
}
