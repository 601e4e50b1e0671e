package accelerated

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/joulevirt/joulevirt/controllers/collect"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
)

// Metrics serves what the manager shows at /manager, and each node's agent at /agent/NODE.
// It is for fleets whose manager does not change.
func (f *Fleet) Metrics() (http.Handler, error) {
	const version, day = "simulated", 24 * time.Hour
	const week, years = 7 * day, 10 * 365 * day
	ends := func(in time.Duration) func() (time.Time, bool) {
		at := time.Now().Add(in)
		return func() (time.Time, bool) { return at, true }
	}
	program := prometheus.NewRegistry()
	if err := program.Register(collect.NewAuthorityCollector(ends(years))); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/manager", promhttp.HandlerFor(prometheus.Gatherers{f.manager.Metrics(), program}, promhttp.HandlerOpts{}))
	for _, n := range f.nodes {
		registry := prometheus.NewRegistry()
		err := registry.Register(publish.NewCollector(publish.CollectorOptions{
			Board: n.board, Node: n.name, PerVM: true, Version: version, Expires: ends(week),
		}))
		if err != nil {
			return nil, err
		}
		mux.Handle("/agent/"+n.name, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	}
	return mux, nil
}

// Nodes are the names of all simulated nodes.
func (f *Fleet) Nodes() (names []string) {
	for _, n := range f.nodes {
		names = append(names, n.name)
	}
	return names
}
