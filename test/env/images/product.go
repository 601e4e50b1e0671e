package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/internal/filelock"
)

// manager is the image of the Dockerfile's target of that name, of this checkout.
func manager(ctx context.Context, source binaries.Source) (recipe, error) {
	return product(ctx, source, "manager", "65532:65532", "--embeds=hack/sbom/vendored.json")
}

// agent is the image of the Dockerfile's target of that name, of this checkout.
func agent(ctx context.Context, source binaries.Source) (recipe, error) {
	return product(ctx, source, "agent", "0:0")
}

// gateway is the image of the Dockerfile's target of that name, of this checkout.
func gateway(ctx context.Context, source binaries.Source) (recipe, error) {
	r, err := product(ctx, source, "joulevirt-gateway", "65532:65532")
	root := nginxRootFS(source)
	r.name, r.tagged = "gateway", []string{"docker.io/joulevirt/gateway:latest"}
	r.inputs = append(r.inputs, root.path())
	r.base = root.ensure
	return r, err
}

// nginxRootFS is Debian's nginx with what it needs.
func nginxRootFS(source binaries.Source) rootFS {
	return rootFS{source: source, packages: []string{"nginx"}}
}

// NginxRootFS returns a tar file of Debian with nginx, a base for the gateway's image.
func NginxRootFS(ctx context.Context, source binaries.Source) (string, error) {
	return nginxRootFS(source).ensure(ctx)
}

func product(ctx context.Context, source binaries.Source, name, user string, sbomFlags ...string) (recipe, error) {
	checkout, err := source.Checkout()
	if err != nil {
		return recipe{}, err
	}
	// Beside those of other checkouts: go links nothing when the program that
	// is there is the one it would make.
	id := sha256.Sum256([]byte(checkout))
	dir := filepath.Join(source.Cache, "images", "product-"+hex.EncodeToString(id[:])[:12])
	program := filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return recipe{}, err
	}
	unlock, err := filelock.Take(ctx, filepath.Join(source.Cache, "images", name+"-build.lock"), func() {})
	if err != nil {
		return recipe{}, err
	}
	defer unlock()
	err = source.Steps.Run("build "+name, func(log io.Writer) error {
		return run(ctx, checkout, log, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, "./cmd/"+name)
	})
	now := time.Now()
	if err := errors.Join(err, os.Chtimes(dir, now, now), removeUnused("product", dir)); err != nil {
		return recipe{}, err
	}
	sum, err := fileDigest(program)
	return recipe{
		name: name, tagged: []string{"docker.io/joulevirt/" + name + ":latest"}, inputs: []string{sum},
		config: ocispec.ImageConfig{User: user, Entrypoint: []string{"/" + name}, WorkingDir: "/"},
		files: func(ctx context.Context, log io.Writer) ([]file, error) {
			sbom := program + ".cdx.json"
			args := append([]string{"run", "-buildvcs=false", "./hack/sbom"}, sbomFlags...)
			if err := run(ctx, checkout, log, append(args, program, sbom)...); err != nil {
				return nil, err
			}
			return []file{
				{path: name, mode: 0o755, source: program},
				{path: "usr/share/sbom/" + name + ".cdx.json", mode: 0o644, source: sbom},
			}, nil
		},
	}, err
}

// run runs the go command in a checkout.
func run(ctx context.Context, checkout string, log io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = checkout
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

func fileDigest(path string) (string, error) {
	content, err := os.Open(path)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	_, err = io.Copy(hash, content)
	return hex.EncodeToString(hash.Sum(nil)), errors.Join(err, content.Close())
}
