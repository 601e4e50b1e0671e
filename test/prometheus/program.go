// Package prometheus runs a real Prometheus server for tests, and a stand-in for Kepler that it
// scrapes.
package prometheus

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

// cachePrefix starts the names of the cache's folders; the version follows.
const cachePrefix = "prometheus-"

// promtool checks and tests rules.
const promtool = "promtool"

// Program returns the path of a Prometheus server in a source's cache. If it is missing, it is
// unpacked there from Debian's package: installing the package would start a server.
func Program(ctx context.Context, source binaries.Source) (string, error) {
	return ensure(ctx, source, program)
}

// Promtool returns the path of promtool, from the same package.
func Promtool(ctx context.Context, source binaries.Source) (string, error) {
	return ensure(ctx, source, promtool)
}

func ensure(ctx context.Context, source binaries.Source, program string) (string, error) {
	if path := cached(source.Cache, program); path != "" {
		return path, nil
	}
	err := source.Steps.Run("get Prometheus", func(log io.Writer) error { return unpack(ctx, source.Cache, log) })
	if err != nil {
		return "", fmt.Errorf("get Prometheus' programs (on what is no Debian, put it at %s): %w",
			filepath.Join(source.Cache, cachePrefix+"VERSION", program), err)
	}
	if path := cached(source.Cache, program); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("the package prometheus has no usr/bin/%s any more", program)
}

// cached returns the newest program in the cache, or "".
func cached(cache, program string) string {
	paths, _ := filepath.Glob(filepath.Join(cache, cachePrefix+"*", program))
	slices.Sort(paths)
	if len(paths) == 0 {
		return ""
	}
	return paths[len(paths)-1]
}

// unpack works in a folder of its own and renames the result into place, so that processes may
// do it at the same time.
func unpack(ctx context.Context, cache string, log io.Writer) error {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(cache, "unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archive, err := download(ctx, dir, log)
	if err != nil {
		return err
	}
	version, err := run(ctx, dir, log, "dpkg-deb", "--field", archive, "Version")
	if err != nil {
		return err
	}
	if _, err := run(ctx, dir, log, "dpkg-deb", "--extract", archive, "content"); err != nil {
		return err
	}
	ready := filepath.Join(dir, "ready")
	if err := os.Mkdir(ready, 0o755); err != nil {
		return err
	}
	for _, name := range []string{program, promtool} {
		if err := os.Rename(filepath.Join(dir, "content", "usr", "bin", name), filepath.Join(ready, name)); err != nil {
			return err
		}
	}
	// A version's epoch ends with a colon, which paths of programs do not like.
	name := cachePrefix + strings.ReplaceAll(version, ":", "_")
	target := filepath.Join(cache, name)
	if os.Rename(ready, target) == nil {
		return nil
	}
	// Another process was faster.
	_, err = os.Stat(filepath.Join(target, program))
	return err
}

// download gets the package's file. A new machine may have no lists of packages, which only root
// can update.
func download(ctx context.Context, dir string, log io.Writer) (string, error) {
	_, err := run(ctx, dir, log, "apt-get", "--quiet", "download", "prometheus")
	if err != nil && os.Geteuid() == 0 {
		if _, err := run(ctx, dir, log, "apt-get", "--quiet", "update"); err != nil {
			return "", err
		}
		_, err = run(ctx, dir, log, "apt-get", "--quiet", "download", "prometheus")
	}
	if err != nil {
		return "", err
	}
	archives, err := filepath.Glob(filepath.Join(dir, "prometheus_*.deb"))
	if err != nil || len(archives) != 1 {
		return "", fmt.Errorf("apt-get download left %v, want one file prometheus_VERSION.deb (%w)", archives, err)
	}
	return archives[0], nil
}

// run runs a program and returns its standard output.
func run(ctx context.Context, dir string, log io.Writer, name string, args ...string) (string, error) {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&output, log), log
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return strings.TrimSpace(output.String()), nil
}
