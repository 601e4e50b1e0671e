// Package prometheus reads the power of nodes from a Prometheus server, or from
// anything that answers its API: the series of Kepler, old and new, or a query
// of the admin's own. One query a family of series and reading serves all
// nodes, and one more all VMs.
//
// Readings carry the time at which the server scraped them, not the time of the
// query: who asks decides what is too old.
package prometheus

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
)

const (
	defaultTimeout   = 10 * time.Second
	defaultFreshness = time.Minute
	// A counter needs two samples: twice the freshness holds them for whoever
	// scrapes often enough to be fresh. The least serves scrapes each minute;
	// the most bounds what a server is asked for.
	leastWindow = 2 * time.Minute
	mostWindow  = 10 * time.Minute
	// Kepler answers a scrape with figures that are up to 0.5 s old, Kepler 0.9
	// with some of up to 3 s. Over these times that is an error of at most 5 %
	// and 10 %.
	keplerInterval = 10 * time.Second
	legacyInterval = 30 * time.Second
)

// Config says which server is asked for what.
type Config struct {
	// URL of the server, http or https.
	URL string
	// Series is one of the API's words: Auto, Kepler, KeplerLegacy, Platform or
	// Query. Empty: Auto.
	Series string
	// Query is the PromQL expression of Series Query: an instant vector of
	// watts, one sample a node, with a label node.
	Query string
	// Credentials, of which all may be empty.
	Credentials Credentials
	// Timeout is how long an answer to a query may take. 0: 10 s.
	Timeout time.Duration
	// Freshness is the age up to which readings are of use: the server is asked
	// for samples of twice that time, within 2 and 10 minutes. 0: 1 min.
	Freshness time.Duration
	// Interval is the least time that the mean of a counter is taken over, when
	// there are samples enough. 0: 10 s for Kepler, 30 s for KeplerLegacy.
	Interval time.Duration
	// VMs says to ask for the power of VMs too, where the series are Kepler's: one
	// more query a family, which yields a series a VM.
	VMs bool
}

// Round is what the last reading met with, beside its answer.
type Round struct {
	// Queries that were asked.
	Queries int
	// Series that the server sent, and those of them that are of no node asked
	// for.
	Series, Unmatched int
	// Warnings of the server, such as that its answer is partial, and what failed
	// without the whole reading failing.
	Warnings []string
	// VMs that are known, and how many were left out, by reason.
	VMs        int
	VMsLeftOut map[energy.Reason]int
}

// Source reads the power of nodes from one server. It implements energy.Source.
type Source struct {
	client   *client
	families []family
	// pods are asked for the power of VMs.
	pods []pods
	last Round
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
	series    int
	unmatched int
	// stray is an example of what was not matched.
	stray model.Metric
}

func newFound() found {
	return found{Answer: energy.Answer{Readings: map[string]nodePower{}, Refused: map[string]*energy.Refusal{}}}
}

// New returns the Source that a Config describes. An error wraps an
// energy.Refusal. Nothing is asked of the server yet.
func New(config Config) (*Source, error) {
	families, pods, err := familiesOf(config)
	if err != nil {
		return nil, err
	}
	if !config.VMs {
		pods = nil
	}
	address, err := url.Parse(config.URL)
	if err != nil || address.Scheme != "http" && address.Scheme != "https" || address.Host == "" {
		return nil, energy.Refuse(energy.ReasonUnreachable, "url must be an http or https URL, such as https://prometheus.monitoring.svc:9090")
	}
	timeout := config.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	client, err := newClient(address, config.Credentials, timeout)
	if err != nil {
		return nil, err
	}
	return &Source{client: client, families: families, pods: pods}, nil
}

