// Package gateway runs nginx in front of one VM. nginx is a cache in memory, whose size it changes for the
// response time that the owner wants, or sends files that the VM wrote to a share in memory.
package gateway

import (
	_ "embed" // nginx's configuration is a file
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
	"time"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/planner/offload"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// leastMemory holds nginx's own files and some answers.
	leastMemory = 16 << 20
	// answersPart of the memory is for complete answers. The rest is for those that arrive.
	answersPart = 0.75
)

// Config is what a gateway is started with.
type Config struct {
	// Upstream is the VM's address and port, and Listen and ProbeListen the gateway's own.
	Upstream, Listen, ProbeListen string
	// TLS is a folder with a certificate, its key and perhaps its issuer, as in a Secret of type kubernetes.io/tls.
	// Clients and the VM then speak TLS. Empty: plain HTTP.
	TLS string
	// Store is a folder that is a file system in memory, and nobody else's.
	Store string
	// Share is a folder that the VM writes files to which nginx sends. Empty: nginx is a cache, in the store.
	Share string
	// MemoryMin and MemoryMax bound what the store may hold, in bytes.
	MemoryMin, MemoryMax int64
	// TargetResponseTime is the mean that the size of the store is changed for.
	TargetResponseTime time.Duration
	// IdleEviction is how long an answer stays without a request for it.
	IdleEviction time.Duration
}

// Validate returns the first flag that cannot be.
func (c Config) Validate() error {
	host, port, err := net.SplitHostPort(c.Upstream)
	if err != nil || net.ParseIP(host) == nil || !isPort(port) {
		return fmt.Errorf("--upstream is %q: want the IP address and port of the VM, such as 10.0.0.7:8080", c.Upstream)
	}
	for flag, address := range map[string]string{"--listen": c.Listen, "--probe-listen": c.ProbeListen} {
		if _, port, err := net.SplitHostPort(address); err != nil || !isPort(port) {
			return fmt.Errorf("%s is %q: want a port, such as :8080", flag, address)
		}
	}
	if c.Share != "" {
		return errors.Join(c.ValidateShare(), c.validateStore(0))
	}
	switch {
	case c.MemoryMin < leastMemory:
		return fmt.Errorf("--memory-min is %d: want at least %d bytes", c.MemoryMin, leastMemory)
	case c.MemoryMax < c.MemoryMin:
		return fmt.Errorf("--memory-max is %d, less than --memory-min %d: want as much or more", c.MemoryMax, c.MemoryMin)
	case c.TargetResponseTime < time.Millisecond:
		return fmt.Errorf("--target-response-time is %v: want 1ms or more", c.TargetResponseTime)
	case c.IdleEviction < time.Second:
		return c.idleError()
	}
	return c.validateStore(c.MemoryMax)
}

// ValidateShare returns what Evict cannot do its work with.
func (c Config) ValidateShare() error {
	if c.IdleEviction < time.Second {
		return c.idleError()
	}
	if err := unix.Access(c.Share, unix.R_OK|unix.X_OK); err != nil {
		return fmt.Errorf("--share %s: %w: mount the VM's share there, and run as user %d", c.Share, err, v1alpha1.ShareUser)
	}
	return nil
}

func (c Config) idleError() error {
	return fmt.Errorf("--idle-eviction is %v: want 1s or more", c.IdleEviction)
}

// validateStore wants a file system in memory that holds as many bytes.
func (c Config) validateStore(memory int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(c.Store, &fs); err != nil {
		return fmt.Errorf("--store is %q: %w: mount an emptyDir of medium Memory there", c.Store, err)
	}
	if fs.Type != unix.TMPFS_MAGIC {
		return fmt.Errorf("--store %s is on a disk: mount an emptyDir of medium Memory there", c.Store)
	}
	if size := int64(fs.Blocks) * fs.Bsize; size < memory {
		return fmt.Errorf("--store %s has %d bytes, less than --memory-max %d: raise the sizeLimit of its emptyDir, or lower --memory-max", c.Store, size, memory)
	}
	if err := unix.Access(c.Store, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("--store %s: %w: let this process's user write there", c.Store, err)
	}
	return nil
}

// listenAddresses are nginx's for an address: for a port alone those of both families, as far as
// there are both.
func listenAddresses(address string) []string {
	port, alone := strings.CutPrefix(address, ":")
	if !alone {
		return []string{address}
	}
	listener, err := net.ListenTCP("tcp6", &net.TCPAddr{IP: net.IPv6loopback})
	if err != nil {
		return []string{port}
	}
	_ = listener.Close()
	return []string{port, "[::]:" + port}
}

func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && port > 0
}

func (c Config) settings() offload.Settings {
	return offload.Settings{Target: c.TargetResponseTime, Min: units.Bytes(c.MemoryMin), Max: units.Bytes(c.MemoryMax)}
}

// runDir has nginx's configuration and sockets.
func (c Config) runDir() string { return filepath.Join(c.Store, "run") }

// cacheDir has the answers.
func (c Config) cacheDir() string { return filepath.Join(c.Store, "cache") }

// statusSocket is where nginx reports its state.
func (c Config) statusSocket() string { return filepath.Join(c.runDir(), "status.sock") }

// vmSocket is where nginx finds the VM.
func (c Config) vmSocket() string { return filepath.Join(c.runDir(), "vm.sock") }

//go:embed nginx.conf.tmpl
var nginxTemplate string

// nginxConf is nginx's configuration for a size of the store.
func (c Config) nginxConf(memory units.Bytes, workers int) (string, error) {
	parsed, err := template.New("nginx.conf").Parse(nginxTemplate)
	if err != nil {
		return "", fmt.Errorf("read the template of nginx's configuration: %w", err)
	}
	var out strings.Builder
	err = parsed.Execute(&out, map[string]any{
		"Listen": listenAddresses(c.Listen), "TLS": c.TLS, "Run": c.runDir(), "Cache": c.cacheDir(), "VM": c.vmSocket(),
		"Waited": waitedHeader, "Stored": storedLocation,
		"Share": c.Share, "ShareLocation": v1alpha1.ShareLocation, "Unshared": unsharedLocation, "Again": againHeader,
		"Status": statusHeader, "StatusVariable": strings.ReplaceAll(strings.ToLower(statusHeader), "-", "_"),
		"Workers": workers, "Inactive": int(c.IdleEviction.Seconds()), "MaxSize": int64(memory * answersPart),
		"Root": os.Geteuid() == 0, // else nginx becomes another user, who may not read the store
	})
	return out.String(), err
}
