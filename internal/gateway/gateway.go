package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/procfs"

	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/internal/planner/offload"
	"github.com/joulevirt/joulevirt/internal/serve"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// nginxProgram is Debian's.
	nginxProgram = "/usr/sbin/nginx"
	// cacheManager is what nginx calls its process that evicts.
	cacheManager = "nginx: cache manager process"
	// asleep is the state of a process that waits, in proc_pid_stat(5).
	asleep = "S"
	// evictStep is how often it is looked whether nginx has made room.
	evictStep = 5 * time.Millisecond
	// mostWorkers of nginx: one fills a fast network.
	mostWorkers = 4
)

// gateway is a running one.
type gateway struct {
	Config
	log     *slog.Logger
	nginx   *exec.Cmd
	answers answers
	status  *http.Client
	// control decides on the size of the store. Nil: the VM has a share, whose size is fixed.
	control *offload.Controller
	// timings are those of the way to the VM.
	timings *timings
	// certificate is nil where clients and the VM speak plain HTTP.
	certificate *certificate
	// inService is how many requests nginx answered at the last decision.
	inService int

	mu sync.Mutex
	// decided is the last decision.
	decided offload.Decision
}

// Run runs nginx until the context ends, and then lets it end its requests. It
// returns an error when nginx ends by itself. Each tick is a time to decide on the
// store's size, offload.Tick after the one before.
func Run(ctx context.Context, c Config, ticks <-chan time.Time, log *slog.Logger) error {
	g := &gateway{Config: c, log: log, status: socketClient(c.statusSocket())}
	if c.Share == "" {
		g.control = offload.New(c.settings())
		g.decided = offload.Decision{Memory: units.Bytes(c.MemoryMin), Reason: offload.NoRequests}
	}
	if err := errors.Join(g.prepare(), g.prepareTLS(ctx)); err != nil {
		return err
	}
	probes, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.ProbeListen)
	if err != nil {
		return fmt.Errorf("--probe-listen: %w", err)
	}
	inner := g.inner()
	server, served := serve.NewServer(g.handler(), logr.FromSlogHandler(log.Handler())), make(chan error, 1+len(inner))
	servers := []*http.Server{server}
	go func() { served <- server.Serve(probes) }()
	for socket, handler := range inner {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
		if err != nil {
			return errors.Join(fmt.Errorf("listen at %s: %w", socket, err), closeAll(servers))
		}
		server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
		servers = append(servers, server)
		go func() { served <- server.Serve(listener) }()
	}
	ended, err := g.start(ctx)
	if err == nil {
		err = g.loop(ctx, ticks, ended, served)
	}
	return errors.Join(err, closeAll(servers))
}

// inner are the handlers at sockets: of nginx's requests to the VM, and of questions for files of a share.
func (g *gateway) inner() map[string]http.Handler {
	if g.Share != "" {
		share := newShare(g.IdleEviction)
		g.timings = &share.timings
		return map[string]http.Handler{g.vmSocket(): share.proxy(g.upstream(), g.log), g.askedSocket(): share}
	}
	admission := newAdmission(g.Config, g.evict)
	g.timings = &admission.timings
	return map[string]http.Handler{g.vmSocket(): admission.proxy(g.upstream(), g.log)}
}

func closeAll(servers []*http.Server) error {
	var failed []error
	for _, server := range servers {
		failed = append(failed, server.Close())
	}
	return errors.Join(failed...)
}

// loop returns when nginx has ended.
func (g *gateway) loop(ctx context.Context, ticks <-chan time.Time, ended, served <-chan error) error {
	for {
		var err error
		select {
		case <-ctx.Done():
			_ = g.nginx.Process.Signal(syscall.SIGQUIT) // it may be gone
			for range ended {
			}
			return nil
		case err = <-ended:
			return fmt.Errorf("nginx ended by itself: %w: its log says why", err)
		case err = <-served:
			err = fmt.Errorf("serve nginx and probes: %w", err)
		case <-ticks:
			err = errors.Join(g.renew(ctx), g.decide(ctx))
		}
		if err != nil {
			_ = g.nginx.Process.Kill()
			for range ended {
			}
			return err
		}
	}
}

// prepare empties the store of what an earlier process left.
func (g *gateway) prepare() error {
	for _, dir := range []string{g.runDir(), g.cacheDir()} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("empty --store: %w", err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("prepare --store: %w", err)
		}
	}
	return g.writeConf()
}

func (g *gateway) confFile() string { return filepath.Join(g.runDir(), "nginx.conf") }

