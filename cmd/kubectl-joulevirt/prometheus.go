package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/figures"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

const (
	// fastTimeout bounds what is waited for figures that one can do without.
	fastTimeout = 5 * time.Second
	// mostAnswer of a server: some hundred bytes for each of 100,000 VMs.
	mostAnswer = 64 << 20
	queryPath  = "/api/v1/query"
	noServer   = "none"
)

// fast reads figures of a Prometheus server, where there is one. What goes wrong with that is a
// gap.
func (t *topOptions) fast(ctx context.Context, cluster *access.Cluster, f *facts.Facts, read func(context.Context, figures.Ask) (*figures.Figures, error)) (*figures.Figures, []show.Gap) {
	ask, name, err := t.server(cluster, f)
	if err == nil && ask == nil {
		return nil, nil
	}
	var fast *figures.Figures
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, fastTimeout)
		defer cancel()
		fast, err = read(ctx, ask)
	}
	if err != nil {
		return nil, []show.Gap{{Of: "Prometheus " + name, Message: err.Error() + "; what moves fast is not shown. --prometheus=URL names a server that you reach yourself, --prometheus=none asks none"}}
	}
	return fast, nil
}

// server chooses whom to ask. Nil: nobody.
func (t *topOptions) server(cluster *access.Cluster, f *facts.Facts) (ask figures.Ask, name string, err error) {
	switch {
	case t.prometheus == noServer:
		return nil, "", nil
	case t.prometheus == "":
		service, ok := figures.ServiceOf(f.Policies)
		if !ok {
			return nil, "", nil
		}
		return throughAPI(cluster, service), service.Namespace + "/" + service.Name, nil
	case strings.Contains(t.prometheus, "://"):
		base, err := url.Parse(t.prometheus)
		if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
			return nil, t.prometheus, fmt.Errorf("--prometheus must be an http or https URL, or NAMESPACE/SERVICE:PORT")
		}
		return direct(base), base.Redacted(), nil
	}
	namespace, rest, _ := strings.Cut(t.prometheus, "/")
	service, port, _ := strings.Cut(rest, ":")
	if namespace == "" || service == "" || port == "" {
		return nil, t.prometheus, fmt.Errorf("--prometheus must be an http or https URL, or NAMESPACE/SERVICE:PORT")
	}
	return throughAPI(cluster, access.Service{Namespace: namespace, Name: service, Port: port}), t.prometheus, nil
}

func throughAPI(cluster *access.Cluster, service access.Service) figures.Ask {
	return func(ctx context.Context, query string) ([]byte, error) {
		return cluster.Proxy(ctx, service, queryPath, map[string]string{"query": query}, mostAnswer)
	}
}

func direct(base *url.URL) figures.Ask {
	return func(ctx context.Context, query string) ([]byte, error) {
		address := base.JoinPath(queryPath)
		address.RawQuery = url.Values{"query": {query}}.Encode()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
		if err != nil {
			return nil, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, fmt.Errorf("no answer: %w", err)
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("the server answers %s", response.Status)
		}
		return io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	}
}
