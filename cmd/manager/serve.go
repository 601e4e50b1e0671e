package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/joulevirt/joulevirt/controllers"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/page"
	"github.com/joulevirt/joulevirt/internal/serve"
)

// addHealth serves /healthz and /readyz. The servers of the controller runtime take any number of
// connections.
func addHealth(ctx context.Context, mgr manager.Manager, o *options, gate *controllers.Gate) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := gate.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return addServer(ctx, mgr, o.healthAddress, nil, mux)
}

// addMetrics serves /metrics, and the page unless that is nil, to whoever the API server lets read
// them.
func addMetrics(ctx context.Context, mgr manager.Manager, o *options, p *page.Page) error {
	filter, err := page.Authenticate(o.pageAudiences)(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("guard /metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	if p != nil {
		mux.Handle(access.PagePath, p.Handler())
	}
	guarded, err := filter(mgr.GetLogger().WithName("metrics"), mux)
	if err != nil {
		return fmt.Errorf("guard /metrics: %w", err)
	}
	settings, err := metricsTLS(mgr, o.metricsCertDir)
	if err != nil {
		return fmt.Errorf("certificate of /metrics: %w", err)
	}
	return addServer(ctx, mgr, o.metricsAddress, settings, guarded)
}

// metricsTLS uses the certificate of a folder, or a self-signed one, which keeps listeners out: the
// token says who asks.
func metricsTLS(mgr manager.Manager, dir string) (*tls.Config, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if dir != "" {
		watcher, err := certwatcher.New(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		if err != nil {
			return nil, err
		}
		settings.GetCertificate = watcher.GetCertificate
		return settings, mgr.Add(watcher)
	}
	certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	settings.Certificates = []tls.Certificate{pair}
	return settings, err
}

// addServer serves a handler while the manager runs, also when it does not lead. settings nil:
// without TLS.
func addServer(ctx context.Context, mgr manager.Manager, address string, settings *tls.Config, handler http.Handler) error {
	if address == "0" {
		return nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	if settings != nil {
		listener = tls.NewListener(listener, settings)
	}
	server := &manager.Server{
		Name: address, Listener: listener, Server: serve.NewServer(handler, mgr.GetLogger().WithName("serve")),
		ShutdownTimeout: ptr.To(shutdownTimeout),
	}
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("serve on %s: %w", address, err)
	}
	return nil
}
