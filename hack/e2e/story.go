package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// story is a top-level test with the tag e2e.
type story struct {
	// Folder of its package, from the module's root.
	Folder, Test string
	// Alone is set when it starts VMs or emulated machines, or pins threads: others would disturb it.
	Alone bool
}

func (s story) String() string { return s.Folder + "." + s.Test }

var (
	withTag  = regexp.MustCompile(`^//go:build e2e\b`)
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
)

// testsWithTag returns the top-level tests of a file when it begins with the build tag e2e.
func testsWithTag(text []byte) []string {
	if !withTag.Match(text) {
		return nil
	}
	var tests []string
	for _, match := range testFunc.FindAllSubmatch(text, -1) {
		tests = append(tests, string(match[1]))
	}
	return tests
}

// readStories finds all stories below root, sorted.
func readStories(ctx context.Context, root string) ([]story, error) {
	var stories []story
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, test := range testsWithTag(text) {
			stories = append(stories, story{Folder: filepath.Dir(path), Test: test})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find stories: %w", err)
	}
	alone, err := packagesAlone(ctx)
	for i := range stories {
		stories[i].Alone = alone[stories[i].Folder]
	}
	slices.SortFunc(stories, func(a, b story) int { return strings.Compare(a.String(), b.String()) })
	return stories, err
}

var makers = regexp.MustCompile(`/test/(env/node|guest|hosttest)[ \]]`)

// packagesAlone are the folders whose tests depend on packages that make nodes, guests, or threads to pin.
func packagesAlone(ctx context.Context) (map[string]bool, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	list := exec.CommandContext(ctx, "go", "list", "-tags=e2e", "-test", "-f", "{{if not .ForTest}}{{.Dir}} {{.ImportPath}} {{.Deps}}{{end}}", "./...")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	alone := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		folder, rest, _ := strings.Cut(line, " ")
		name, deps, _ := strings.Cut(rest, " ")
		if strings.HasSuffix(name, ".test") && makers.MatchString(deps) {
			alone[strings.TrimPrefix(folder, root+"/")] = true
		}
	}
	return alone, nil
}

// choose returns the stories below a folder, or of a name.
func choose(stories []story, only, name string) []story {
	only = filepath.Clean(only)
	return slices.DeleteFunc(slices.Clone(stories), func(s story) bool {
		below := only == "." || s.Folder == only || strings.HasPrefix(s.Folder, only+"/")
		return !below || name != "" && name != s.Test && name != s.String()
	})
}
