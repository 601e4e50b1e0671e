package page

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

const (
	// requestTimeout bounds a request and its answer.
	requestTimeout = 30 * time.Second
	idleTimeout    = 90 * time.Second
	// endTimeout is within that of the manager.
	endTimeout = 10 * time.Second
	// mostHeader holds a token as long as API servers take them.
	mostHeader = 64 << 10
)

// Server serves a page by TLS. It is a Runnable of the controller runtime.
type Server struct {
	Page    *Page
	Address string
	// CertDir has tls.crt and tls.key, which are read again when they change. Empty: the
	// certificate is self-signed.
	CertDir string
	Log     logr.Logger
}

// NeedLeaderElection is false: those who stand by serve what they know.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves, and keeps the figures over time, until the context ends.
func (s *Server) Start(ctx context.Context) error {
	settings, err := s.settings(ctx)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("--page-bind-address: %w", err)
	}
	server := &http.Server{
		Handler: s.Page.Handler(), TLSConfig: settings, MaxHeaderBytes: mostHeader,
		ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	remembered := make(chan struct{})
	go func() {
		defer close(remembered)
		s.Page.Remember(ctx)
	}()
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve the page: %w", err)
	case <-ctx.Done():
	}
	<-remembered
	// The context has ended, and what is being answered has a while still.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := server.Shutdown(last); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("end the page: %w", err)
	}
	return nil
}

// settings have the certificate of the files, or one made for this start.
func (s *Server) settings(ctx context.Context) (*tls.Config, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CertDir == "" {
		certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{{127, 0, 0, 1}}, nil)
		if err != nil {
			return nil, fmt.Errorf("make a certificate for the page: %w", err)
		}
		pair, err := tls.X509KeyPair(certificate, key)
		settings.Certificates = []tls.Certificate{pair}
		return settings, err
	}
	watcher, err := certwatcher.New(filepath.Join(s.CertDir, "tls.crt"), filepath.Join(s.CertDir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("read the page's certificate: %w", err)
	}
	go func() {
		if err := watcher.Start(ctx); err != nil {
			s.Log.Error(err, "the page's certificate is not read again when it changes")
		}
	}()
	settings.GetCertificate = watcher.GetCertificate
	return settings, nil
}
