package images

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/debian"
	"github.com/joulevirt/joulevirt/test/guest"
)

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// qemuUser is the user, and group, that KubeVirt runs QEMU as.
const qemuUser = 107

func pause(ctx context.Context, source binaries.Source) (recipe, error) {
	paths, err := source.Ensure(ctx, binaries.Pause)
	if err != nil {
		return recipe{}, err
	}
	program := paths[binaries.Pause]
	return recipe{
		name: "pause", tagged: []string{registry + "pause:1"}, inputs: []string{program},
		config: ocispec.ImageConfig{Entrypoint: []string{"/pause"}},
		files: func(context.Context, io.Writer) ([]file, error) {
			return []file{{path: "pause", mode: 0o755, source: program}}, nil
		},
	}, nil
}

func tools(ctx context.Context, source binaries.Source) (recipe, error) {
	const busybox = "/usr/bin/busybox"
	if err := debian.Host().Ensure(ctx, source.Steps, "busybox-static"); err != nil {
		return recipe{}, err
	}
	sum, err := fileDigest(busybox)
	return recipe{
		name: "tools", tagged: []string{registry + "tools:1"}, inputs: []string{sum},
		config: ocispec.ImageConfig{Cmd: []string{"/bin/sh"}, Env: []string{searchPath}},
		files: func(ctx context.Context, _ io.Writer) ([]file, error) {
			names, err := exec.CommandContext(ctx, busybox, "--list").Output()
			if err != nil {
				return nil, fmt.Errorf("list busybox's commands: %w", err)
			}
			files := []file{
				{path: "bin/busybox", mode: 0o755, source: busybox},
				{path: "etc/passwd", mode: 0o644, text: rootUser},
				{path: "tmp", mode: 0o1777},
			}
			for _, name := range strings.Fields(string(names)) {
				if name != "busybox" {
					files = append(files, file{path: "bin/" + name, mode: 0o777, target: "busybox"})
				}
			}
			return files, nil
		},
	}, err
}

// testGuest is the guest of package guest.
func testGuest(ctx context.Context, source binaries.Source) (recipe, error) {
	if err := debian.Host().Ensure(ctx, source.Steps, "busybox-static", "kmod", "linux-image-cloud-amd64"); err != nil {
		return recipe{}, err
	}
	var image guest.Image
	err := source.Steps.Run("build the guest", func(io.Writer) (err error) {
		image, err = guest.Build(ctx, guest.Options{CacheDir: filepath.Join(source.Cache, "guest")})
		return err
	})
	return recipe{
		name: "guest", tagged: []string{registry + "guest:1"}, inputs: []string{image.Kernel, image.Initramfs},
		files: func(context.Context, io.Writer) ([]file, error) {
			return []file{
				{path: "boot/vmlinuz", mode: 0o644, owner: qemuUser, source: image.Kernel},
				{path: "boot/initrd", mode: 0o644, owner: qemuUser, source: image.Initramfs},
			}, nil
		},
	}, err
}
