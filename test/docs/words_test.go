package docs

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestWordsExist holds what pages for users write as code to what there is: metrics, fields of
// objects, flags and words of statuses. Design notes are history too, and are not looked at.
func TestWordsExist(t *testing.T) {
	literals := literalsOf(t, "api", "cmd", "controllers", "internal")
	metrics := read(t, "docs/metrics.md")
	fields := fieldsOf(t)
	commands := read(t, "docs/reference/cli.md")
	var (
		metric = regexp.MustCompile(`^joulevirt_[a-z_]+$`)
		field  = regexp.MustCompile(`^(spec|status)(\.[a-zA-Z\[\]]+)+`)
		flag   = regexp.MustCompile(`^--[a-z][a-z-]+`)
		word   = regexp.MustCompile(`^[A-Z][A-Za-z]*[a-z][A-Za-z]*$`)
	)
	found := map[string]int{}
	for _, p := range pages(t) {
		if !forUsers(p.path) {
			continue
		}
		for _, span := range append(slices.Clone(p.spans), ofComments(p)...) {
			problem := ""
			switch {
			case metric.MatchString(span):
				found["metrics"]++
				if !strings.Contains(metrics, "| `"+span+"` |") {
					problem = "is no metric"
				}
			case field.MatchString(span):
				found["fields"]++
				if !fields[strings.ReplaceAll(field.FindString(span), "[]", "")] {
					problem = "is no field"
				}
			case flag.MatchString(span):
				found["flags"]++
				if name := strings.TrimPrefix(flag.FindString(span), "--"); !literals[name] && !strings.Contains(commands, "--"+name) && !ofKubectl(name) {
					problem = "is no flag"
				}
			case word.MatchString(span):
				found["words"]++
				if !literals[span] && !elsewhere(span) {
					problem = "is no word of the code"
				}
			}
			if problem != "" {
				t.Errorf("%s: `%s` %s", p.path, span, problem)
			}
		}
	}
	for what, least := range map[string]int{"metrics": 30, "fields": 40, "flags": 3, "words": 100} {
		if found[what] < least {
			t.Errorf("%d %s were found in the pages, want %d at least", found[what], what, least)
		}
	}
}

// ofComments are the fields that comments of commands send people to.
func ofComments(p *page) (fields []string) {
	comment := regexp.MustCompile(`(?m)\s# (.*)$`)
	for _, b := range p.blocks {
		if b.language != "console" && b.language != "sh" {
			continue
		}
		for _, match := range comment.FindAllStringSubmatch(b.text, -1) {
			fields = append(fields, regexp.MustCompile(`\b(spec|status)(\.[a-zA-Z]+)+`).FindAllString(match[1], -1)...)
		}
	}
	return fields
}

// forUsers is true of pages that tell how things are, not how they were decided or generated
// from the code.
func forUsers(page string) bool {
	switch dir, _ := filepath.Split(page); dir {
	case "docs/", "docs/concepts/", "docs/guides/", "docs/presets/", "docs/runbooks/":
		return page != "docs/limitations.md" && page != "docs/benchmarks.md"
	}
	return false
}

// elsewhere are words of others that pages speak of.
func elsewhere(word string) bool {
	switch word {
	case "VirtualMachine", "VirtualMachineInstance", "PrometheusRule", "ServiceMonitor", "PodMonitor", "ConfigMap", "DaemonSet",
		"ExternalName", "Local", "SecurityContextConstraints", "ClusterRole", "StatefulSet", "PersistentVolumeClaim":
		return true
	}
	return false
}

func ofKubectl(flag string) bool {
	switch flag {
	case "server-side", "field-selector", "overwrite", "cascade", "all-namespaces", "type", "root-dir", "reserved-cpus":
		return true
	}
	return false
}

// TestCommandsExist holds all that pages call of kubectl joulevirt to its reference, also where
// it is not run.
func TestCommandsExist(t *testing.T) {
	reference, calls := read(t, "docs/reference/cli.md"), 0
	call := regexp.MustCompile(`kubectl joulevirt((?: [a-z]+)*)((?: --?[a-z][a-z-]*)*)`)
	for _, p := range pages(t) {
		text := strings.Join(p.spans, "\n")
		for _, b := range p.blocks {
			text += "\n" + b.text
		}
		for _, match := range call.FindAllStringSubmatch(text, -1) {
			words := strings.Fields(match[1])
			if len(words) == 0 {
				continue
			}
			calls++
			if !strings.Contains(reference, "## kubectl joulevirt "+words[0]+"\n") {
				t.Errorf("%s: there is no kubectl joulevirt %s", p.path, words[0])
			}
			for _, flag := range strings.Fields(match[2]) {
				if !strings.Contains(reference, flag+" ") && !strings.Contains(reference, flag+",") && flag != "--help" {
					t.Errorf("%s: kubectl joulevirt has no flag %s", p.path, flag)
				}
			}
		}
	}
	if calls < 40 {
		t.Errorf("only %d calls of kubectl joulevirt were found", calls)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fieldsOf the kinds, by the pages that are generated from them, and all that they are in.
func fieldsOf(t *testing.T) map[string]bool {
	t.Helper()
	fields := map[string]bool{
		// Of a VirtualMachine, and of a Gateway API route.
		"spec.template.metadata": true, "status.parents": true,
	}
	for _, kind := range []string{"energypolicy", "vmnetworkprofile", "nodeplan", "nodereport", "energyledger"} {
		for _, match := range regexp.MustCompile("(?m)^\\| `([a-zA-Z.\\[\\]]+)` \\|").FindAllStringSubmatch(read(t, "docs/reference/"+kind+".md"), -1) {
			fields[strings.ReplaceAll(match[1], "[]", "")] = true
		}
	}
	if len(fields) < 200 {
		t.Fatalf("only %d fields were found", len(fields))
	}
	return fields
}

// literalsOf are all strings that the code below the folders writes out, tests left aside.
func literalsOf(t *testing.T, folders ...string) map[string]bool {
	t.Helper()
	literals := map[string]bool{}
	for _, folder := range folders {
		err := fs.WalkDir(os.DirFS(root), folder, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				return err
			}
			files := token.NewFileSet()
			var s scanner.Scanner
			s.Init(files.AddFile(name, -1, len(text)), text, nil, 0)
			for {
				_, tok, literal := s.Scan()
				if tok == token.EOF {
					return nil
				}
				if value, err := strconv.Unquote(literal); tok == token.STRING && err == nil {
					literals[value] = true
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return literals
}

// TestVersionsAreThoseThatRun holds the table of what ran together to what the tests build.
func TestVersionsAreThoseThatRun(t *testing.T) {
	page := read(t, "docs/compatibility.md")
	for module, folder := range map[string]string{
		"k8s.io/kubernetes": "kubernetes", "kubevirt.io/kubevirt": "kubevirt", "github.com/projectcontour/contour": "contour", "helm.sh/helm/v4": "helm",
	} {
		match := regexp.MustCompile(regexp.QuoteMeta(module) + ` v(\S+)`).FindStringSubmatch(read(t, "hack/controlplane/"+folder+"/go.mod"))
		if match == nil {
			t.Errorf("no version of %s is built", module)
			continue
		}
		if !strings.Contains(page, match[1]) {
			t.Errorf("docs/compatibility.md does not name version %s of %s, which the tests run", match[1], module)
		}
	}
	for _, match := range regexp.MustCompile("`(test/[a-z0-9]+)`").FindAllStringSubmatch(page, -1) {
		if _, err := os.Stat(filepath.Join(root, match[1])); err != nil {
			t.Errorf("docs/compatibility.md: there is no %s", match[1])
		}
	}
}
