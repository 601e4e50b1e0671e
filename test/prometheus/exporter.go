package prometheus

import (
	"crypto/tls"
	_ "embed"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Family is a family of series.
type Family string

// The families.
const (
	// Kepler is that of version 0.10 and newer.
	Kepler Family = "Kepler"
	// Platform is kepler_platform_watts, of Kepler 0.11 and newer.
	Platform Family = "Platform"
)

// Meter is one counter (Kepler), or one gauge (Platform), of a node.
type Meter struct {
	Family Family
	// Zone is psys, package, core or dram of Kepler; PowerSupply or PowerControl of Platform.
	Zone string
	// Unit distinguishes meters of a zone: a path, or the name of a power supply.
	Unit string
	// Watts that the meter measures.
	Watts float64
}

// WritingVM is a VM with the rate at which it writes memory, as KubeVirt's virt-handler serves it.
type WritingVM struct {
	Namespace, Name string
	BytesPerSecond  float64
}

// Fault is what is wrong with a node's page.
type Fault string

// Faults of a page.
const (
	// Working is no fault.
	Working Fault = ""
	// Frozen meters do not change.
	Frozen Fault = "Frozen"
	// Gone pages are not found.
	Gone Fault = "Gone"
)

const (
	// RecordedNode is the node of the recorded page.
	RecordedNode = "node-a"
	// firstJoules of each counter.
	firstJoules = 1000
)

// keplerV011 was recorded, see testdata/README.md.
//
//go:embed testdata/kepler-v0.11-fake-meter.prom
var keplerV011 []byte

// Exporter is a stand-in for Kepler on any number of nodes. It is safe for concurrent use.
type Exporter struct {
	server  *httptest.Server
	started time.Time

	mu    sync.Mutex
	nodes map[string]*node
}

// node is what is exported for one node.
type node struct {
	fault  Fault
	meters []*counter
	vms    []WritingVM
}

// counter is a meter with the joules that it counted until a time.
type counter struct {
	Meter
	joules float64
	until  time.Time
}

// NewExporter starts an exporter on the loopback address. Call Close to end it.
func NewExporter() *Exporter {
	e := &Exporter{started: time.Now(), nodes: map[string]*node{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/recorded", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(recorded(time.Since(e.started))) })
	mux.HandleFunc("/nodes/{name}", e.serveNode)
	e.server = httptest.NewServer(mux)
	return e
}

// Close ends the exporter.
func (e *Exporter) Close() { e.server.Close() }

// Target is the page of one node, scraped by a job.
func (e *Exporter) Target(job, node string) Target {
	return Target{Job: job, Address: e.server.Listener.Addr().String(), Path: "/nodes/" + node}
}

// Recorded is a page that was recorded from Kepler 0.11 with its fake meter, for RecordedNode.
// Its energy counters count at the watts of the page.
func (e *Exporter) Recorded(job string) Target {
	return Target{Job: job, Address: e.server.Listener.Addr().String(), Path: "/recorded"}
}

// Set gives a node new meters. Those that it has already, by family, zone and unit, count on.
func (e *Exporter) Set(name string, meters ...Meter) {
	e.change(name, func(n *node) {
		before := n.meters
		n.meters = nil
		for _, meter := range meters {
			c := &counter{Meter: meter, joules: firstJoules, until: time.Now()}
			for _, old := range before {
				if old.Family == meter.Family && old.Zone == meter.Zone && old.Unit == meter.Unit {
					c.joules = old.joules
				}
			}
			n.meters = append(n.meters, c)
		}
	})
}

// SetVMs gives a node other VMs.
func (e *Exporter) SetVMs(name string, vms ...WritingVM) {
	e.change(name, func(n *node) { n.vms = vms })
}

// Fail gives a node's page a fault, or Working. Meters that were frozen count on from there.
func (e *Exporter) Fail(name string, fault Fault) {
	e.change(name, func(n *node) { n.fault = fault })
}

// Reset sets all counters of a node to 0, as a restart of an exporter does.
func (e *Exporter) Reset(name string) {
	e.change(name, func(n *node) {
		for _, c := range n.meters {
			c.joules = 0
		}
	})
}

// change lets all counters of a node count until now, then changes it.
func (e *Exporter) change(name string, do func(n *node)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.nodes[name]
	if n == nil {
		n = &node{}
		e.nodes[name] = n
	}
	n.count()
	do(n)
}

func (n *node) count() {
	now := time.Now()
	for _, c := range n.meters {
		if n.fault != Frozen {
			c.joules += c.Watts * now.Sub(c.until).Seconds()
		}
		c.until = now
	}
}

// serveNode writes the meters of a node in the text format.
func (e *Exporter) serveNode(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := r.PathValue("name")
	n := e.nodes[name]
	if n == nil || n.fault == Gone {
		http.NotFound(w, r)
		return
	}
	n.count()
	for _, family := range []Family{Kepler, Platform} {
		of := slices.DeleteFunc(slices.Clone(n.meters), func(c *counter) bool { return c.Family != family })
		if len(of) > 0 {
			fmt.Fprintf(w, "# TYPE %s\n", map[Family]string{Kepler: "kepler_node_cpu_joules_total counter", Platform: "kepler_platform_watts gauge"}[family])
		}
		for _, c := range of {
			if family == Kepler {
				fmt.Fprintf(w, "kepler_node_cpu_joules_total{node_name=%q,path=%q,zone=%q} %v\n", name, c.Unit, c.Zone, c.joules)
			} else {
				fmt.Fprintf(w, "kepler_platform_watts{chassis_id=\"System.Embedded.1\",node_name=%q,source=\"redfish\",source_id=%q,source_name=%q,source_type=%q} %v\n",
					name, c.Unit, c.Unit, c.Zone, c.Watts)
			}
		}
	}
	for _, vm := range n.vms {
		fmt.Fprintf(w, "kubevirt_vmi_dirty_rate_bytes_per_second{name=%q,namespace=%q,node=%q} %v\n", vm.Name, vm.Namespace, name, vm.BytesPerSecond)
	}
}

// recorded is the recorded page after some time.
func recorded(elapsed time.Duration) []byte {
	watts := map[string]float64{}
	for _, line := range regexp.MustCompile(`(?m)^kepler_node_cpu_watts(\{.*\}) (\S+)$`).FindAllSubmatch(keplerV011, -1) {
		watts[string(line[1])], _ = strconv.ParseFloat(string(line[2]), 64)
	}
	counter := regexp.MustCompile(`(?m)^kepler_node_cpu_joules_total(\{.*\}) (\S+)$`)
	return counter.ReplaceAllFunc(keplerV011, func(line []byte) []byte {
		parts := counter.FindSubmatch(line)
		joules, _ := strconv.ParseFloat(string(parts[2]), 64)
		return fmt.Appendf(nil, "kepler_node_cpu_joules_total%s %g", parts[1], joules+watts[string(parts[1])]*elapsed.Seconds())
	})
}

// Proxy serves a Server with TLS and requires a bearer token, as kube-rbac-proxy does.
type Proxy struct {
	// URL of the proxy.
	URL string
	// CA is the authority of its certificate, PEM.
	CA []byte

	server *httptest.Server

	mu     sync.Mutex
	tokens map[string]bool
}

// NewProxy starts a proxy at an address of this machine. Call Close to end it.
func NewProxy(to *Server, host netip.Addr) (*Proxy, error) {
	address, err := url.Parse(to.URL)
	if err != nil {
		return nil, fmt.Errorf("URL of the Prometheus server: %w", err)
	}
	p := &Proxy{tokens: map[string]bool{}}
	next := httputil.NewSingleHostReverseProxy(address)
	cert, key, err := Certificate(host)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the proxy: %w", err)
	}
	p.CA = cert
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.admits(r) {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	}))
	_ = p.server.Listener.Close() // of the loopback address
	if p.server.Listener, err = net.Listen("tcp", netip.AddrPortFrom(host, 0).String()); err != nil {
		return nil, fmt.Errorf("listen for the proxy: %w", err)
	}
	p.server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	p.server.StartTLS()
	p.URL = p.server.URL
	return p, nil
}

// Close ends the proxy.
func (p *Proxy) Close() { p.server.Close() }

// Admit accepts requests with a token.
func (p *Proxy) Admit(token string) { p.set(token, true) }

// Expire refuses requests with a token like those without one.
func (p *Proxy) Expire(token string) { p.set(token, false) }

func (p *Proxy) set(token string, admitted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens[token] = admitted
}

func (p *Proxy) admits(r *http.Request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
}
