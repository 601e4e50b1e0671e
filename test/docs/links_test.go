package docs

import (
	"encoding/xml"
	"errors"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// pages of the repository, at least as many as there are now.
func pages(t *testing.T) []*page {
	t.Helper()
	all, err := readPages(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 60 {
		t.Fatalf("only %d pages were found", len(all))
	}
	return all
}

// TestLinks follows each link within the repository. Others are only looked at.
func TestLinks(t *testing.T) {
	all, anchors, links := pages(t), map[string]map[string]bool{}, 0
	for _, p := range all {
		anchors[p.path] = p.anchors
	}
	for _, p := range all {
		for _, link := range p.links {
			links++
			if problem := follow(p.path, link, anchors); problem != "" {
				t.Errorf("%s: link %s: %s", p.path, link, problem)
			}
		}
	}
	if links < 300 {
		t.Errorf("only %d links were found", links)
	}
}

// follow says what is wrong with a link of a page; anchors has those of each page.
func follow(from, link string, anchors map[string]map[string]bool) string {
	target, err := url.Parse(link)
	switch {
	case err != nil:
		return err.Error()
	case target.Scheme == "mailto":
		return ""
	case target.Scheme != "":
		if target.Scheme != "https" || target.Host == "" {
			return "it is no https link"
		}
		return ""
	}
	name := from
	if target.Path != "" {
		name = path.Join(path.Dir(from), target.Path)
	}
	if strings.HasPrefix(name, "..") || strings.HasPrefix(target.Path, "/") {
		return "it leads out of the repository"
	}
	if _, err := os.Stat(filepath.Join(root, name)); err != nil {
		return "there is no such file"
	}
	if known, ok := anchors[name]; target.Fragment != "" && (!ok || !known[target.Fragment]) {
		return "there is no such heading"
	}
	return ""
}

func TestFollow(t *testing.T) {
	anchors := map[string]map[string]bool{"README.md": {"two-commands": true}, "docs/metrics.md": {}}
	for name, tc := range map[string]struct {
		from, link string
		right      bool
	}{
		"another page":         {"README.md", "docs/metrics.md", true},
		"up":                   {"docs/metrics.md", "../README.md#two-commands", true},
		"a folder":             {"README.md", "docs/design", true},
		"the web":              {"README.md", "https://kubevirt.io", true},
		"own heading":          {"README.md", "#two-commands", true},
		"no page":              {"README.md", "docs/gone.md", false},
		"no heading":           {"README.md", "#gone", false},
		"heading of another":   {"docs/metrics.md", "../README.md#gone", false},
		"heading of a program": {"README.md", "go.mod#module", false},
		"out":                  {"README.md", "../gone.md", false},
		"plain http":           {"README.md", "http://kubevirt.io", false},
	} {
		if problem := follow(tc.from, tc.link, anchors); (problem == "") != tc.right {
			t.Errorf("%s: %q", name, problem)
		}
	}
}

// TestPagesAreReached finds pages of docs to which no link of another page leads.
func TestPagesAreReached(t *testing.T) {
	reached := map[string]bool{}
	all := pages(t)
	for _, p := range all {
		for _, link := range p.links {
			file, _, _ := strings.Cut(link, "#")
			reached[path.Join(path.Dir(p.path), file)] = true
		}
	}
	for _, p := range all {
		if strings.HasPrefix(p.path, "docs/") && !reached[p.path] && p.path != "docs/README.md" {
			t.Errorf("no page leads to %s", p.path)
		}
	}
}

// TestPictures: each says in words what it shows, for those who do not see it.
func TestPictures(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "docs/concepts/*.svg"))
	if err != nil || len(names) < 6 {
		t.Fatalf("%d pictures of concepts, %v", len(names), err)
	}
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		elements := map[string]int{}
		for decoder := xml.NewDecoder(file); ; {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if start, ok := token.(xml.StartElement); ok {
				elements[start.Name.Local]++
			}
		}
		file.Close()
		if elements["title"] != 1 || elements["desc"] != 1 || elements["script"]+elements["image"] != 0 {
			t.Errorf("%s: elements %v, want one title, one desc, and nothing that is loaded", name, elements)
		}
	}
}
