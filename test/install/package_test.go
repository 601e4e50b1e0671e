package install

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

// TestReleasedChart packages a release as its workflow does: chart and manifests name the images by
// digest, and the chart takes no other.
func TestReleasedChart(t *testing.T) {
	h := newHelm(t, "")
	tools, err := source().Ensure(t.Context(), binaries.Kubectl)
	if err != nil {
		t.Fatal(err)
	}
	dir, registry := t.TempDir(), "registry.example/joulevirt"
	digest := func(of string) string { return "sha256:" + strings.Repeat(of, 64) }
	manager, agent, gateway := digest("a"), digest("b"), digest("c")
	release := func(version, manager string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "make", "release-chart", "HELM="+h.Program, "KUBECTL="+tools[binaries.Kubectl], "RELEASE_DIR="+dir,
			"REGISTRY="+registry, "VERSION="+version, "MANAGER_DIGEST="+manager, "AGENT_DIGEST="+agent, "GATEWAY_DIGEST="+gateway)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, bad := range [][2]string{{"latest", manager}, {"v1.2.3", ""}, {"v1.2.3", "sha256:12"}} {
		if out, err := release(bad[0], bad[1]); err == nil {
			t.Errorf("a release %v is packaged: %s", bad, out)
		}
	}
	if out, err := release("v1.2.3", manager); err != nil {
		t.Fatalf("make release-chart: %v: %s", err, out)
	}
	file := filepath.Join(dir, "joulevirt-1.2.3.tgz")
	manifests, err := os.ReadFile(filepath.Join(dir, "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{registry + "/agent@" + agent, registry + "/manager@" + manager}
	for what, text := range map[string]string{"manifests": string(manifests), "chart": h.must(t, "template", "joulevirt", file)} {
		if diff := cmp.Diff(want, images(objects(t, text))); diff != "" {
			t.Errorf("images of the %s, -want +got:\n%s", what, diff)
		}
	}
	offload, err := os.ReadFile(filepath.Join(dir, "offload.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want = append(want[:1], registry+"/gateway@"+gateway, want[1])
	for what, text := range map[string]string{"manifests of lever Offload": string(manifests) + "---\n" + string(offload), "chart with it": h.must(t, "template", "joulevirt", file, "--set", "offload.enabled=true")} {
		if diff := cmp.Diff(want, images(objects(t, text))); diff != "" {
			t.Errorf("images of the %s, -want +got:\n%s", what, diff)
		}
	}
	if meta := h.must(t, "show", "chart", file); !strings.Contains(meta, "appVersion: v1.2.3\n") || !strings.Contains(meta, "\nversion: 1.2.3") {
		t.Errorf("the chart says %s", meta)
	}
	if _, err := h.Run(t.Context(), "template", file, "--set", "agent.image.digest=,agent.image.tag=v1.2.3"); err == nil || !strings.Contains(err.Error(), "/agent/image/digest") {
		t.Errorf("an image without a digest: %v", err)
	}
}

// images of all pods.
func images(all map[string]*unstructured.Unstructured) []string {
	found := map[string]bool{}
	for _, o := range all {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		ofTemplate, _, _ := unstructured.NestedSlice(o.Object, "template", "spec", "containers")
		for _, c := range append(containers, ofTemplate...) {
			of, _ := c.(map[string]any)
			image, _ := of["image"].(string)
			found[image] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// TestPinned: what a release is built from, and with, is named by what it contains.
func TestPinned(t *testing.T) {
	workflows, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yaml"))
	if err != nil || len(workflows) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	for _, check := range []struct {
		files      []string
		uses, want *regexp.Regexp
	}{
		{[]string{filepath.Join(root, "Dockerfile")}, regexp.MustCompile(`(?m)^ARG \w+_IMAGE=.*$`), regexp.MustCompile(`:[\w.-]+@sha256:[0-9a-f]{64}$`)},
		{[]string{filepath.Join(root, "Dockerfile")}, regexp.MustCompile(`(?m)^FROM .*$`), regexp.MustCompile(`^FROM (--platform=\$BUILDPLATFORM )?\$\{(GO|BASE|DEBIAN)_IMAGE\} AS \w+$`)},
		{workflows, regexp.MustCompile(`(?m)\buses: .*$`), regexp.MustCompile(`@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)},
	} {
		for _, file := range check.files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found := check.uses.FindAllString(string(text), -1)
			if len(found) == 0 {
				t.Errorf("%s has no %s", file, check.uses)
			}
			for _, line := range found {
				if !check.want.MatchString(line) {
					t.Errorf("%s: not pinned: %s", file, line)
				}
			}
		}
	}
}
