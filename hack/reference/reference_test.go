package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/cli/reasons"
)

const root = "../.."

// TestPagesAreCurrent fails when the code says something else than the pages do.
func TestPagesAreCurrent(t *testing.T) {
	pages, err := Pages(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range pages {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Errorf("%v: run make reference", err)
			continue
		}
		if diff := cmp.Diff(string(got), want); diff != "" {
			t.Errorf("%s is not up to date: run make reference\n%s", name, diff)
		}
	}
}

// TestNothingIsUnexplained finds fields without a comment, and reasons that no page has.
func TestNothingIsUnexplained(t *testing.T) {
	kinds, err := readKinds(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	fields := 0
	for i := range kinds {
		for _, f := range kinds[i].fields {
			if fields++; f.about == "" {
				t.Errorf("%s: %s has no comment", kinds[i].name, f.path)
			}
		}
	}
	if fields < 200 {
		t.Errorf("only %d fields were found", fields)
	}
	page, err := reasonsPage(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for word := range reasons.All() {
		if strings.Count(page, "| `"+word+"` |") != 1 {
			t.Errorf("the page of reasons does not have %s once", word)
		}
	}
}

// TestEveryEventIsTold holds the table of Events to the calls that send them.
func TestEveryEventIsTold(t *testing.T) {
	sent := eventsSent(t)
	told := map[string]int{}
	all := reasons.All()
	for _, e := range events() {
		told[e.action]++
		for i, word := range strings.Split(e.reasons, "`") {
			if _, ok := all[word]; !ok && i%2 == 1 && !strings.Contains(word, ".") && word != "CoRunner" && word != "Self" {
				t.Errorf("Event of action %s: %s is no reason", e.action, word)
			}
		}
	}
	if diff := cmp.Diff(sent, told); diff != "" {
		t.Errorf("Events by their action, in controllers and in the table (-sent +told):\n%s", diff)
	}
}

// eventsSent counts the calls in controllers that send Events, by their action.
func eventsSent(t *testing.T) map[string]int {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, "controllers/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	sent := map[string]int{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			const action = 4 // of the arguments
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Eventf" && len(call.Args) > action {
				literal, ok := call.Args[action].(*ast.BasicLit)
				if !ok {
					t.Errorf("%s: an Event's action is no literal", name)
					return true
				}
				word, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				sent[word]++
			}
			return true
		})
	}
	return sent
}

// TestTablesInGuides is of pages with tables of reasons.
func TestTablesInGuides(t *testing.T) {
	const before = "a\n<!-- reasons: NoTap -->\nold\n<!-- end of reasons -->\nb\n"
	for name, tc := range map[string]struct{ text, want, err string }{
		"filled in":      {text: before, want: "| `NoTap` | The VM has no tap"},
		"unknown reason": {text: strings.Replace(before, "NoTap", "Gone", 1), err: "there is no reason Gone"},
		"without an end": {text: "<!-- reasons: NoTap -->\n", err: "without its end"},
		"none":           {text: "a\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "docs"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "docs/a.md"), []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			pages, err := guides(os.DirFS(dir))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				return
			}
			got := pages["docs/a.md"]
			if err != nil || !strings.Contains(got, tc.want) || strings.Contains(got, "old") || tc.want == "" && got != "" {
				t.Errorf("page %q, %v", got, err)
			}
		})
	}
}
