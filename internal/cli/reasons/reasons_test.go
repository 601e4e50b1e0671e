package reasons

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestTableIsWhole compares the table with the constants of reasons and capabilities: each has
// a sentence and a next step, and no row is of a reason that is gone.
func TestTableIsWhole(t *testing.T) {
	words := map[string]bool{}
	for _, folder := range []string{"api/v1alpha1", "internal/model", "internal/energy", "internal/agent", "controllers/profile", "internal/planner/placement", "internal/planner/placement/fit", "internal/planner/power"} {
		addWords(t, filepath.Join("../../..", folder), "reason", words)
	}
	capabilities := map[string]bool{}
	addWords(t, "../../host/linux", "capability", capabilities)
	if len(capabilities) < 7 {
		t.Fatalf("only %d capabilities were found: are they declared in another way now?", len(capabilities))
	}
	maps.Copy(words, capabilities)
	if len(words) < 100 {
		t.Fatalf("only %d words were found: are reasons declared in another way now?", len(words))
	}
	all := All()
	for word := range words {
		if _, ok := all[word]; !ok {
			t.Errorf("reason %s has no row in reasons.md", word)
		}
	}
	for word, reason := range all {
		if !words[word] {
			t.Errorf("reasons.md explains %s, which is no reason", word)
		}
		for what, sentence := range map[string]string{"means": reason.Means, "next": reason.Next} {
			if len(sentence) < 10 || !strings.HasSuffix(sentence, ".") {
				t.Errorf("%s: %s is %q, want a sentence", word, what, sentence)
			}
		}
	}
}

// TestRowsAreRead finds rows that are not parsed.
func TestRowsAreRead(t *testing.T) {
	rows := 0
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "|---") && !strings.HasPrefix(line, "| reason ") {
			rows++
		}
	}
	if got := len(All()); got != rows {
		t.Errorf("%d reasons are read of %d rows: a row is double or malformed", got, rows)
	}
}

func TestUnknownWord(t *testing.T) {
	got := All().Of("FromTheFuture")
	if !strings.Contains(got.Means, "FromTheFuture") || !strings.Contains(got.Next, "Upgrade") {
		t.Errorf("unknown word: %+v, want it named and an upgrade advised", got)
	}
}

// addWords adds the values of all constants of the package in a folder whose names have a prefix.
func addWords(t *testing.T, folder, prefix string, words map[string]bool) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(folder, entry.Name()), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				if !strings.HasPrefix(strings.ToLower(name.Name), prefix) || i >= len(spec.Values) {
					continue
				}
				if literal, ok := spec.Values[i].(*ast.BasicLit); ok {
					word, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					words[word] = true
				}
			}
			return true
		})
	}
}
