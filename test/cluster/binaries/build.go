package binaries

import (
	"bytes"
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
)

// heartbeat is how often a running build says that it still runs.
const heartbeat = 15 * time.Second

// build makes programs of one nested module.
type build struct {
	module   string
	source   string // folder of the nested module
	target   string // folder that the programs go to
	ldflags  string
	progress io.Writer
}

// newBuild reads the nested module and derives the cache folder's name from all
// that decides what is built, so that a folder never holds stale programs.
func newBuild(source, module, cache string, progress io.Writer) (*build, error) {
	gomod, err := os.ReadFile(filepath.Join(source, "go.mod"))
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
	if err != nil {
		return nil, err
	}
	return &build{
		module:   module,
		source:   source,
		target:   filepath.Join(cache, fmt.Sprintf("%s-%s-%s", module, version, digest)),
		ldflags:  ldflags,
		progress: progress,
	}, nil
}

// moduleDigest condenses go.mod, go.sum, the Go files below dir and the given
// settings.
func moduleDigest(dir string, settings ...string) (string, error) {
	hash := sha256.New()
	for _, s := range settings {
		fmt.Fprintf(hash, "%s\n", s)
	}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if name := entry.Name(); name != "go.mod" && name != "go.sum" && filepath.Ext(name) != ".go" {
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
	unlock, err := lock(ctx, b.target+".lock", func() {
		b.say("%s: another process builds it; waiting", b.module)
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
	start := time.Now()
	b.say("%s: building (a cold build takes minutes)", component)
	stop := b.beat(component, start)
	defer stop()

	temporary := b.path(component) + ".tmp" // ours alone: we hold the lock
	defer os.Remove(temporary)
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-mod=readonly",
		"-ldflags", b.ldflags, "-o", temporary, recipes()[component].pkg)
	cmd.Dir = b.source
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	cmd.Stdout, cmd.Stderr = &output, &output
	// An interrupt lets go end its compilers before it ends itself.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, output.String())
	}
	if err := os.Rename(temporary, b.path(component)); err != nil {
		return err
	}
	b.say("%s: built in %s", component, elapsed(start))
	return nil
}

// beat reports at intervals that the build goes on, until stop is called.
func (b *build) beat(component Component, start time.Time) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(heartbeat)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				b.say("%s: still building after %s", component, elapsed(start))
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

func (b *build) say(format string, args ...any) {
	if b.progress != nil {
		fmt.Fprintf(b.progress, "controlplane: "+format+"\n", args...)
	}
}

func elapsed(start time.Time) time.Duration { return time.Since(start).Round(time.Second) }
