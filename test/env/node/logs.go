package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// eventsTimeout bounds the look for events: the API server may have failed.
const eventsTimeout = time.Minute

// SaveLogs copies the logs of control plane, nodes and pods that are there, guests' consoles among
// them, into a folder: NAME.log, and NODE/NAMESPACE_POD_UID/.... The cluster's events go to events.log.
func (e *Environment) SaveLogs(folder string) error {
	problems := []error{copyLogs(e.logs, folder)}
	for _, n := range e.Nodes() {
		problems = append(problems, copyLogs(n.PodLogs(), filepath.Join(folder, n.Name)))
	}
	if e.Cluster != nil {
		problems = append(problems, e.saveEvents(filepath.Join(folder, "events.log")))
	}
	return errors.Join(problems...)
}

func (e *Environment) saveEvents(file string) error {
	ctx, cancel := context.WithTimeout(context.Background(), eventsTimeout)
	defer cancel()
	events, err := e.RunKubectl(ctx, "get", "events", "--all-namespaces", "--sort-by=.lastTimestamp")
	return errors.Join(err, os.WriteFile(file, []byte(events), 0o644))
}

// PodLogs is the folder of the logs of the node's pods, as this machine sees it.
// A pod's logs go with the pod.
func (n *Node) PodLogs() string { return filepath.Join(n.sandbox.Dir, "var-log", "pods") }

// EachLogLine calls f for each line that containers of the node's pods logged, of pods whose folder
// NAMESPACE_NAME_UID matches a pattern. container is POD/CONTAINER.
func (n *Node) EachLogLine(pods string, f func(container string, at time.Time, line string)) error {
	files, err := filepath.Glob(filepath.Join(n.PodLogs(), pods, "*", "*.log"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) { // of a pod that went now
			continue
		}
		if err != nil {
			return err
		}
		container := filepath.Base(filepath.Dir(filepath.Dir(file))) + "/" + filepath.Base(filepath.Dir(file))
		for line := range strings.Lines(string(text)) {
			// 2006-01-02T15:04:05.999999999Z stdout F TEXT
			fields := strings.SplitN(strings.TrimSpace(line), " ", 4)
			if at, err := time.Parse(time.RFC3339Nano, fields[0]); err == nil && len(fields) == 4 {
				f(container, at, fields[3])
			}
		}
	}
	return nil
}

// copyLogs copies the files NAME.log below a folder.
func copyLogs(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // of a pod that ended now, or a node without pods
			return nil
		}
		if err != nil || !entry.Type().IsRegular() || !strings.HasSuffix(path, ".log") {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return fmt.Errorf("make a folder for logs: %w", err)
		}
		return copyFile(path, target)
	})
}
