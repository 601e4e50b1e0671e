package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const assets = "../../internal/page/assets/vendor"

// TestEveryAssetHasItsPackage finds files of others that no bill would tell of, and a list
// that tells of another version than is there.
func TestEveryAssetHasItsPackage(t *testing.T) {
	all, err := vendoredPackages()
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]vendored{}
	for _, p := range all {
		for _, name := range p.Files {
			of[name] = p
		}
	}
	entries, err := os.ReadDir(assets)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".LICENSE.txt") {
			continue
		}
		p, listed := of[entry.Name()]
		if !listed {
			t.Errorf("%s is of no package in vendored.json: name it there", entry.Name())
			continue
		}
		delete(of, entry.Name())
		if filepath.Ext(entry.Name()) != ".js" {
			continue // styles do not tell their version
		}
		text, err := os.ReadFile(filepath.Join(assets, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if head := text[:min(len(text), 300)]; !bytes.Contains(head, []byte("v"+p.Version+")")) {
			t.Errorf("%s does not begin with version %s: %s", entry.Name(), p.Version, head)
		}
	}
	for name := range of {
		t.Errorf("vendored.json names %s, which is not there", name)
	}
}

// TestEmbeddedFilesAreFound looks into a program with one of the files, and one without.
func TestEmbeddedFilesAreFound(t *testing.T) {
	file, err := os.ReadFile(filepath.Join(assets, "uPlot.min.css"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := vendoredPackages()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		content []byte
		want    []component
	}{
		"with":    {append([]byte("before"), file...), []component{all[0].component()}},
		"a part":  {file[:len(file)-1], nil},
		"without": {[]byte("before"), nil},
	} {
		program := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(program, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := embeddedIn(program, assets)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s, -want +got:\n%s", name, diff)
		}
	}
	if got := all[0].component().PURL; got != "pkg:npm/uplot@"+all[0].Version {
		t.Errorf("its package URL is %s", got)
	}
	if _, err := embeddedIn(filepath.Join(assets, "uPlot.min.css"), t.TempDir()); err == nil {
		t.Error("no error without the assets")
	}
}