// familiesOf returns what is to be asked for, in order: for nodes, and for VMs.
func familiesOf(config Config) ([]family, []pods, error) {
	freshness := config.Freshness
	if freshness <= 0 {
		freshness = defaultFreshness
	}
	window := min(max(2*freshness, leastWindow), mostWindow)
	interval, longInterval := config.Interval, config.Interval
	if config.Interval <= 0 {
		interval, longInterval = keplerInterval, legacyInterval
	}
	platform := platform{window: window}
	nodes := counters{kind: kepler{}, window: window, interval: interval}
	oldNodes := counters{kind: legacy{}, window: window, interval: longInterval}
	vms := pods{kind: keplerPods{}, window: window, interval: interval}
	oldVMs := pods{kind: legacyPods{}, window: window, interval: longInterval}
	series := v1alpha1.PrometheusSeries(config.Series)
	if query := strings.TrimSpace(config.Query); (series == v1alpha1.SeriesQuery) != (query != "") {
		return nil, nil, energy.Refuse(energy.ReasonQueryFailed, "query goes with series Query: set both, or neither")
	}
	switch series {
	case v1alpha1.SeriesAuto, "":
		return []family{platform, nodes, oldNodes}, []pods{vms, oldVMs}, nil
	case v1alpha1.SeriesPlatform:
		return []family{platform}, nil, nil
	case v1alpha1.SeriesKepler:
		return []family{nodes}, []pods{vms}, nil
	case v1alpha1.SeriesKeplerLegacy:
		return []family{oldNodes}, []pods{oldVMs}, nil
	case v1alpha1.SeriesQuery:
		return []family{own{query: config.Query}}, nil, nil
	}
	return nil, nil, energy.Refuse(energy.ReasonQueryFailed, "unknown series %q: set one of Auto, Kepler, KeplerLegacy, Platform and Query", config.Series)
}

// Read implements energy.Source. A node is answered by the first family that
// has anything of it, and be it unusable: figures of another scope, taken for
// the time of a hiccup, would be worse than none.
func (s *Source) Read(ctx context.Context, nodes []energy.Node) (energy.Answer, error) {
	s.last = Round{}
	known := newIndex(nodes)
	all := newFound()
	for _, family := range s.families {
		more, err := family.read(ctx, s.ask, known)
		if err != nil {
			return energy.Answer{}, err
		}
		all.add(more)
		if all.knows(nodes) {
			break
		}
	}
	s.last.Series, s.last.Unmatched = all.series, all.unmatched
	all.explain(nodes, s.last.Warnings)
	if len(s.pods) > 0 {
		all.VMs, all.VMsErr = s.readVMs(ctx, known)
	}
	return all.Answer, nil
}

// Last tells about the last Read.
func (s *Source) Last() Round {
	last := s.last
	last.Warnings = slices.Clone(last.Warnings)
	last.VMsLeftOut = maps.Clone(last.VMsLeftOut)
	return last
}

// Close ends connections that are kept for the next Read.
func (s *Source) Close() error {
	s.client.http.CloseIdleConnections()
	return nil
}

func (s *Source) ask(ctx context.Context, query string, at time.Time) (model.Value, error) {
	s.last.Queries++
	value, warnings, err := s.client.ask(ctx, query, at)
	s.last.Warnings = append(s.last.Warnings, warnings...)
	return value, err
}

// add takes over what a later family has of nodes that no earlier one has.
func (f *found) add(more found) {
	for node, reading := range more.Readings {
		if !f.has(node) {
			f.Readings[node] = reading
		}
	}
	for node, refusal := range more.Refused {
		if !f.has(node) {
			f.Refused[node] = refusal
		}
	}
	f.series += more.series
	f.unmatched += more.unmatched
	if f.stray == nil {
		f.stray = more.stray
	}
}

func (f *found) has(node string) bool {
	_, read := f.Readings[node]
	_, refused := f.Refused[node]
	return read || refused
}

func (f *found) knows(nodes []energy.Node) bool {
	return !slices.ContainsFunc(nodes, func(node energy.Node) bool { return !f.has(node.Name) })
}

// refuse makes a node's power unusable, whatever else is known of it.
func (f *found) refuse(node string, refusal *energy.Refusal) {
	delete(f.Readings, node)
	f.Refused[node] = refusal
}

// explain says of nodes that nothing was found of what may be the cause.
func (f *found) explain(nodes []energy.Node, warnings []string) {
	var hints []string
	if f.unmatched > 0 {
		hints = append(hints, fmt.Sprintf("%d series are of no node that was asked for, such as %s: its labels %s must be a node's name or address",
			f.unmatched, describe(f.stray), strings.Join(nodeLabels(), ", ")))
	}
	if len(warnings) > 0 {
		hints = append(hints, "the server warns: "+warnings[0])
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

// describe writes a series' labels, bounded.
func describe(metric model.Metric) string { return shorten(metric.String()) }

// differing returns what tells two series apart.
func differing(a, b model.Metric) (string, string) {
	names := map[model.LabelName]bool{}
	for name := range maps.Keys(a) {
		names[name] = true
	}
	for name := range maps.Keys(b) {
		names[name] = true
	}
	ofA, ofB := model.Metric{}, model.Metric{}
	for name := range names {
		if a[name] != b[name] {
			ofA[name], ofB[name] = a[name], b[name]
		}
	}
	return describe(ofA), describe(ofB)
}
