package page

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// content of the page. Nothing is loaded from elsewhere.
//
//go:embed assets
var content embed.FS

// files are those of the page.
type files struct {
	assets map[string][]byte
	shell  []byte
	form   *template.Template
}

func readFiles() (files, error) {
	f := files{assets: map[string][]byte{}}
	err := fs.WalkDir(content, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || typeOf(name) == "" {
			return err
		}
		f.assets[name], err = content.ReadFile(name)
		return err
	})
	if err != nil {
		return files{}, fmt.Errorf("read the page's files: %w", err)
	}
	if f.shell, err = content.ReadFile("assets/index.html"); err != nil {
		return files{}, fmt.Errorf("read the page's files: %w", err)
	}
	f.form, err = template.ParseFS(content, "assets/signin.html")
	if err != nil {
		return files{}, fmt.Errorf("read the page's files: %w", err)
	}
	return f, nil
}

// typeOf an asset. Empty: it is none.
func typeOf(name string) string {
	return map[string]string{
		".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
	}[path.Ext(name)]
}

// serve gives an asset. Browsers ask each time whether it is the same still: the next manager
// has others by the same names.
func (f files) serve(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	body, found := f.assets[name]
	if !found {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", typeOf(name))
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // who left does not read it
}

func (f files) index(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(f.shell)
}

// signIn shows the form, with what is wrong. Empty: nothing is.
func (f files) signIn(w http.ResponseWriter, status int, message string) {
	var out bytes.Buffer
	if err := f.form.Execute(&out, map[string]string{"Message": message}); err != nil {
		http.Error(w, "the form cannot be shown", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes())
}
