package main

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"

	"github.com/joulevirt/joulevirt/internal/agent/publish"
)

// serveMetrics serves /metrics to whoever the API server says may read them,
// as the manager does. The certificate is self-signed: it keeps listeners out,
// and the token tells who asks.
func serveMetrics(ctx context.Context, group *errgroup.Group, o *options, config *rest.Config, handlers *publish.Handlers, log logr.Logger) error {
	if o.metricsAddress == "" || o.metricsAddress == "0" {
		return nil
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("make a client of the API server: %w", err)
	}
	authorize, err := filters.WithAuthenticationAndAuthorization(config, client)
	if err != nil {
		return fmt.Errorf("guard /metrics: %w", err)
	}
	guarded, err := authorize(log, handlers.Metrics())
	if err != nil {
		return fmt.Errorf("guard /metrics: %w", err)
	}
	certificate, key, err := certutil.GenerateSelfSignedCertKey(o.nodeName, nil, nil)
	if err != nil {
		return fmt.Errorf("certificate of /metrics: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("certificate of /metrics: %w", err)
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
	group.Go(func() error { return handlers.Serve(ctx, o.metricsAddress, settings, guarded) })
	return nil
}
