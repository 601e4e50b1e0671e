// Package page serves a read-only web page about what the manager measures, decides and
// saves. The server of its handler authenticates and authorizes requests.
package page

import (
	"context"
	"embed"
	"encoding/json"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// dataTimeout bounds the wait for a cache that is not filled yet.
	dataTimeout = 10 * time.Second
	// maxText of a search.
	maxText = 256
	// pageSize is the number of rows that are sent at once.
	pageSize = 50
)

// assets of the page. Nothing is loaded from elsewhere.
//
//go:embed assets
var assets embed.FS

// Live has what only the manager that leads knows of nodes.
type Live interface {
	// Rates returns a node's rates and when they were received, or nil if there are no fresh
	// ones.
	Rates(node string) (*model.NodeRates, time.Time)
	// EachPower calls with the power of each governed node that is known, and whether a meter
	// measured it.
	EachPower(call func(node string, power model.Power, metered bool))
}

// Options of a page. All fields are required.
type Options struct {
	// Reader reads the product's objects: the manager's cache.
	Reader client.Reader
	Live   Live
	// Ready returns why nothing can be read yet, or nil.
	Ready func() error
	// Leads returns true if this manager leads, Led if some manager does: only then are the
	// figures in statuses current.
	Leads func() bool
	Led   func(context.Context) (bool, error)
	// Version of the manager.
	Version string
	Clock   clock.WithTicker
	Log     logr.Logger
}

// Page serves the page. As a Runnable of controller-runtime it records a point of each policy's
// trend a minute.
type Page struct {
	Options
	trend   *trend
	objects objects
}

// New returns a page.
func New(o Options) *Page {
	return &Page{Options: o, trend: newTrend(o.Clock.Now()), objects: objects{o.Reader}}
}

// Handler serves the page below access.PagePath.
func (p *Page) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+access.PagePath+"{$}", func(w http.ResponseWriter, _ *http.Request) { serveAsset(w, "index.html") })
	mux.HandleFunc("GET "+access.PagePath+"assets/", func(w http.ResponseWriter, r *http.Request) {
		serveAsset(w, strings.TrimPrefix(r.URL.Path, access.PagePath+"assets/"))
	})
	for name, read := range map[string]func(context.Context, url.Values) (any, error){
		"summary": p.summary, "policy": p.policy, "trend": p.readTrend, "nodes": p.nodes, "node": p.node, "groups": p.groups, "live": p.live,
	} {
		mux.HandleFunc("GET "+access.PagePath+"data/"+name, p.serveData(read))
	}
	return addHeaders(mux)
}

// addHeaders lets the page load nothing but its own files, and be embedded in no other page.
func addHeaders(next http.Handler) http.Handler {
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
		"form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

func serveAsset(w http.ResponseWriter, name string) {
	kind := map[string]string{
		".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain",
	}[path.Ext(name)]
	body, err := assets.ReadFile("assets/" + name)
	if err != nil || kind == "" {
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", kind+"; charset=utf-8")
	_, _ = w.Write(body) // the client may be gone
}

// serveData answers with what read returns, as JSON.
func (p *Page) serveData(read func(context.Context, url.Values) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := p.Ready(); err != nil {
			p.writeProblem(w, http.StatusServiceUnavailable, "The manager waits for kinds that are not installed, Joulevirt's or KubeVirt's ("+
				err.Error()+"): kubectl joulevirt doctor names them, and how to install them.")
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), dataTimeout)
		defer cancel()
		answer, err := read(ctx, r.URL.Query())
		switch {
		case access.Is(err, access.NotFound):
			p.writeProblem(w, http.StatusNotFound, sentence(err))
		case err != nil:
			p.writeProblem(w, http.StatusServiceUnavailable, sentence(err))
		default:
			p.writeJSON(w, http.StatusOK, answer)
		}
	}
}

// writeProblem answers with a sentence that says what is wrong and what to do.
func (p *Page) writeProblem(w http.ResponseWriter, status int, message string) {
	p.writeJSON(w, status, map[string]string{"message": message})
}

func (p *Page) writeJSON(w http.ResponseWriter, status int, answer any) {
	body, err := json.Marshal(answer)
	if err != nil {
		p.Log.Error(err, "an answer of the page cannot be written as JSON")
		http.Error(w, `{"message":"The answer cannot be written as JSON: see the manager's log."}`, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}

// sentence begins with a capital letter and ends with a full stop.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// text returns a parameter of a query, cut to a sensible length.
func text(query url.Values, name string) string {
	value := query.Get(name)
	return value[:min(len(value), maxText)]
}

// part is a part of a list.
type part[T any] struct {
	Items []T `json:"items"`
	// Total is the number of all, From the index of the first item, and Size the most items
	// that are sent at once.
	Total int `json:"total"`
	From  int `json:"from"`
	Size  int `json:"size"`
}

// partOf returns the requested part of a list.
func partOf[T any](all []T, query url.Values, size int) part[T] {
	from, err := strconv.Atoi(query.Get("from"))
	if err != nil || from < 0 {
		from = 0
	}
	from = min(from, len(all))
	return part[T]{Items: append([]T{}, all[from:min(from+size, len(all))]...), Total: len(all), From: from, Size: size}
}
