// Package images builds the container images that the pods of a test cluster's
// real nodes run, into the cache that all clones of a user share: those of
// KubeVirt on Debian's libvirt and QEMU, the guest of the tests, the product,
// and what a node needs besides. No registry and no image of others is used.
package images

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/debian"
	"github.com/joulevirt/joulevirt/test/internal/filelock"
)

// registry is the host in the images' names. Nothing is pulled from it.
const registry = "registry.local/"

// unusedFor is how long what another clone may still use is kept.
const unusedFor = time.Hour

// code decides what is in an image beside the programs.
//
//go:embed *.go
var code embed.FS

// Image is an image in the cache.
type Image struct {
	// Archive is an OCI layout in a tar file. `ctr images import` gives the
	// image all its names.
	Archive string
	// Names are references with a tag, such as registry.local/guest:1.
	Names []string
	// Digest is that of the manifest. The archive also has each name with it
	// in place of the tag: KubeVirt starts the target of a migration so.
	Digest string
}

// Set is all that the nodes need.
type Set struct {
	// Pause is the sandbox of a pod.
	Pause Image
	// Tools is busybox, for pods of tests.
	Tools Image
	// Guest has /boot/vmlinuz and /boot/initrd for a VM's kernelBoot.
	Guest Image
	// KubeVirt is virt-launcher and virt-handler in one, with a name for each.
	KubeVirt Image
	// Manager, Agent and Gateway are the product, of this checkout. See Parts.
	Manager, Agent, Gateway Image
}

// All returns the images in the order to import them.
func (s Set) All() []Image {
	return []Image{s.Pause, s.Tools, s.Guest, s.KubeVirt, s.Manager, s.Agent, s.Gateway}
}

// Parts are what not all nodes need.
type Parts struct{ Product, Gateway bool }

// Ensure returns the images, building what the cache lacks.
func Ensure(ctx context.Context, source binaries.Source, parts Parts) (Set, error) {
	var set Set
	for _, step := range []struct {
		wanted bool
		image  *Image
		recipe func(context.Context, binaries.Source) (recipe, error)
	}{
		{true, &set.Pause, pause}, {true, &set.Tools, tools}, {true, &set.Guest, testGuest}, {true, &set.KubeVirt, kubevirt},
		{parts.Product, &set.Manager, manager}, {parts.Product, &set.Agent, agent}, {parts.Gateway, &set.Gateway, gateway},
	} {
		if !step.wanted {
			continue
		}
		r, err := step.recipe(ctx, source)
		if err == nil {
			*step.image, err = r.ensure(ctx, source)
		}
		if err != nil {
			return Set{}, fmt.Errorf("build the images of a node: %w", err)
		}
	}
	return set, nil
}

// Prepare installs what images are built with, and makes what takes long and needs no program: the
// root file system.
func Prepare(ctx context.Context, source binaries.Source) error {
	err := debian.Host().Ensure(ctx, source.Steps, "busybox-static", "kmod", "linux-image-cloud-amd64", "mmdebstrap")
	if err == nil {
		err = os.MkdirAll(filepath.Join(source.Cache, "images"), 0o755)
	}
	if err == nil {
		_, err = newRootFS(source).ensure(ctx)
	}
	return err
}

// recipe says how an image is built.
type recipe struct {
	// name is the archive's.
	name string
	// tagged are the image's names.
	tagged []string
	config ocispec.ImageConfig
	// inputs name all that the image is built from, beside this package: an
	// archive with the same inputs is not built again.
	inputs []string
	// base returns the tar file of the first layer. May be nil.
	base func(context.Context) (string, error)
	// files returns the files of the last layer.
	files func(ctx context.Context, log io.Writer) ([]file, error)
}

// ensure returns the image, building it unless the cache has it.
func (r recipe) ensure(ctx context.Context, source binaries.Source) (Image, error) {
	key, err := r.key()
	if err != nil {
		return Image{}, err
	}
	dir := filepath.Join(source.Cache, "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Image{}, err
	}
	archive := filepath.Join(dir, r.name+"-"+key+".tar")
	if image, err := open(archive); !errors.Is(err, fs.ErrNotExist) {
		return image, err
	}
	if r.base != nil {
		if _, err := r.base(ctx); err != nil {
			return Image{}, err
		}
	}
	unlock, err := filelock.Take(ctx, filepath.Join(dir, r.name+".lock"), func() {
		source.Steps.Printf("setup: another process builds image %s: waiting", r.name)
	})
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	if image, err := open(archive); !errors.Is(err, fs.ErrNotExist) {
		return image, err
	}
	err = source.Steps.Run("build image "+r.name, func(log io.Writer) error { return r.build(ctx, archive, log) })
	if err != nil {
		return Image{}, err
	}
	if err := removeUnused(r.name, archive); err != nil {
		return Image{}, err
	}
	return open(archive)
}

// key condenses what the image is made of.
func (r recipe) key() (string, error) {
	hash := sha256.New()
	if err := json.NewEncoder(hash).Encode([]any{r.tagged, r.config, r.inputs}); err != nil {
		return "", err
	}
	err := fs.WalkDir(code, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := code.ReadFile(path)
		hash.Write(text)
		return err
	})
	return hex.EncodeToString(hash.Sum(nil))[:12], err
}

// build writes the archive beside its place and renames it there, so that an
// archive in the cache is always whole.
func (r recipe) build(ctx context.Context, archive string, log io.Writer) error {
	files, err := r.files(ctx, log)
	if err != nil {
		return err
	}
	top, err := newLayer(archive+".layer", files)
	if err != nil {
		return err
	}
	defer os.Remove(top.path)
	layers := []layer{top}
	if r.base != nil {
		path, err := r.base(ctx)
		if err != nil {
			return err
		}
		base, err := readLayer(path)
		if err != nil {
			return err
		}
		layers = []layer{base, top}
	}
	temporary := archive + ".tmp" // ours alone: we hold the lock
	defer os.Remove(temporary)
	if err := writeArchive(temporary, r.tagged, r.config, layers); err != nil {
		return err
	}
	return os.Rename(temporary, archive)
}

// open reads an archive's names, and marks it as used.
func open(archive string) (Image, error) {
	now := time.Now()
	if err := os.Chtimes(archive, now, now); err != nil {
		return Image{}, err
	}
	return readArchive(archive)
}

// removeUnused removes what is named NAME-KEY beside a path and was built of
// other inputs, unless another clone used it a short while ago.
func removeUnused(name, used string) error {
	// A key has 12 characters.
	all, err := filepath.Glob(filepath.Join(filepath.Dir(used), name+"-????????????"+filepath.Ext(used)))
	if err != nil {
		return err
	}
	for _, path := range all {
		info, err := os.Stat(path)
		if err == nil && path != used && time.Since(info.ModTime()) > unusedFor {
			err = os.RemoveAll(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an image that is not used: %w", err)
		}
	}
	return nil
}
