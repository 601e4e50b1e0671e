package energy

import (
	"context"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// MeterOptions of a Meter. All are required.
type MeterOptions struct {
	// Targets lists the servers that policies name now, each once, with the nodes
	// that these policies govern.
	Targets func(context.Context) ([]Target, error)
	// Secrets gives the servers' credentials.
	Secrets Secrets
	// NewSource makes a source for a server.
	NewSource func(Server, Credentials) (Source, error)
	// Answered is called when a server answered, or failed. It may block until the
	// context ends.
	Answered func(ctx context.Context, server Server, err error, took time.Duration)
	// Interval between two questions to a server.
	Interval time.Duration
	Clock    clock.WithTicker
	Log      logr.Logger
}

// Meter asks all Prometheus servers that policies name for the power of their
// nodes, again and again, and keeps the last good reading of each node. It is a
// Runnable of the controller runtime.
//
// Servers know nothing of each other: one that is slow or dead delays no other,
// and is not asked again before it answered or its timeout went by.
type Meter struct {
	MeterOptions
	wake   chan struct{}
	asking sync.WaitGroup

	mu      sync.RWMutex
	servers map[Server]*asked
}

// asked is what is known by one server. Meter.mu guards busy, answered and nodes;
// the rest is of the one goroutine that asks.
type asked struct {
	// busy is true while the server is asked.
	busy bool
	// answered is nil until the server was asked, then whether it answered last.
	answered *bool
	nodes    map[string]*metered

	source      Source
	credentials Credentials
	// failing is true when the last question failed and that was logged.
	failing bool
}

// metered is what a server said of one node.
type metered struct {
	guard Guard
	Candidate
}

// NewMeter returns a Meter; nothing is asked before Start.
func NewMeter(options MeterOptions) *Meter {
	return &Meter{MeterOptions: options, wake: make(chan struct{}, 1), servers: map[Server]*asked{}}
}

// Wake asks the servers that were never asked at once, such as that of a new
// policy. It never blocks.
func (m *Meter) Wake() {
	select {
	case m.wake <- struct{}{}:
	default: // A wake-up is pending already.
	}
}

// NeedLeaderElection makes only the leader ask: nobody else plans.
func (m *Meter) NeedLeaderElection() bool { return true }

// Candidate returns what a server is known to have said of a node.
func (m *Meter) Candidate(server Server, node string) Candidate {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if known := m.servers[server]; known != nil && known.nodes[node] != nil {
		return known.nodes[node].Candidate
	}
	return Candidate{}
}

// Answers tells of each server that was asked whether it answered the last time.
func (m *Meter) Answers() map[Server]bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make(map[Server]bool, len(m.servers))
	for server, known := range m.servers {
		if known.answered != nil {
			out[server] = *known.answered
		}
	}
	return out
}

// Start asks until the context ends, and returns when nobody asks any longer.
func (m *Meter) Start(ctx context.Context) error {
	defer m.asking.Wait()
	ticker := m.Clock.NewTicker(m.Interval)
	defer ticker.Stop()
	for onlyNew := false; ; {
		m.round(ctx, onlyNew)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			onlyNew = false
		case <-m.wake:
			onlyNew = true
		}
	}
}

// round starts to ask the servers and does not wait for them.
func (m *Meter) round(ctx context.Context, onlyNew bool) {
	targets, err := m.Targets(ctx)
	if err != nil {
		if ctx.Err() == nil {
			m.Log.Error(err, "no Prometheus server was asked in this round")
		}
		return
	}
	m.forgetOthers(targets)
	for _, target := range targets {
		if known := m.claim(target, onlyNew); known != nil {
			m.asking.Go(func() { m.ask(ctx, target, known) })
		}
	}
}

// claim marks a server as being asked. It returns nil when that is not due.
func (m *Meter) claim(target Target, onlyNew bool) *asked {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.servers[target.Server]
	if known != nil && (known.busy || onlyNew) {
		return nil
	}
	if known == nil {
		known = &asked{nodes: map[string]*metered{}}
		m.servers[target.Server] = known
	}
	for _, node := range target.Nodes {
		if known.nodes[node.Name] == nil {
			known.nodes[node.Name] = &metered{Candidate: Candidate{Since: m.Clock.Now()}}
		}
	}
	known.busy = true
	return known
}

