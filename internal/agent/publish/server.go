package publish

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/serve"
)

const metricsTimeout = 10 * time.Second

// Handlers are what the agent serves.
type Handlers struct {
	board    *Board
	clock    clock.PassiveClock
	maxAge   time.Duration
	registry *prometheus.Registry
	log      logr.Logger
}

// NewHandlers returns the agent's handlers. A state older than maxAge makes the
// agent neither live nor ready.
func NewHandlers(board *Board, c clock.PassiveClock, maxAge time.Duration, collector prometheus.Collector, log logr.Logger) (*Handlers, error) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(collector); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return &Handlers{board: board, clock: c, maxAge: maxAge, registry: registry, log: log}, nil
}

// Secured serves /v1/rates and /metrics. It is for listeners that let only
// verified clients in.
func (h *Handlers) Secured() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/rates", h.rates)
	mux.Handle("GET /metrics", h.metrics())
	return mux
}

// Metrics serves /metrics alone.
func (h *Handlers) Metrics() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h.metrics())
	return mux
}

// Health serves /healthz and /readyz.
func (h *Handlers) Health() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", h.fresh)
	mux.HandleFunc("GET /readyz", h.fresh)
	return mux
}

func (h *Handlers) metrics() http.Handler {
	return promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: metricsTimeout})
}

func (h *Handlers) rates(w http.ResponseWriter, r *http.Request) {
	// The listener verifies certificates; without that nobody gets rates.
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		http.Error(w, "a client certificate is needed", http.StatusUnauthorized)
		return
	}
	state := h.board.Latest()
	if state == nil {
		http.Error(w, "the first round is not over", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(state.Rates); err != nil {
		h.log.V(1).Info("rates not sent", "reason", err.Error())
	}
}

func (h *Handlers) fresh(w http.ResponseWriter, _ *http.Request) {
	state := h.board.Latest()
	if state == nil {
		http.Error(w, "the first round is not over", http.StatusServiceUnavailable)
		return
	}
	if age := h.clock.Since(state.Rates.Time); age > h.maxAge {
		http.Error(w, fmt.Sprintf("the last round was %v ago", age.Round(time.Second)), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// Serve serves a handler on an address until the context ends. settings nil:
// without TLS.
func (h *Handlers) Serve(ctx context.Context, address string, settings *tls.Config, handler http.Handler) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	server := serve.NewServer(handler, h.log)
	if settings != nil {
		listener = tls.NewListener(listener, settings)
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	}
	return nil
}
