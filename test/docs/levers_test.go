package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// TestPlacesOfLevers finds the files that handle all levers of nodes, each by its name, and wants
// those that CONTRIBUTING.md lists. One that misses a new lever would leave it out without an error.
func TestPlacesOfLevers(t *testing.T) {
	var handling []string
	tree := os.DirFS(root)
	for _, folder := range []string{"api", "cmd", "controllers", "internal"} {
		err := fs.WalkDir(tree, folder, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := fs.ReadFile(tree, name)
			isMissing := func(lever v1alpha1.Lever) bool {
				return !regexp.MustCompile(`\bLever` + string(lever) + `\b`).Match(text)
			}
			if err == nil && !slices.ContainsFunc(v1alpha1.NodeLevers(), isMissing) {
				handling = append(handling, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	page, err := fs.ReadFile(tree, "CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "**A lever.**")
	section, _, _ = strings.Cut(section, "\n\n")
	listed := regexp.MustCompile(`[a-z0-9/_]+/[a-z_0-9]+\.go`).FindAllString(section, -1)
	for _, name := range listed {
		if !slices.Contains(handling, name) {
			t.Errorf("%s misses a lever of nodes (%v), or CONTRIBUTING.md should not list it", name, v1alpha1.NodeLevers())
		}
	}
	for _, name := range handling {
		if !slices.Contains(listed, name) {
			t.Errorf("%s handles all levers of nodes: list it in CONTRIBUTING.md, how to add a lever", name)
		}
	}
}
