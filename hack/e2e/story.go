package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// story is a top-level test with the tag e2e.
type story struct {
	// Folder of its package, from the module's root.
	Folder, Test string
	// Alone is set when others would disturb it: a line "//e2e:alone REASON" before it says so.
	Alone bool
}

func (s story) String() string { return s.Folder + "." + s.Test }

var (
	withTag  = regexp.MustCompile(`^//go:build e2e\b`)
	testFunc = regexp.MustCompile(`(?m)^(//e2e:alone .+\n)?func (Test\w+)\(t \*testing\.T\)`)
)

// storiesIn returns the top-level tests of a file when it begins with the build tag e2e.
func storiesIn(folder string, text []byte) []story {
	if !withTag.Match(text) {
		return nil
	}
	var stories []story
	for _, match := range testFunc.FindAllSubmatch(text, -1) {
		stories = append(stories, story{Folder: folder, Test: string(match[2]), Alone: len(match[1]) > 0})
	}
	return stories
}

// readStories finds all stories below root, sorted.
func readStories(root string) ([]story, error) {
	var stories []story
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		stories = append(stories, storiesIn(filepath.Dir(path), text)...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find stories: %w", err)
	}
	slices.SortFunc(stories, func(a, b story) int { return strings.Compare(a.String(), b.String()) })
	return stories, nil
}

// choose returns the stories below a folder, or of a name.
func choose(stories []story, only, name string) []story {
	only = filepath.Clean(only)
	return slices.DeleteFunc(slices.Clone(stories), func(s story) bool {
		below := only == "." || s.Folder == only || strings.HasPrefix(s.Folder, only+"/")
		return !below || name != "" && name != s.Test && name != s.String()
	})
}
