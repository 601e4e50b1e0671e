package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/api"
	promapi "github.com/prometheus/client_golang/api/prometheus/v1"
	"sigs.k8s.io/yaml"

	"github.com/joulevirt/joulevirt/test/internal/fetch"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

const (
	// scrapeInterval is the server's shortest.
	scrapeInterval = time.Second
	// endTimeout is how long a server may take to end by itself.
	endTimeout = time.Minute
	// program is the name of the process and its log.
	program = "prometheus"
)

// Options of a Server.
type Options struct {
	// Program is the path of the server, see Program.
	Program string
	// Dir is an empty folder for data, settings and log.
	Dir string
	// TLS, when set, is how the server serves.
	TLS *TLS
	// Rules that are evaluated as often as targets are scraped, or nil.
	Rules *Rules
}

// TLS names the files, PEM, that a Server serves with.
type TLS struct {
	CertFile, KeyFile string
	// ClientCAFile, if set, is the authority of required client certificates.
	ClientCAFile string
}

// Server is a running Prometheus server. Its methods are not for concurrent
// use, but for Scrape and Drop.
type Server struct {
	// URL of the server. It stays over restarts.
	URL string

	options Options
	address string
	// group has one process.
	group   *proc.Group
	process *proc.Process

	mu      sync.Mutex
	targets []Target
}

