//go:build e2e

package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/debian"
	"github.com/joulevirt/joulevirt/test/env/images"
)

// root is the folder of the module.
const root = "../.."

// Local stand-ins for the base images, which nothing is pulled for.
const (
	goImage   = "localhost/golang"
	emptyBase = "localhost/empty"
	nginxBase = "localhost/nginx"
)

// builder runs buildah with storage of its own.
type builder struct {
	storage string
	// mounts let the build stage use this machine's Go and its caches.
	mounts []string
}

// newBuilder returns a builder that has the base images. The Go image is a
// shell and, mounted while it builds, this machine's Go toolchain: what the
// Dockerfile's own commands then do is what they do on any Go image.
func newBuilder(t *testing.T) *builder {
	t.Helper()
	if err := debian.Host().Ensure(t.Context(), nil, "buildah", "busybox-static"); err != nil {
		t.Fatal(err)
	}
	goroot, modules, cache := goEnv(t, "GOROOT"), goEnv(t, "GOMODCACHE"), goEnv(t, "GOCACHE")
	// The build stage has no network.
	run(t, exec.CommandContext(t.Context(), "go", "mod", "download"))

	b := &builder{
		storage: t.TempDir(),
		mounts: []string{
			"--volume", goroot + ":/usr/local/go:ro",
			"--volume", modules + ":/go/pkg/mod:ro",
			"--volume", cache + ":/root/.cache/go-build",
		},
	}
	b.base(t, emptyBase, "FROM scratch\nLABEL purpose=test\n")
	b.base(t, goImage, `FROM scratch
COPY busybox /bin/sh
WORKDIR /tmp
ENV PATH=/usr/local/go/bin:/bin HOME=/root GOPATH=/go GOPROXY=off GOTOOLCHAIN=local
`)
	return b
}

// debianBase builds the base image that has Debian's nginx.
func (b *builder) debianBase(t *testing.T) {
	t.Helper()
	root, err := images.NginxRootFS(t.Context(), binaries.FromEnvironment(os.Getenv, os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\nADD root.tar /\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(root, filepath.Join(dir, "root.tar")); err != nil {
		t.Fatal(err)
	}
	b.buildah(t, "build", "--isolation", "chroot", "--tag", nginxBase, dir)
}

// base builds a base image from a Dockerfile beside a static busybox.
func (b *builder) base(t *testing.T, name, dockerfile string) {
	t.Helper()
	dir := t.TempDir()
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "busybox"), busybox, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(dockerfile), 0o644); err != nil {
		t.Fatal(err)
	}
	b.buildah(t, "build", "--isolation", "chroot", "--tag", name, dir)
}

// build builds a target of the shipped Dockerfile and returns the image's name.
func (b *builder) build(t *testing.T, target string) string {
	t.Helper()
	name := "localhost/joulevirt-" + target
	args := []string{
		"build", "--isolation", "chroot", "--pull-never", "--layers",
		"--target", target, "--tag", name,
		"--build-arg", "GO_IMAGE=" + goImage,
		"--build-arg", "BASE_IMAGE=" + emptyBase,
		"--build-arg", "DEBIAN_IMAGE=" + nginxBase,
	}
	b.buildah(t, append(append(args, b.mounts...), root)...)
	return name
}

// config is the part of an image's configuration that matters here.
type config struct {
	User       string   `json:"User"`
	Entrypoint []string `json:"Entrypoint"`
	Cmd        []string `json:"Cmd"`
}

func (b *builder) config(t *testing.T, image string) config {
	t.Helper()
	var inspected struct {
		OCIv1 struct {
			Config config `json:"config"`
		}
	}
	text := b.buildah(t, "inspect", "--type", "image", image)
	if err := json.Unmarshal([]byte(text), &inspected); err != nil {
		t.Fatalf("inspect %s: %v", image, err)
	}
	return inspected.OCIv1.Config
}

// mount returns a folder with the image's files.
func (b *builder) mount(t *testing.T, image string) string {
	t.Helper()
	container := strings.TrimSpace(b.buildah(t, "from", "--pull-never", image))
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := output(b.command(context.WithoutCancel(t.Context()), "rm", container)); err != nil {
			t.Error(err)
		}
	})
	return strings.TrimSpace(b.buildah(t, "mount", container))
}

func (b *builder) buildah(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, b.command(t.Context(), args...))
}

func (b *builder) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "buildah", append([]string{
		"--storage-driver", "vfs",
		"--root", filepath.Join(b.storage, "root"),
		"--runroot", filepath.Join(b.storage, "run"),
	}, args...)...)
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(run(t, exec.CommandContext(t.Context(), "go", "env", name)))
}

func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	text, err := output(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}