// forgetOthers drops what no policy asks for any longer. An answer that is still
// on its way is lost with its server.
func (m *Meter) forgetOthers(targets []Target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wanted := make(map[Server]map[string]bool, len(targets))
	for _, target := range targets {
		names := make(map[string]bool, len(target.Nodes))
		for _, node := range target.Nodes {
			names[node.Name] = true
		}
		wanted[target.Server] = names
	}
	for server, known := range m.servers {
		names, found := wanted[server]
		if !found {
			delete(m.servers, server)
			if !known.busy { // else it is closed by who asks it
				closeSource(known.source)
			}
			continue
		}
		maps.DeleteFunc(known.nodes, func(node string, _ *metered) bool { return !names[node] })
	}
}

// ask asks one server once.
func (m *Meter) ask(ctx context.Context, target Target, known *asked) {
	start := m.Clock.Now()
	limited, cancel := context.WithTimeout(ctx, target.Server.Timeout)
	defer cancel()
	answer, err := m.read(limited, target, known)
	if ctx.Err() != nil {
		return // the manager ends: what was not answered says nothing of the server
	}
	if err != nil && limited.Err() != nil && RefusalIn(err) == nil {
		err = Refuse(ReasonUnreachable, "%s did not answer within %v: check that it runs and is not overloaded", target.Server, target.Server.Timeout)
	}
	took := m.Clock.Since(start)
	m.logChange(target.Server, known, err)
	if !m.keep(target, known, answer, err) {
		closeSource(known.source)
		return
	}
	m.Answered(ctx, target.Server, err, took)
}

// read makes the source anew when its credentials changed, and asks it.
func (m *Meter) read(ctx context.Context, target Target, known *asked) (Answer, error) {
	if err := m.refresh(ctx, target.Server, known); err != nil {
		return Answer{}, err
	}
	return known.source.Read(ctx, target.Nodes)
}

// refresh reads the credentials each time: tokens expire and are replaced. While
// the API server cannot be asked, those of the last time serve; what it says is
// gone, or not to be read, is no longer used.
func (m *Meter) refresh(ctx context.Context, server Server, known *asked) error {
	now, err := ReadCredentials(ctx, m.Secrets, server)
	switch {
	case err != nil && RefusalIn(err) == nil && known.source != nil:
		return nil
	case err != nil:
		return unread(server, err)
	}
	if known.source != nil && known.credentials.Equal(now) {
		return nil
	}
	source, err := m.NewSource(server, now)
	if err != nil {
		return err
	}
	closeSource(known.source)
	known.source, known.credentials = source, now
	return nil
}

// keep takes an answer in. It returns false when the server was forgotten
// meanwhile.
func (m *Meter) keep(target Target, known *asked, answer Answer, err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known.busy = false
	answered := err == nil
	known.answered = &answered
	if m.servers[target.Server] != known {
		return false
	}
	failed := refusalOf(err)
	for _, node := range target.Nodes {
		at := known.nodes[node.Name]
		if at == nil {
			continue // forgotten meanwhile
		}
		reading, found := answer.Readings[node.Name]
		switch {
		case failed != nil:
			at.Refused = failed
		case found:
			at.take(reading, m.Clock.Now())
		case answer.Refused[node.Name] != nil:
			at.Refused = answer.Refused[node.Name]
		default:
			at.Refused = Refuse(ReasonNoSeries, "%s has no series of the node: look whether the exporter runs there and is scraped", target.Server)
		}
	}
	return true
}

// maxAhead is how far the clock of a server may be ahead of the manager's. A
// reading from the future would stay fresh until then, whatever the meter does.
const maxAhead = time.Minute

// take judges a reading. One that is refused leaves the last good one, which
// ages.
func (n *metered) take(reading model.Power, now time.Time) {
	if reading.Time.Sub(now) > maxAhead {
		n.Refused = Refuse(ReasonImplausible, "the reading is of %s, which is in the future: set the clocks of the server and its targets",
			reading.Time.UTC().Format(time.RFC3339))
		return
	}
	reading.Source = v1alpha1.PowerPrometheus
	if n.Refused = n.guard.Check(reading); n.Refused == nil {
		n.Reading = &reading
	}
}

func (m *Meter) logChange(server Server, known *asked, err error) {
	switch {
	case err != nil && !known.failing:
		m.Log.Error(err, "power not read: will retry each round", "server", server.String())
	case err == nil && known.failing:
		m.Log.Info("power is read again", "server", server.String())
	}
	known.failing = err != nil
}

// refusalOf returns the refusal in an error's chain, and otherwise one that says
// what the error does. Nil stays nil.
func refusalOf(err error) *Refusal {
	if refusal := RefusalIn(err); refusal != nil || err == nil {
		return refusal
	}
	return Refuse(ReasonUnreachable, "%v", err)
}

// closeSource gives back the connections of sources that have a Close.
func closeSource(source Source) {
	if closer, ok := source.(io.Closer); ok {
		_ = closer.Close() // nothing is written: an error loses nothing
	}
}