// Start starts a server that scrapes nothing, and waits until it is ready. It
// never outlives this process. Call Stop to end it.
func Start(ctx context.Context, options Options) (*Server, error) {
	s := &Server{options: options, address: "127.0.0.1:0"}
	if err := s.configure(); err != nil {
		return nil, fmt.Errorf("write the Prometheus server's settings: %w", err)
	}
	if err := s.launch(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Restart ends the server and starts it at the same address, with the data it
// has, or none.
func (s *Server) Restart(ctx context.Context, keepData bool) error {
	if err := s.Stop(); err != nil {
		return err
	}
	if !keepData {
		if err := os.RemoveAll(s.path("data")); err != nil {
			return fmt.Errorf("remove the server's data: %w", err)
		}
	}
	return s.launch(ctx)
}

// Stop ends the server with SIGTERM, and kills it if it does not end.
func (s *Server) Stop() error {
	defer s.group.Stop()
	if err := s.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-s.process.Done():
		return nil
	case <-time.After(endTimeout):
		return fmt.Errorf("the Prometheus server did not end within %s and was killed", endTimeout)
	}
}

// Pause has the server answer nothing until it is resumed. Connections are accepted.
func (s *Server) Pause() error { return s.process.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() error { return s.process.Signal(syscall.SIGCONT) }

// API returns a client of a server without TLS.
func (s *Server) API() (promapi.API, error) {
	client, err := api.NewClient(api.Config{Address: s.URL})
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", s.URL, err)
	}
	return promapi.NewAPI(client), nil
}

func (s *Server) path(name string) string { return filepath.Join(s.options.Dir, name) }

// configure writes the settings. Targets come from files, which the server
// watches: so they change while it runs.
func (s *Server) configure() error {
	type object = map[string]any
	jobs := []object{}
	for _, honor := range []bool{false, true} {
		jobs = append(jobs, object{
			"job_name":     targetsFile(honor),
			"honor_labels": honor,
			// Read each second too: a change between the server's first read and the
			// start of its watch is lost.
			"file_sd_configs": []object{{"files": []string{s.path(targetsFile(honor))}, "refresh_interval": "1s"}},
		})
	}
	interval := scrapeInterval.String()
	settings := object{
		"global":         object{"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
		"scrape_configs": jobs,
	}
	if s.options.Rules != nil {
		rules, err := s.options.Rules.Native()
		if err != nil {
			return err
		}
		if err := os.WriteFile(s.path("rules.yml"), rules, 0o600); err != nil {
			return err
		}
		settings["rule_files"] = []string{s.path("rules.yml")}
	}
	web := object{}
	if t := s.options.TLS; t != nil {
		server := object{"cert_file": t.CertFile, "key_file": t.KeyFile}
		if t.ClientCAFile != "" {
			server["client_ca_file"] = t.ClientCAFile
			server["client_auth_type"] = "RequireAndVerifyClientCert"
		}
		web["tls_server_config"] = server
	}
	for name, content := range map[string]object{"prometheus.yml": settings, "web.yml": web} {
		text, err := yaml.Marshal(content)
		if err != nil {
			return err
		}
		if err := os.WriteFile(s.path(name), text, 0o600); err != nil {
			return err
		}
	}
	return s.writeTargets()
}

// launch starts the program and waits until it answers.
func (s *Server) launch(ctx context.Context) error {
	// Of an earlier start: ready reads this one's.
	if err := os.RemoveAll(s.path(program + ".log")); err != nil {
		return fmt.Errorf("remove the Prometheus server's log: %w", err)
	}
	group := proc.NewGroup(s.options.Dir)
	started, err := group.Start(program, s.options.Program,
		"--config.file="+s.path("prometheus.yml"),
		"--web.config.file="+s.path("web.yml"),
		"--web.listen-address="+s.address,
		"--storage.tsdb.path="+s.path("data"),
	)
	if err == nil {
		err = started.WaitReady(ctx, func(ctx context.Context) error { return s.ready(ctx, started.Log()) })
	}
	if err != nil {
		group.Stop()
		return err
	}
	s.group, s.process = group, started
	return nil
}

// ready reads the port, which the system chooses, and then requests an answer.
func (s *Server) ready(ctx context.Context, log string) error {
	text, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	found := regexp.MustCompile(`msg="Listening on" address=(\S+)`).FindSubmatch(text)
	if found == nil {
		return errors.New("it does not listen yet")
	}
	s.address = string(found[1])
	if s.options.TLS == nil {
		s.URL = "http://" + s.address
		return answers(ctx, s.URL+"/-/ready")
	}
	s.URL = "https://" + s.address
	// A request would need a certificate; the log says it too.
	if !strings.Contains(string(text), "Server is ready to receive web requests") {
		return errors.New("its log does not say that it is ready")
	}
	return nil
}

func answers(ctx context.Context, url string) error {
	_, err := fetch.Body(ctx, http.DefaultClient, url)
	return err
}

// Target is a page that a Server scrapes.
type Target struct {
	// Job is the value of the label job.
	Job string
	// Address, host and port, is also the value of the label instance.
	Address string
	// Path of the page. Empty: /metrics.
	Path string
	// Labels are added to scraped series, as an operator's relabelling does.
	Labels map[string]string
	// HonorLabels lets labels of the page win over those of the target. Else
	// they are moved aside, to exported_NAME.
	HonorLabels bool
}

func targetsFile(honor bool) string {
	if honor {
		return "targets-honor-labels.json"
	}
	return "targets.json"
}

// Scrape adds targets. The server sees them within a moment.
func (s *Server) Scrape(targets ...Target) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets = append(s.targets, targets...)
	return s.writeTargets()
}

// Drop removes the targets of a job: their series end at once.
func (s *Server) Drop(job string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets = slices.DeleteFunc(s.targets, func(target Target) bool { return target.Job == job })
	return s.writeTargets()
}

func (s *Server) writeTargets() error {
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	groups := map[bool][]group{false: {}, true: {}}
	for _, target := range s.targets {
		labels := map[string]string{"job": target.Job}
		if target.Path != "" {
			labels["__metrics_path__"] = target.Path
		}
		for name, value := range target.Labels {
			labels[name] = value
		}
		groups[target.HonorLabels] = append(groups[target.HonorLabels], group{[]string{target.Address}, labels})
	}
	for honor, content := range groups {
		text, err := json.Marshal(content)
		if err != nil {
			return fmt.Errorf("encode targets: %w", err)
		}
		// Renamed into place: the server must not read half a file.
		path := s.path(targetsFile(honor))
		if err := os.WriteFile(path+".tmp", text, 0o600); err != nil {
			return fmt.Errorf("write targets: %w", err)
		}
		if err := os.Rename(path+".tmp", path); err != nil {
			return fmt.Errorf("write targets: %w", err)
		}
	}
	return nil
}
