package lint

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestNodesAreOfE2E: tests that start nodes, guests, or a fleet whose clock runs ahead belong to
// make e2e, so their files have its tag.
func TestNodesAreOfE2E(t *testing.T) {
	found := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		tagged := len(file.Comments) > 0 && strings.HasPrefix(file.Comments[0].List[0].Text, "//go:build e2e")
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			switch strings.TrimPrefix(name, module+"/test/") {
			case "env/node", "guest", "accelerated":
				found++
				if !tagged {
					t.Errorf("%s imports %s: begin it with //go:build e2e", path, name)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Error("no test imports these packages: they have other names now")
	}
}
