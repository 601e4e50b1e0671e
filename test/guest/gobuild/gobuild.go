// Package gobuild compiles the small helper programs that the test VMs need
// (the guest's server), and tests that run in them, from
// this module's own sources.
package gobuild

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Static compiles the main package importPath into a static Linux executable
// at output. Packages come from go's build cache, so repeating it costs one
// link. Concurrent callers may share output: the file is replaced in one step.
//
// The working directory must be inside this module, which is how the go
// command finds importPath.
func Static(ctx context.Context, importPath, output string) error {
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return fmt.Errorf("create the folder of %s: %w", output, err)
	}
	staging, err := os.MkdirTemp(filepath.Dir(output), ".build-")
	if err != nil {
		return fmt.Errorf("create a staging folder beside %s: %w", output, err)
	}
	defer os.RemoveAll(staging)

	staged := filepath.Join(staging, filepath.Base(output))
	if err := run(ctx, importPath, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", staged, importPath); err != nil {
		return err
	}
	if err := os.Rename(staged, output); err != nil {
		return fmt.Errorf("move the program %s in place: %w", output, err)
	}
	return nil
}

// Tests compiles the tests of the package importPath, with a build tag, into a
// static Linux executable at output.
func Tests(ctx context.Context, importPath, tag, output string) error {
	return run(ctx, importPath, "test", "-c", "-tags", tag, "-ldflags=-s -w", "-o", output, importPath)
}

// run has the go command build what is static.
func run(ctx context.Context, importPath string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s (is the working directory inside the module?): %w\n%s", importPath, err, strings.TrimSpace(string(out)))
	}
	return nil
}