// writeConf writes nginx's configuration for the store's size.
func (g *gateway) writeConf() error {
	text, err := g.nginxConf(g.decision().Memory, min(runtime.GOMAXPROCS(0), mostWorkers))
	if err == nil {
		err = os.WriteFile(g.confFile(), []byte(text), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write nginx's configuration: %w", err)
	}
	return nil
}

// start starts nginx in a process group of its own, all of which ends with its master.
func (g *gateway) start(ctx context.Context) (ended <-chan error, err error) {
	g.nginx = exec.CommandContext(context.WithoutCancel(ctx), nginxProgram, "-e", "stderr", "-c", g.confFile())
	g.nginx.Stderr = os.Stderr
	g.nginx.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	accessLog, err := g.nginx.StdoutPipe()
	if err == nil {
		err = g.nginx.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start nginx: %w", err)
	}
	go func() { _ = g.answers.read(accessLog) }() // Wait closes it
	done := make(chan error, 1)
	go func() {
		done <- g.nginx.Wait()
		_ = syscall.Kill(-g.nginx.Process.Pid, syscall.SIGKILL) // workers of a master that was killed
		close(done)
	}()
	return done, nil
}

// evict has nginx make room now, and returns when it has. Its cache manager looks at the size of the store
// each 10 s only, but at its start too, and nginx starts another one when it ends.
func (g *gateway) evict(ctx context.Context) {
	before := g.cacheManagers()
	for pid := range before {
		_ = syscall.Kill(pid, syscall.SIGTERM) // it may be gone
	}
	for ctx.Err() == nil {
		for pid, state := range g.cacheManagers() {
			if _, old := before[pid]; !old && state == asleep {
				return // it has looked
			}
		}
		wait(ctx, nil, evictStep)
	}
	g.log.Warn("nginx makes room late")
}

// cacheManagers returns the states of nginx's cache managers by their process ids. There are two while it
// takes a new configuration.
func (g *gateway) cacheManagers() map[int]string {
	processes, _ := procfs.AllProcs()
	found := map[int]string{}
	for _, p := range processes {
		stat, err := p.Stat()
		if err != nil || stat.PPID != g.nginx.Process.Pid {
			continue
		}
		if line, err := p.CmdLine(); err == nil && slices.Contains(line, cacheManager) {
			found[p.PID] = stat.State
		}
	}
	return found
}

// decide decides on the store's size by what was observed, and has nginx use it.
func (g *gateway) decide(ctx context.Context) error {
	if g.control == nil {
		return nil
	}
	now, err := inService(ctx, g.status)
	if err != nil {
		// What is observed is left for the next tick. Probes ask nginx too.
		g.log.Warn("the size of the store stays", "error", err)
		return nil
	}
	used, err := storeUse(g.Store)
	if err != nil {
		return err
	}
	before := g.decision()
	observed := g.answers.take(offload.Tick, now-g.inService, used/answersPart)
	decided := g.control.Decide(observed)
	g.inService = now
	g.mu.Lock()
	g.decided = decided
	g.mu.Unlock()
	if decided.Reason != before.Reason || decided.Memory != before.Memory {
		g.log.Info("decided on the store", "reason", decided.Reason, "memory", int64(decided.Memory), "hits", observed.Hits, "misses", observed.Misses)
	}
	if decided.Memory == before.Memory {
		return nil
	}
	if err := g.writeConf(); err != nil {
		return err
	}
	return g.reload()
}

// reload has nginx take up its configuration and certificate. Downloads go on.
func (g *gateway) reload() error { return g.nginx.Process.Signal(syscall.SIGHUP) }

func (g *gateway) decision() offload.Decision {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.decided
}

// handler answers probes and Prometheus.
func (g *gateway) handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{g})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if _, err := inService(r.Context(), g.status); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	return mux
}

// collector shows a gateway's metrics.
type collector struct{ *gateway }

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range metrics.Gateway() {
		out <- metrics.Gateway().Desc(m.Name, nil)
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	table := metrics.Gateway()
	send := func(name string, kind prometheus.ValueType, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(table.Desc(name, nil), kind, value, labels...)
	}
	all, decided := c.answers.totals(), c.decision()
	send("joulevirt_gateway_requests_total", prometheus.CounterValue, all.hits, "hit")
	send("joulevirt_gateway_requests_total", prometheus.CounterValue, all.misses, "miss")
	send("joulevirt_gateway_response_seconds_total", prometheus.CounterValue, all.hitSeconds, "hit")
	send("joulevirt_gateway_response_seconds_total", prometheus.CounterValue, all.missSeconds, "miss")
	send("joulevirt_gateway_sent_bytes_total", prometheus.CounterValue, all.sentFromStore, "hit")
	send("joulevirt_gateway_sent_bytes_total", prometheus.CounterValue, all.sentByVM, "miss")
	answered, firstByte, delay := c.timings.sums()
	send("joulevirt_gateway_errors_total", prometheus.CounterValue, all.errors)
	send("joulevirt_gateway_vm_bytes_total", prometheus.CounterValue, float64(c.timings.received.Load()))
	send("joulevirt_gateway_vm_answers_total", prometheus.CounterValue, answered)
	send("joulevirt_gateway_vm_first_byte_seconds_total", prometheus.CounterValue, firstByte.Seconds())
	send("joulevirt_gateway_delay_seconds_total", prometheus.CounterValue, delay.Seconds())
	used, size, err := fileSystem(cmp.Or(c.Share, c.Store))
	if c.control != nil {
		size = decided.Memory
		send("joulevirt_gateway_store_decision", prometheus.GaugeValue, 1, string(decided.Reason))
	}
	if err == nil {
		send("joulevirt_gateway_store_limit_bytes", prometheus.GaugeValue, float64(size))
		send("joulevirt_gateway_store_used_bytes", prometheus.GaugeValue, float64(used))
	}
}
