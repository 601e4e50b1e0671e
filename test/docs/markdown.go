// Package docs holds the project's Markdown to what the code and a cluster say: links, words,
// manifests and commands.
package docs

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// page is a Markdown file.
type page struct {
	// path in the repository.
	path string
	// anchors of its headings, as GitHub makes them.
	anchors map[string]bool
	// links and images: where they lead.
	links []string
	// spans are what is written `so`.
	spans []string
	// blocks are fenced code.
	blocks []block
	// commands that it tells people to run, in its order.
	commands []command
}

// block is fenced code, and the word behind its fence.
type block struct{ language, text string }

// readPages reads all Markdown files of the repository.
func readPages(root fs.FS) ([]*page, error) {
	var pages []*page
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "dist"):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".md":
			return nil
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		p := parse(content)
		p.path = name
		pages = append(pages, p)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the pages: %w", err)
	}
	return pages, nil
}

// parse reads a page as GitHub does, tables included.
func parse(content []byte) *page {
	p := &page{anchors: map[string]bool{}}
	document := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(content))
	_ = ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function never fails
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			p.addAnchor(inlineText(n, content))
		case *ast.Link:
			p.links = append(p.links, string(n.Destination))
		case *ast.Image:
			p.links = append(p.links, string(n.Destination))
		case *ast.CodeSpan:
			span := inlineText(n, content)
			p.spans = append(p.spans, span)
			p.commands = append(p.commands, commandOf(span)...)
		case *ast.FencedCodeBlock:
			var lines strings.Builder
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				lines.Write(line.Value(content))
			}
			b := block{string(n.Language(content)), lines.String()}
			p.blocks = append(p.blocks, b)
			p.commands = append(p.commands, commandsOf(b)...)
		}
		return ast.WalkContinue, nil
	})
	return p
}

// inlineText is the text of a node without its marks.
func inlineText(n ast.Node, content []byte) string {
	var all strings.Builder
	for child := n.FirstChild(); child != nil; child = child.NextSibling() {
		switch child := child.(type) {
		case *ast.Text:
			all.Write(child.Segment.Value(content))
		case *ast.String:
			all.Write(child.Value)
		default:
			all.WriteString(inlineText(child, content))
		}
	}
	return all.String()
}

// addAnchor adds that of a heading. GitHub numbers equal ones.
func (p *page) addAnchor(heading string) {
	var slug strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case unicode.IsLetter(r), unicode.IsNumber(r), r == '-', r == '_':
			slug.WriteRune(r)
		case r == ' ':
			slug.WriteRune('-')
		}
	}
	anchor := slug.String()
	for i := 1; p.anchors[anchor]; i++ {
		anchor = fmt.Sprintf("%s-%d", slug.String(), i)
	}
	p.anchors[anchor] = true
}
