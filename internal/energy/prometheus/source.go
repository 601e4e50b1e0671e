// Package prometheus reads the power of nodes from a Prometheus server, or from
// anything that answers its API: the series of Kepler, or a query of the admin's own.
// One query serves all nodes.
//
// Readings carry the time at which the server scraped them, not the time of the
// query: who asks decides what is too old.
package prometheus

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
)

// A counter needs two samples: twice the freshness holds them for whoever scrapes often
// enough to be fresh. The least serves scrapes each minute; the most bounds what a server
// is asked for.
const leastWindow, mostWindow = 2 * time.Minute, 10 * time.Minute

// Source reads the power of nodes from one server. It implements energy.Source.
type Source struct {
	client *client
	family family
}

var (
	_ energy.Source = (*Source)(nil)
	_ io.Closer     = (*Source)(nil)
)

// family is a kind of series that tells the power of nodes.
type family interface {
	read(ctx context.Context, ask asker, nodes *index) (found, error)
}

// asker evaluates a query at a moment; the zero time is the server's now.
type asker func(ctx context.Context, query string, at time.Time) (model.Value, error)

// found is what a family has of nodes.
type found struct {
	energy.Answer
	// unmatched counts the series of no node that was asked for, and stray is one of them.
	unmatched int
	stray     model.Metric
}

func newFound() found {
	return found{Answer: energy.Answer{Readings: map[string]nodePower{}, Refused: map[string]*energy.Refusal{}}}
}

// New returns the source of a server. An error wraps an energy.Refusal. Nothing is asked
// of the server yet.
func New(server energy.Server, credentials energy.Credentials) (*Source, error) {
	client, err := newClient(server, credentials)
	if err != nil {
		return nil, err
	}
	if server.Query != "" {
		return &Source{client: client, family: ownQuery{server.Query}}, nil
	}
	window := min(max(2*server.Freshness, leastWindow), mostWindow)
	return &Source{client: client, family: counters{matchers: server.Matchers, window: window}}, nil
}

// FirstOf returns the source of the first server that a policy names. Nil: it names none. secrets
// has the server's Secret.
func FirstOf(ctx context.Context, secrets energy.Secrets, settings []energy.Setting) (*Source, error) {
	for _, setting := range settings {
		if setting.Type != v1alpha1.PowerPrometheus {
			continue
		}
		credentials, err := energy.ReadCredentials(ctx, secrets, setting.Server)
		if err != nil {
			return nil, fmt.Errorf("read the credentials of %s: %w", setting.Server, err)
		}
		source, err := New(setting.Server, credentials)
		if err != nil {
			return nil, fmt.Errorf("make a client of %s: %w", setting.Server, err)
		}
		return source, nil
	}
	return nil, nil
}

// Read implements energy.Source.
func (s *Source) Read(ctx context.Context, nodes []energy.Node) (energy.Answer, error) {
	warning := ""
	ask := func(ctx context.Context, query string, at time.Time) (model.Value, error) {
		answer, err := s.client.query(ctx, query, at)
		if err != nil {
			return nil, err
		}
		warning = cmp.Or(warning, answer.warning)
		return answer.value(), nil
	}
	all, err := s.family.read(ctx, ask, newIndex(nodes))
	if err != nil {
		return energy.Answer{}, err
	}
	all.explain(nodes, warning)
	return all.Answer, nil
}

// Close ends connections that are kept for the next Read.
func (s *Source) Close() error {
	s.client.connections.CloseIdleConnections()
	return nil
}

func (f *found) has(node string) bool {
	_, read := f.Readings[node]
	_, refused := f.Refused[node]
	return read || refused
}

// refuse makes a node's power unusable, whatever else is known of it.
func (f *found) refuse(node string, refusal *energy.Refusal) {
	delete(f.Readings, node)
	f.Refused[node] = refusal
}

// explain says of nodes that nothing was found of what may be the cause.
func (f *found) explain(nodes []energy.Node, warning string) {
	var hints []string
	if f.unmatched > 0 {
		hints = append(hints, fmt.Sprintf("%d series are of no node that was asked for, such as %s: its labels %s must be a node's name or address",
			f.unmatched, describe(f.stray), strings.Join(nodeLabels(), ", ")))
	}
	if warning != "" {
		hints = append(hints, "the server warns: "+shorten(warning))
	}
	if len(hints) == 0 {
		return
	}
	refusal := energy.Refuse(energy.ReasonNoSeries, "no series of the node; %s", strings.Join(hints, "; "))
	for _, node := range nodes {
		if !f.has(node.Name) {
			f.Refused[node.Name] = refusal
		}
	}
}

// owner returns the node that a series is of. A series that names
// several nodes makes all of them unusable.
func (f *found) owner(nodes *index, metric model.Metric) (node string, ok bool) {
	names := nodes.find(metric)
	switch len(names) {
	case 0:
		f.unmatched++
		if f.stray == nil || compare(metric, f.stray) < 0 {
			f.stray = metric
		}
		return "", false
	case 1:
		return names[0], true
	}
	for _, name := range names {
		f.refuse(name, energy.Refuse(energy.ReasonManySeries, "the labels of %s name several nodes, %s: make them agree",
			describe(metric), shorten(strings.Join(names, " and "))))
	}
	return "", false
}

// describe writes a series' labels, bounded.
func describe(metric model.Metric) string { return shorten(metric.String()) }

// differing returns the labels in which two series differ.
func differing(a, b model.Metric) (string, string) {
	without := func(m, other model.Metric) string {
		own := maps.Clone(m)
		maps.DeleteFunc(own, func(name model.LabelName, value model.LabelValue) bool { return other[name] == value })
		return describe(own)
	}
	return without(a, b), without(b, a)
}
