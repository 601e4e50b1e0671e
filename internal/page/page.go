// Package page serves a page, for reading only, about what the manager sees, decides and
// saves: to people whom the API server knows and who may read the product's objects.
package page

import (
	"context"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// Live tells what only a manager that leads hears of nodes.
type Live interface {
	// Heard returns a node's rates, and when they came. Nil: there are none, or they are old.
	Heard(node string) (*model.NodeRates, time.Time)
	// EachPower calls with the power of each governed node that is known, and whether a meter
	// measured it.
	EachPower(call func(node string, power model.Power, metered bool))
	// Potential tells what each lever would save on a node, in watts, by the models, Proven what
	// levers in force save there now, measured, and Booked what was saved there since the
	// policy's ledger was begun, in joules. confidence is that of the intervals, from 0 to 1.
	Potential(node string, confidence float64) map[model.Lever]ledger.Range
	Proven(policy, node string) map[model.Lever]ledger.Range
	Booked(policy, node string, confidence float64) []ledger.UnitSaving
}

// Options of a page. All fields are required.
type Options struct {
	// Reader reads the product's objects: the manager's cache.
	Reader client.Reader
	// Reviews asks the API server who calls, and what they may do.
	Reviews kubernetes.Interface
	Live    Live
	// Ready says why nothing can be read yet. Nil: everything can.
	Ready func() error
	// Leads tells whether this manager leads. Led tells whether some manager does: only then
	// are the figures in statuses those of now.
	Leads func() bool
	Led   func(context.Context) (bool, error)
	// Version of the manager.
	Version string
	Clock   clock.WithTicker
	Log     logr.Logger
}

// Page is the page with what it remembers.
type Page struct {
	Options
	gate    *gate
	trend   *Trend
	objects objects
	files   files
}

// New returns a page. What it draws over time is remembered by Remember.
func New(o Options) (*Page, error) {
	files, err := readFiles()
	if err != nil {
		return nil, err
	}
	return &Page{
		Options: o, gate: newGate(o.Reviews, o.Clock), trend: newTrend(o.Clock.Now()),
		objects: objects{o.Reader}, files: files,
	}, nil
}

// Handler serves the page. It expects to be reached by TLS.
func (p *Page) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /assets/", p.files.serve)
	mux.HandleFunc("GET /signin", p.showSignIn)
	mux.HandleFunc("POST /signin", p.signIn)
	mux.HandleFunc("POST /signout", p.signOut)
	mux.HandleFunc("GET /{$}", p.showPage)
	mux.HandleFunc("GET /data/summary", p.data(p.summary))
	mux.HandleFunc("GET /data/policy", p.data(p.policy))
	mux.HandleFunc("GET /data/trend", p.data(p.trendOf))
	mux.HandleFunc("GET /data/nodes", p.data(p.nodes))
	mux.HandleFunc("GET /data/node", p.data(p.node))
	mux.HandleFunc("GET /data/groups", p.data(p.groups))
	// Who is signed in elsewhere cannot be made to send forms here.
	return secured(http.NewCrossOriginProtection().Handler(mux))
}

// secured adds headers that let the page load nothing but its own files, and be shown in no
// other page.
func secured(next http.Handler) http.Handler {
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}
