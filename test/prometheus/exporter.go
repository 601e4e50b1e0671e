package prometheus

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"
)

// Family is what a Meter shows itself as.
type Family string

// The families of series.
const (
	// Kepler is version 0.10 and newer.
	Kepler Family = "Kepler"
	// KeplerLegacy is version 0.9 and older.
	KeplerLegacy Family = "KeplerLegacy"
	// Platform is kepler_platform_watts, of Kepler 0.11 and newer.
	Platform Family = "Platform"
)

// Meter is one counter, or one gauge, of a node.
type Meter struct {
	Family Family
	// Zone is psys, package, core or dram of Kepler; platform, package, core or
	// dram of KeplerLegacy; PowerSupply or PowerControl of Platform.
	Zone string
	// Unit tells meters of a zone apart: a path, the number of a socket, or the
	// name of a power supply.
	Unit string
	// Watts that the meter measures.
	Watts float64
	// Joules that its counter begins with.
	Joules float64
	// Source is what KeplerLegacy says the figure is from. Empty: rapl-sysfs,
	// or acpi for the platform.
	Source string
	// Pod whose share of the node's meter it is. Zero: it is the node's.
	Pod Pod
}

// Pod is a pod on a node. Kepler shows a meter of it for each zone, and
// KeplerLegacy for each container and zone, where zone "" adds up all others.
type Pod struct {
	UID, Namespace, Name string
	// Container of KeplerLegacy.
	Container string
	// Terminated pods are shown by Kepler for a while.
	Terminated bool
}

// same tells whether it is one pod, whatever became of it.
func (p Pod) same(other Pod) bool {
	p.Terminated, other.Terminated = false, false
	return p == other
}

// Fault is what is wrong with a node's page.
type Fault string

// Faults of a page.
const (
	// Working is no fault.
	Working Fault = ""
	// Frozen meters say the same for ever.
	Frozen Fault = "Frozen"
	// NotANumber meters say NaN.
	NotANumber Fault = "NotANumber"
	// OtherType shows each meter as a histogram of the same name.
	OtherType Fault = "OtherType"
	// Garbled pages are none that a server can read.
	Garbled Fault = "Garbled"
	// Gone pages are not found.
	Gone Fault = "Gone"
	// Slow pages do not end before the server gives up.
	Slow Fault = "Slow"
)

// nodesPath starts the paths of nodes' own pages.
const (
	nodesPath    = "/nodes/"
	recordedPath = "/recorded"
)

// Exporter is a stand-in for Kepler on any number of nodes. Its methods are for
// concurrent use.
type Exporter struct {
	server  *httptest.Server
	closing chan struct{}
	started time.Time

	mu    sync.Mutex
	nodes map[string]*node
}

// node is what is shown of one node.
type node struct {
	fault  Fault
	meters []*counter
}

// counter is a meter that counts.
type counter struct {
	Meter
	// joules that were counted until since.
	joules float64
	since  time.Time
}

// NewExporter starts an exporter at a free port of the loopback address. Call
// Close to end it.
func NewExporter() *Exporter {
	e := &Exporter{closing: make(chan struct{}), started: time.Now(), nodes: map[string]*node{}}
	mux := http.NewServeMux()
	mux.HandleFunc(recordedPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(recorded(time.Since(e.started))) })
	mux.HandleFunc(nodesPath+"{name}", e.serveNode)
	e.server = httptest.NewServer(mux)
	return e
}

// Close ends the exporter: whoever scrapes it is refused.
func (e *Exporter) Close() {
	close(e.closing)
	e.server.Close()
}

// Target is the page of one node, scraped by a job.
func (e *Exporter) Target(job, node string) Target {
	return Target{Job: job, Address: e.address(), Path: nodesPath + node}
}

// Recorded is a page that was recorded from Kepler 0.11 with its fake meter, of
// the node RecordedNode. Its energy counters go on at the watts that it says.
func (e *Exporter) Recorded(job string) Target {
	return Target{Job: job, Address: e.address(), Path: recordedPath}
}

func (e *Exporter) address() string {
	// Listener's address is one of TCP, as httptest makes it.
	return e.server.Listener.Addr().(*net.TCPAddr).String()
}

// Set gives a node its meters. Those that it has already, by family, zone, unit
// and pod, count on from where they are.
func (e *Exporter) Set(name string, meters ...Meter) {
	e.change(name, func(n *node, now time.Time) {
		before := n.meters
		n.meters = nil
		for _, meter := range meters {
			c := &counter{Meter: meter, joules: meter.Joules, since: now}
			same := slices.IndexFunc(before, func(old *counter) bool {
				return old.Family == meter.Family && old.Zone == meter.Zone && old.Unit == meter.Unit && old.Pod.same(meter.Pod)
			})
			if same >= 0 {
				c.joules = before[same].joules
			}
			n.meters = append(n.meters, c)
		}
	})
}

// Fail gives a node's page a fault, or Working. Meters that were frozen count
// on from there.
func (e *Exporter) Fail(name string, fault Fault) {
	e.change(name, func(n *node, _ time.Time) { n.fault = fault })
}

// Reset starts all counters of a node anew, as an exporter's restart does.
func (e *Exporter) Reset(name string) {
	e.change(name, func(n *node, _ time.Time) {
		for _, c := range n.meters {
			c.joules = 0
		}
	})
}

// Jump adds joules to all counters of a node: they may be negative.
func (e *Exporter) Jump(name string, joules float64) {
	e.change(name, func(n *node, _ time.Time) {
		for _, c := range n.meters {
			c.joules += joules
		}
	})
}

// change lets all counters of a node count until now, then changes it.
func (e *Exporter) change(name string, do func(n *node, now time.Time)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.nodes[name]
	if n == nil {
		n = &node{}
		e.nodes[name] = n
	}
	now := time.Now()
	for _, c := range n.meters {
		if n.fault != Frozen {
			c.joules = c.at(now)
		}
		c.since = now
	}
	do(n, now)
}

func (c *counter) at(now time.Time) float64 { return c.joules + c.Watts*now.Sub(c.since).Seconds() }

func (e *Exporter) serveNode(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	e.mu.Lock()
	fault := Gone
	if n := e.nodes[name]; n != nil {
		fault = n.fault
	}
	e.mu.Unlock()
	switch fault {
	case Gone:
		http.NotFound(w, r)
	case Slow:
		select {
		case <-r.Context().Done():
		case <-e.closing:
		}
	case Garbled:
		_, _ = w.Write([]byte("<html>no metrics here</html>\n"))
	default:
		_, _ = w.Write(e.page(name))
	}
}

// page writes the meters of nodes in the text format, family by family: a name
// may come once only.
func (e *Exporter) page(names ...string) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	lines := map[string][]string{}
	types := map[string]string{}
	for _, name := range names {
		n := e.nodes[name]
		if n == nil {
			continue
		}
		for _, c := range n.meters {
			kind, samples := c.show(name, n.fault, now)
			for _, sample := range samples {
				family, _, _ := strings.Cut(sample, "{")
				types[family] = kind
				lines[family] = append(lines[family], sample)
			}
		}
	}
	return format(types, lines)
}

func format(types map[string]string, lines map[string][]string) []byte {
	var page strings.Builder
	var names []string
	for name := range types {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&page, "# TYPE %s %s\n", name, types[name])
		for _, line := range lines[name] {
			suffix := ""
			if types[name] == "histogram" {
				suffix = "_sum"
			}
			page.WriteString(strings.Replace(line, "{", suffix+"{", 1) + "\n")
		}
	}
	return []byte(page.String())
}
