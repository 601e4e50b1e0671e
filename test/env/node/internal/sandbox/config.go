// Package sandbox makes a node of namespaces and cgroups: what is started in it
// sees a machine of its own and ends with its first process.
package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Config describes a sandbox. It is a file in the sandbox's folder.
type Config struct {
	// HostName of the node.
	HostName string
	// Dir has the node's own folders.
	Dir string
	// Group is the node's cgroup in each hierarchy.
	Group string
	// Hierarchies are the machine's cgroup hierarchies.
	Hierarchies []Hierarchy
	// Binds are files and folders of the machine that the node sees in Run, by
	// their name there.
	Binds map[string]string
	// Machine is set when the node is an emulated machine of its own.
	Machine *Machine
}

// Run is where a node finds what Config.Binds lists. Other folders of the
// machine may be hidden by the node's own.
const Run = "/run/joulevirt"

// Write writes the config into the sandbox's folder and returns its path.
func (c Config) Write() (string, error) {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode the node's config: %w", err)
	}
	path := filepath.Join(c.Dir, "config.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return "", fmt.Errorf("write the node's config: %w", err)
	}
	return path, nil
}

// ReadConfig reads what Write wrote.
func ReadConfig(path string) (Config, error) {
	var c Config
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		return c, fmt.Errorf("read the node's config: %w", err)
	}
	return c, nil
}

func (c Config) pidFile() string { return filepath.Join(c.Dir, "pid") }

// Ready returns nil when programs can be started in the sandbox.
func (c Config) Ready() error {
	if c.Machine == nil {
		_, err := c.PID()
		return err
	}
	conn, err := net.DialTimeout("tcp", c.Machine.control(), time.Second)
	if err != nil {
		return fmt.Errorf("the emulated machine is not ready: %w", err)
	}
	return conn.Close()
}

// PID returns the id of the sandbox's first process as the machine sees it. It
// fails until the sandbox is ready, and for an emulated machine.
func (c Config) PID() (int, error) {
	if c.Machine != nil {
		return 0, errors.New("an emulated machine has no process or namespace of this one")
	}
	text, err := os.ReadFile(c.pidFile())
	if err != nil {
		return 0, fmt.Errorf("the node is not ready: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
