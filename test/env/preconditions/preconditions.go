// Package preconditions says, before anything is downloaded or built, why this
// machine cannot run the demo or the tests. It imports the standard library only,
// so that it is compiled in seconds and without a network.
package preconditions

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Facts are what is known of a machine.
type Facts struct {
	Root bool
	// Built is true when programs of the test cluster were built here before: little may be missing.
	Built bool
	// Cache is where programs and images go, and FreeGB what its disk has left.
	Cache  string
	FreeGB int
	// Network is why the proxy of Go modules is not reached. Nil: it is.
	Network error
	// ID, Version and Like are those of /etc/os-release.
	ID, Version, Like string
}

// Check returns why a machine cannot do what takes so many GB, and what may fail. Each is a sentence
// with a remedy.
func Check(f Facts, needGB int) (problems, warnings []string) {
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	// What is there already takes neither network nor disk.
	lacks := problem
	if f.Built {
		lacks = func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	}
	if !f.Root {
		problem("This user is not root: run it with sudo, or in a container with --privileged.")
	}
	if f.FreeGB < needGB {
		lacks("The disk of %s has %d GB left, and %d GB are needed: free some, or set XDG_CACHE_HOME to a folder on another disk.",
			f.Cache, f.FreeGB, needGB)
	}
	if f.Network != nil {
		lacks("Go modules cannot be downloaded (%v): connect the machine, or set GOPROXY or HTTPS_PROXY to a proxy that it reaches.", f.Network)
	}
	switch like := strings.Fields(f.Like); {
	case f.ID == "debian" && (f.Version == "12" || f.Version == "13"):
	case f.ID == "debian" || slices.Contains(like, "debian"):
		warnings = append(warnings, fmt.Sprintf("%s %s is unknown, only Debian 12 and 13 were tried: "+
			"if a package is not found, use one of these.", f.ID, f.Version))
	default:
		problem("%s %s has no packages of Debian: use Debian 12 or 13, in a virtual machine or a container with --privileged.", f.ID, f.Version)
	}
	return problems, warnings
}

// Read returns the facts of this machine.
func Read(ctx context.Context) (Facts, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return Facts{}, err
	}
	f := Facts{Root: os.Geteuid() == 0, Cache: filepath.Join(cache, "joulevirt"), Network: reachModules(ctx)}
	built, err := filepath.Glob(filepath.Join(f.Cache, "kubernetes-*", "kube-apiserver"))
	if err != nil {
		return Facts{}, err
	}
	f.Built = len(built) > 0
	if f.FreeGB, err = freeGB(f.Cache); err != nil {
		return Facts{}, err
	}
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return Facts{}, fmt.Errorf("find out which distribution this is: %w", err)
	}
	f.ID, f.Version, f.Like = field(string(text), "ID"), field(string(text), "VERSION_ID"), field(string(text), "ID_LIKE")
	return f, nil
}

// freeGB is what the disk of a folder has left, which need not exist yet.
func freeGB(dir string) (int, error) {
	var disk syscall.Statfs_t
	err := syscall.Statfs(dir, &disk)
	if err == syscall.ENOENT && dir != filepath.Dir(dir) {
		return freeGB(filepath.Dir(dir))
	}
	if err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int(disk.Bavail * uint64(disk.Bsize) / 1e9), nil
}

// field of the text of /etc/os-release.
func field(text, name string) string {
	match := regexp.MustCompile(`(?m)^` + name + `="?([^"\n]*)`).FindStringSubmatch(text)
	if match == nil {
		return ""
	}
	return match[1]
}

// reachModules returns why the first proxy of Go modules, or the proxy that leads to it, is not reached.
func reachModules(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOPROXY").Output()
	if err != nil {
		return fmt.Errorf("go env GOPROXY: %w", err)
	}
	first := regexp.MustCompile(`[^,|\s]+`).FindString(string(out))
	if first == "off" || strings.HasPrefix(first, "file:") {
		return nil // as who set it wants it
	}
	to, err := url.Parse(cmp.Or(os.Getenv("HTTPS_PROXY"), os.Getenv("https_proxy"), first))
	if err != nil {
		return err
	}
	if to.Host == "" {
		return nil // direct: from where modules come by themselves
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	port := cmp.Or(to.Port(), map[string]string{"http": "80"}[to.Scheme], "443")
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return err
	}
	return conn.Close()
}
