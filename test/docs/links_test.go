// Package docs checks the links and words of pages, and runs the commands of the first ones.
package docs

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

const root = "../.."

// TestLinks follows each link within the repository, also to headings.
func TestLinks(t *testing.T) {
	pages := readPages(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	found := 0
	for name, text := range pages {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			found++
			if problem := follow(pages, name, match[1]); problem != "" {
				t.Errorf("%s: link %s: %s", name, match[1], problem)
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d links were found", found)
	}
}

// TestFolders: folders of code that a page names exist, `internal/a/{b,c}` both.
func TestFolders(t *testing.T) {
	folder := regexp.MustCompile("`((?:api|cmd|controllers|internal|test|hack)/[a-z0-9-/]*)({[a-z0-9,-]+})?`")
	found := 0
	for name, text := range readPages(t) {
		for _, match := range folder.FindAllStringSubmatch(text, -1) {
			for last := range strings.SplitSeq(strings.Trim(match[2], "{}"), ",") {
				found++
				if _, err := os.Stat(filepath.Join(root, match[1]+last)); err != nil {
					t.Errorf("%s: no folder %s", name, match[1]+last)
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d folders were found", found)
	}
}

// follow says what is wrong with a link of a page.
func follow(pages map[string]string, from, link string) string {
	target, err := url.Parse(link)
	switch {
	case err != nil:
		return err.Error()
	case target.Scheme == "https" || target.Scheme == "mailto":
		return ""
	case target.Scheme != "":
		return "not an https link"
	}
	name := from
	if target.Path != "" {
		name = path.Join(path.Dir(from), target.Path)
	}
	if _, err := os.Stat(filepath.Join(root, name)); err != nil || strings.HasPrefix(name, "..") {
		return "no such file in the repository"
	}
	if target.Fragment != "" && !anchors(pages[name])[target.Fragment] {
		return "no such heading"
	}
	return ""
}

// anchors are the headings of a page as GitHub names them.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(page) {
		heading, is := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !is || line[0] != '#' {
			continue
		}
		heading = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(strings.TrimSpace(heading), "$1")
		all[strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r), unicode.IsNumber(r), r == '-', r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, heading)] = true
	}
	return all
}

// readPages reads all Markdown files of the repository, without fenced code.
func readPages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	fenced := regexp.MustCompile("(?ms)^```.*?^```")
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "dist"):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		pages[name] = fenced.ReplaceAllString(string(text), "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}
