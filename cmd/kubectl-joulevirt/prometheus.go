package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
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

// prometheusFlag adds the flag for the server. what is asked of it is told to people.
func prometheusFlag(flags *pflag.FlagSet, server *string, what string) {
	flags.StringVar(server, "prometheus", "", "Server to ask for "+what+": NAMESPACE/SERVICE:PORT through the API server, a URL, or none. Empty: the Service that a policy names.")
}

// askPrometheus reads figures of a Prometheus server, where there is one: the named one, or the
// one that policies name. What goes wrong with that is a gap.
func askPrometheus[T any](ctx context.Context, cluster *access.Cluster, named string, policies []v1alpha1.EnergyPolicy, read func(context.Context, figures.Ask) (T, error)) (T, []show.Gap) {
	var got, none T
	ask, name, err := chooseServer(cluster, named, policies)
	if err == nil && ask == nil {
		return none, nil
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, fastTimeout)
		defer cancel()
		got, err = read(ctx, ask)
	}
	if err != nil {
		return none, []show.Gap{{Of: "Prometheus " + name, Message: err.Error() + "; its figures are not shown. --prometheus=URL names a server that you reach yourself, --prometheus=none asks none"}}
	}
	return got, nil
}

// chooseServer chooses whom to ask. Nil: nobody.
func chooseServer(cluster *access.Cluster, named string, policies []v1alpha1.EnergyPolicy) (ask figures.Ask, name string, err error) {
	switch {
	case named == noServer:
		return nil, "", nil
	case named == "":
		service, ok := figures.ServiceOf(policies)
		if !ok {
			return nil, "", nil
		}
		return throughAPI(cluster, service), service.Namespace + "/" + service.Name, nil
	case strings.Contains(named, "://"):
		base, err := url.Parse(named)
		if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
			return nil, named, fmt.Errorf("--prometheus must be an http or https URL, or NAMESPACE/SERVICE:PORT")
		}
		return direct(base), base.Redacted(), nil
	}
	namespace, rest, _ := strings.Cut(named, "/")
	service, port, _ := strings.Cut(rest, ":")
	if namespace == "" || service == "" || port == "" {
		return nil, named, fmt.Errorf("--prometheus must be an http or https URL, or NAMESPACE/SERVICE:PORT")
	}
	return throughAPI(cluster, access.Service{Namespace: namespace, Name: service, Port: port}), named, nil
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
