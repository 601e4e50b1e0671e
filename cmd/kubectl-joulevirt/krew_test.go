package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// krewManifest is the part of a manifest that krew needs to install a plug-in.
type krewManifest struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string `json:"version"`
		ShortDescription string `json:"shortDescription"`
		Caveats          string `json:"caveats"`
		Platforms        []struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			URI    string `json:"uri"`
			SHA256 string `json:"sha256"`
			Bin    string `json:"bin"`
		} `json:"platforms"`
	} `json:"spec"`
}

// TestKrew makes the archive of this machine's platform and the manifest, and checks both.
func TestKrew(t *testing.T) {
	const version = "v1.2.3"
	dir, platform := t.TempDir(), runtime.GOOS+"_"+runtime.GOARCH
	command := exec.CommandContext(t.Context(), "make", "--silent", "krew", "KREW_DIR="+dir, "KREW_PLATFORMS="+platform, "VERSION="+version)
	command.Dir = "../.."
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("make krew: %v\n%s", err, out)
	}
	content, err := os.ReadFile(filepath.Join(dir, "joulevirt.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest krewManifest
	if err := yaml.Unmarshal(content, &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Kind != "Plugin" || manifest.Metadata.Name != "joulevirt" || manifest.Spec.Version != version || manifest.Spec.ShortDescription == "" {
		t.Errorf("manifest %+v, want plug-in joulevirt of %s", manifest, version)
	}
	if !strings.Contains(manifest.Spec.Caveats, completer) {
		t.Errorf("caveats do not say how to have completions: %s", manifest.Spec.Caveats)
	}
	archive := filepath.Join(dir, "kubectl-joulevirt_"+platform+".tar.gz")
	var platforms []string
	for _, p := range manifest.Spec.Platforms {
		name := p.Selector.MatchLabels["os"] + "_" + p.Selector.MatchLabels["arch"]
		platforms = append(platforms, name)
		if want := "/releases/download/" + version + "/kubectl-joulevirt_" + name + ".tar.gz"; !strings.HasSuffix(p.URI, want) || p.Bin != "kubectl-joulevirt" {
			t.Errorf("platform %s: %s of %s, want kubectl-joulevirt of %s", name, p.Bin, p.URI, want)
		}
		if name == platform && p.SHA256 != sumOf(t, archive) {
			t.Errorf("platform %s: checksum %s, want %s", name, p.SHA256, sumOf(t, archive))
		}
	}
	if diff := cmp.Diff(madePlatforms(t), platforms); diff != "" {
		t.Errorf("platforms (-made by the Makefile +in the manifest):\n%s", diff)
	}
	listed, err := exec.CommandContext(t.Context(), "tar", "--list", "--verbose", "--gzip", "--file", archive).Output()
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]string{}
	for line := range strings.Lines(string(listed)) {
		fields := strings.Fields(line)
		modes[fields[len(fields)-1]] = fields[0]
	}
	if diff := cmp.Diff(map[string]string{"LICENSE": "-rw-r--r--", completer: "-rwxr-xr-x", "kubectl-joulevirt": "-rwxr-xr-x"}, modes); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
}

// madePlatforms are those that the Makefile makes archives for.
func madePlatforms(t *testing.T) []string {
	t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^KREW_PLATFORMS = (.*)$`).FindSubmatch(makefile)
	if found == nil {
		t.Fatal("the Makefile has no KREW_PLATFORMS")
	}
	return strings.Fields(string(found[1]))
}

func sumOf(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
