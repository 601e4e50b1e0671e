package prometheus

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// Target is a page that a Server scrapes.
type Target struct {
	// Job is the value of the label job.
	Job string
	// Address, host and port, is also the value of the label instance.
	Address string
	// Path of the page. Empty: /metrics.
	Path string
	// Labels are added to what is scraped, as an operator's relabelling does.
	Labels map[string]string
	// HonorLabels lets labels of the page win over those of the target. Else
	// they are moved aside, to exported_NAME.
	HonorLabels bool
	// Timeout of a scrape. 0: the scrape interval.
	Timeout time.Duration
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
		if target.Timeout != 0 {
			labels["__scrape_timeout__"] = target.Timeout.String()
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
