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
	var inGo []Component
	for _, component := range components {
		if !isProgram(b.path(component)) && !recipes()[component].isC() {
			inGo = append(inGo, component)
		}
	}
	if len(inGo) > 0 {
		if err := b.compileGo(ctx, inGo); err != nil {
			return err
		}
	}
	for _, component := range components {
		if isProgram(b.path(component)) {
			continue
		}
		if err := b.compileC(ctx, component); err != nil {
			return fmt.Errorf("%s: %w", component, err)
		}
	}
	return nil
}

// compileGo builds programs of Go by one command, so that what they share is compiled once and one
// is linked while others compile. cgo is on when one of them needs it: with and without it, nearly
// all would be compiled twice.
func (b *build) compileGo(ctx context.Context, components []Component) error {
	staging := filepath.Join(b.target, "tmp") // ours alone: we hold the lock
	defer os.RemoveAll(staging)
	// Code of ours that calls that of a version has a tag: newest, oldest.
	_, tag, _ := strings.Cut(filepath.Base(b.pins), "-")
	args := []string{"build", "-trimpath", "-mod=readonly", "-modfile", filepath.Join(b.pins, "go.mod"),
		"-tags", tag, "-ldflags", b.ldflags, "-o", staging + string(filepath.Separator)}
	cgo := "CGO_ENABLED=0"
	for _, component := range components {
		r := recipes()[component]
		args = append(args, r.pkg)
		if len(r.packages) > 0 {
			cgo = "CGO_ENABLED=1"
			if err := debian.Host().Ensure(ctx, b.steps, r.packages...); err != nil {
				return err
			}
		}
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.source
	cmd.Env = append(cmd.Environ(), cgo, "GOWORK=off")
	name := b.module
	if len(components) == 1 {
		name = string(components[0])
	}
	return b.compile("build "+name, cmd, func() error {
		for _, component := range components {
			made := filepath.Join(staging, recipes()[component].executable(b.source))
			if err := os.Rename(made, b.path(component)); err != nil {
				return err
			}
		}
		return nil
	})
}

// compileC builds a program of one file of C.
func (b *build) compileC(ctx context.Context, component Component) error {
	r := recipes()[component]
	if err := debian.Host().Ensure(ctx, b.steps, r.packages...); err != nil {
		return err
	}
	dir := b.source
	if !strings.HasPrefix(r.pkg, "./") {
		upstream, _ := moduleVersion(b.module)
		var err error
		if dir, err = gomod.Dir(ctx, b.pins, upstream); err != nil {
			return err
		}
	}
	temporary := b.path(component) + ".tmp"
	defer os.Remove(temporary)
	cmd := exec.CommandContext(ctx, "gcc", "-O2", "-static", "-s", "-o", temporary, filepath.Join(dir, r.pkg))
	return b.compile("build "+string(component), cmd, func() error { return os.Rename(temporary, b.path(component)) })
}

// compile runs a compiler beside the place of what it makes, and moves that there, so that a file in
// the cache is always whole.
func (b *build) compile(step string, cmd *exec.Cmd, move func() error) error {
	return b.steps.Run(step, func(log io.Writer) error {
		cmd.Stdout, cmd.Stderr = log, log
		// An interrupt lets go end its compilers before it ends itself.
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 10 * time.Second
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
		}
		return move()
	})
}
