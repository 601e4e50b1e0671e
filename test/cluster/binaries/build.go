package binaries

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/test/cluster/debian"
	"github.com/joulevirt/joulevirt/test/env/steps"
	"github.com/joulevirt/joulevirt/test/internal/filelock"
	"github.com/joulevirt/joulevirt/test/internal/gomod"
)

// build makes programs of one nested module.
type build struct {
	module  string
	source  string // folder of the nested module
	pins    string // folder of the go.mod that counts: source, or one beside it
	target  string // folder that the programs go to
	ldflags string
	steps   *steps.Reporter
}

// newBuild reads the nested module and derives the cache folder's name from all
// that decides what is built, so that a folder never holds stale programs.
func newBuild(module, source, pins, cache string, reporter *steps.Reporter) (*build, error) {
	gomod, err := os.ReadFile(filepath.Join(pins, "go.mod"))
	if err != nil {
		return nil, err
	}
	upstream, variables := moduleVersion(module)
	version, err := requiredVersion(string(gomod), upstream)
	if err != nil {
		return nil, err
	}
	ldflags := linkFlags(variables(version))
	digest, err := moduleDigest(source, runtime.Version(), ldflags)
	if err == nil && pins != source {
		digest, err = moduleDigest(pins, digest)
	}
	if err != nil {
		return nil, err
	}
	return &build{
		module:  module,
		source:  source,
		pins:    pins,
		target:  filepath.Join(cache, fmt.Sprintf("%s-%s-%s", module, version, digest)),
		ldflags: ldflags,
		steps:   reporter,
	}, nil
}

// moduleDigest condenses go.mod, go.sum, the Go and C files below dir and the
// given settings.
func moduleDigest(dir string, settings ...string) (string, error) {
	hash := sha256.New()
	for _, s := range settings {
		fmt.Fprintf(hash, "%s\n", s)
	}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if name := entry.Name(); name != "go.mod" && name != "go.sum" && filepath.Ext(name) != ".go" && filepath.Ext(name) != ".c" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		fmt.Fprintf(hash, "%s %d\n", path, len(text))
		hash.Write(text)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("digest %s: %w", dir, err)
	}
	return hex.EncodeToString(hash.Sum(nil))[:12], nil
}

func (b *build) path(component Component) string {
	return filepath.Join(b.target, string(component))
}

// run builds the components, unless another process did while we waited for
// the lock.
func (b *build) run(ctx context.Context, components []Component) error {
	if err := os.MkdirAll(b.target, 0o755); err != nil {
		return err
	}
	unlock, err := filelock.Take(ctx, b.target+".lock", func() {
		b.steps.Printf("setup: another process builds %s: waiting", b.module)
	})
	if err != nil {
		return err
	}
	defer unlock()
	for _, component := range components {
		if isProgram(b.path(component)) {
			continue
		}
		if err := b.one(ctx, component); err != nil {
			return fmt.Errorf("%s: %w", component, err)
		}
	}
	return nil
}

// one builds a component beside its place and renames it there, so that a file
// in the cache is always whole.
func (b *build) one(ctx context.Context, component Component) error {
	temporary := b.path(component) + ".tmp" // ours alone: we hold the lock
	defer os.Remove(temporary)
	cmd, err := b.command(ctx, recipes()[component], temporary)
	if err != nil {
		return err
	}
	return b.steps.Run("build "+string(component), func(log io.Writer) error {
		cmd.Stdout, cmd.Stderr = log, log
		// An interrupt lets go end its compilers before it ends itself.
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 10 * time.Second
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
		}
		return os.Rename(temporary, b.path(component))
	})
}

// command returns the compiler's run that makes a program at output.
func (b *build) command(ctx context.Context, r recipe, output string) (*exec.Cmd, error) {
	if len(r.packages) > 0 {
		if err := debian.Host().Ensure(ctx, b.steps, r.packages...); err != nil {
			return nil, err
		}
	}
	if filepath.Ext(r.pkg) == ".c" {
		dir := b.source
		if !strings.HasPrefix(r.pkg, "./") {
			upstream, _ := moduleVersion(b.module)
			var err error
			if dir, err = gomod.Dir(ctx, b.pins, upstream); err != nil {
				return nil, err
			}
		}
		return exec.CommandContext(ctx, "gcc", "-O2", "-static", "-s", "-o", output, filepath.Join(dir, r.pkg)), nil
	}
	// Code of ours that calls that of a version has a tag: newest, oldest.
	_, tag, _ := strings.Cut(filepath.Base(b.pins), "-")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-mod=readonly",
		"-modfile", filepath.Join(b.pins, "go.mod"), "-tags", tag, "-ldflags", b.ldflags, "-o", output, r.pkg)
	cmd.Dir = b.source
	cgo := "CGO_ENABLED=0"
	if len(r.packages) > 0 {
		cgo = "CGO_ENABLED=1"
	}
	cmd.Env = append(cmd.Environ(), cgo, "GOWORK=off")
	return cmd, nil
}
