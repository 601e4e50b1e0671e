package install

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// commands of Helm that pages have people run on a release, as Helm gets them, each with
// its page.
type command struct {
	page string
	args []string
}

// helmCommands reads them from all pages: from code that stands in a line of its own or in
// a sentence. What names no release is only spoken of.
func helmCommands(t *testing.T) []command {
	t.Helper()
	var found []command
	call := regexp.MustCompile("helm (?:install|upgrade|rollback|uninstall) " + release + "\\b[^`\n]*")
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".md" {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		for _, line := range call.FindAllString(strings.ReplaceAll(string(text), "\\\n", " "), -1) {
			found = append(found, command{name, strings.Fields(line)[1:]})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// installPage is what docs/install.md has people run: the command of Helm that begins so.
func installPage(t *testing.T, verb string) []string {
	t.Helper()
	for _, c := range helmCommands(t) {
		if c.page == "docs/install.md" && c.args[0] == verb {
			return c.args
		}
	}
	t.Fatalf("docs/install.md has no line helm %s %s", verb, release)
	return nil
}

// TestCommandsNameTheNamespace holds pages to what Helm needs: without it, it looks for the
// release in the namespace of the current context.
func TestCommandsNameTheNamespace(t *testing.T) {
	all := helmCommands(t)
	if len(all) < 6 {
		t.Errorf("only %d commands were found", len(all))
	}
	for _, c := range all {
		if at := slices.Index(c.args, "--namespace"); at < 0 || at == len(c.args)-1 || c.args[at+1] != namespace {
			t.Errorf("%s: helm %s lacks --namespace %s", c.page, strings.Join(c.args, " "), namespace)
		}
	}
}
