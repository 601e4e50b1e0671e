package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// words are the API's constants.
type words struct {
	// conditions by their word: what the comment says of them.
	conditions map[string]string
	// enums by the name of their type: what comments say of their values.
	enums map[string]map[string]string
}

func readWords(root fs.FS) (*words, error) {
	w := &words{conditions: map[string]string{}, enums: map[string]map[string]string{}}
	names, err := fs.Glob(root, "api/v1alpha1/*.go")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, declaration := range file.Decls {
			if d, ok := declaration.(*ast.GenDecl); ok && d.Tok == token.CONST {
				w.add(d)
			}
		}
	}
	if len(w.conditions) == 0 || len(w.enums) == 0 {
		return nil, fmt.Errorf("api/v1alpha1: %d conditions and %d enums found: are they declared in another way now?", len(w.conditions), len(w.enums))
	}
	return w, nil
}

// add reads a declaration of constants.
func (w *words) add(declaration *ast.GenDecl) {
	for _, one := range declaration.Specs {
		spec, ok := one.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 {
			continue
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			continue
		}
		name := spec.Names[0].Name
		doc := spec.Doc.Text()
		if doc == "" && !declaration.Lparen.IsValid() {
			doc = declaration.Doc.Text()
		}
		about := strings.TrimSpace(strings.TrimPrefix(cell(doc), name))
		if kind, ok := spec.Type.(*ast.Ident); ok {
			if w.enums[kind.Name] == nil {
				w.enums[kind.Name] = map[string]string{}
			}
			w.enums[kind.Name][value] = about
		}
		if strings.HasPrefix(name, "Condition") {
			w.conditions[value] = about
		}
	}
}

// enum tells of the values that a field may have, which are those of one type.
func (w *words) enum(values []apiextensionsv1.JSON) (told []string) {
	var texts []string
	for _, value := range values {
		texts = append(texts, unquoted(value))
	}
	abouts := w.of(texts)
	for _, text := range texts {
		about := abouts[text]
		if about != "" && !strings.HasPrefix(about, ":") {
			about = " " + about
		}
		told = append(told, code(text)+about)
	}
	return told
}

// of returns the comments of the type that has these values, all and no others.
func (w *words) of(values []string) map[string]string {
	for _, abouts := range w.enums {
		if len(values) == len(abouts) && !slices.ContainsFunc(values, func(value string) bool { _, ok := abouts[value]; return !ok }) {
			return abouts
		}
	}
	return nil
}

// conditionsPage tells which kind has which conditions.
func conditionsPage(kinds []kind, words *words) (string, error) {
	page := heading("Conditions", "What the statuses of the kinds say, for people and for `kubectl wait --for=condition=`. A condition that is `Unknown` is not known, which is neither. Each has a [reason](reasons.md), and a message that names what is meant.") +
		table("kind", "condition", "means")
	seen := map[string]bool{}
	for i := range kinds {
		for _, condition := range kinds[i].conditions {
			about, ok := words.conditions[condition]
			if !ok {
				continue // another word of the sentence
			}
			seen[condition] = true
			page += row(fmt.Sprintf("[%s](%s.md)", kinds[i].name, strings.ToLower(kinds[i].name)), code(condition), capital(about))
		}
	}
	for condition := range words.conditions {
		if !seen[condition] {
			return "", fmt.Errorf("condition %s is of no kind: name it in the comment on the kind's field conditions", condition)
		}
	}
	return page, nil
}

func capital(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
