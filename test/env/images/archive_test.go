package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// unpacked is what an archive holds.
type unpacked struct {
	image ocispec.Image
	// files of all layers by path; later layers replace those of earlier ones.
	files map[string]*tar.Header
	// texts of the small ones.
	texts map[string]string
	// names that containerd gives the image.
	names []string
}

// unpack reads an archive, and checks the digests and sizes in it.
func unpack(t *testing.T, image Image) unpacked {
	t.Helper()
	content, err := os.ReadFile(image.Archive)
	if err != nil {
		t.Fatal(err)
	}
	blobs := map[string][]byte{}
	readTar(t, content, func(header *tar.Header, content []byte) { blobs[header.Name] = content })
	read := func(d ocispec.Descriptor) []byte {
		text := blobs[blob(d.Digest)]
		if got := digest.FromBytes(text); got != d.Digest || int64(len(text)) != d.Size {
			t.Fatalf("%s: %d bytes of digest %s, want %d of %s", image.Archive, len(text), got, d.Size, d.Digest)
		}
		return text
	}
	var index ocispec.Index
	decode(t, blobs[ocispec.ImageIndexFile], &index)
	result := unpacked{files: map[string]*tar.Header{}, texts: map[string]string{}}
	for _, d := range index.Manifests {
		if d.Digest.String() != image.Digest {
			t.Errorf("%s: the index has %s, want only %s", image.Archive, d.Digest, image.Digest)
		}
		result.names = append(result.names, d.Annotations["io.containerd.image.name"])
	}
	var manifest ocispec.Manifest
	decode(t, read(index.Manifests[0]), &manifest)
	decode(t, read(manifest.Config), &result.image)
	for i, l := range manifest.Layers {
		if result.image.RootFS.DiffIDs[i] != l.Digest {
			t.Errorf("%s: layer %d is %s in the configuration, and %s in the manifest", image.Archive, i, result.image.RootFS.DiffIDs[i], l.Digest)
		}
		readTar(t, read(l), func(header *tar.Header, content []byte) {
			path := strings.Trim(strings.TrimPrefix(header.Name, "./"), "/")
			result.files[path] = header
			if len(content) < 1<<16 {
				result.texts[path] = string(content)
			}
		})
	}
	return result
}

func readTar(t *testing.T, content []byte, each func(*tar.Header, []byte)) {
	t.Helper()
	archive := tar.NewReader(bytes.NewReader(content))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		each(header, text)
	}
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
}

func TestArchive(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	if err := os.WriteFile(source, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	build := func(name string) Image {
		top, err := newLayer(filepath.Join(dir, name+".layer"), []file{
			{path: "usr/bin/program", mode: 0o755, owner: 107, source: source},
			{path: "usr/bin/link", mode: 0o777, target: "program"},
			{path: "etc/text", mode: 0o644, text: "words"},
			{path: "tmp", mode: 0o1777},
		})
		if err != nil {
			t.Fatal(err)
		}
		archive := filepath.Join(dir, name+".tar")
		if err := writeArchive(archive, []string{"registry.local:5000/a:1"}, ocispec.ImageConfig{User: "7"}, []layer{top}); err != nil {
			t.Fatal(err)
		}
		image, err := readArchive(archive)
		if err != nil {
			t.Fatal(err)
		}
		return image
	}
	first := build("first")
	// The time of a file must not matter.
	if err := os.Chtimes(source, time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if second := build("second"); second.Digest != first.Digest {
		t.Errorf("the same files gave %s and %s", first.Digest, second.Digest)
	}
	got := unpack(t, first)
	if want := []string{"registry.local:5000/a:1", "registry.local:5000/a@" + first.Digest}; !slices.Equal(got.names, want) {
		t.Errorf("names are %q, want %q", got.names, want)
	}
	for path, want := range map[string]tar.Header{
		"usr":             {Typeflag: tar.TypeDir, Mode: 0o755},
		"usr/bin":         {Typeflag: tar.TypeDir, Mode: 0o755},
		"usr/bin/program": {Typeflag: tar.TypeReg, Mode: 0o755, Uid: 107, Gid: 107, Size: 7},
		"usr/bin/link":    {Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: "program"},
		"etc/text":        {Typeflag: tar.TypeReg, Mode: 0o644, Size: 5},
		"tmp":             {Typeflag: tar.TypeDir, Mode: 0o1777},
	} {
		header := got.files[path]
		if header == nil {
			t.Errorf("the layer has no %s", path)
			continue
		}
		brief := tar.Header{
			Typeflag: header.Typeflag, Mode: header.Mode, Uid: header.Uid, Gid: header.Gid, Size: header.Size, Linkname: header.Linkname,
		}
		if diff := cmp.Diff(want, brief); diff != "" {
			t.Errorf("%s:\n%s", path, diff)
		}
	}
	if got.texts["usr/bin/program"] != "program" || got.image.Config.User != "7" {
		t.Errorf("the program is %q, run by %q", got.texts["usr/bin/program"], got.image.Config.User)
	}
}

func TestReadArchiveRejects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broken.tar")
	if err := writeTar(path, []file{{path: "other", mode: 0o644, text: "x"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := readArchive(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("an archive without index gave %v, want an error with its path", err)
	}
}

func TestNodeLabellerRejects(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "node-labeller"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "node-labeller", "node-labeller.sh"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if script, err := nodeLabeller(dir); err == nil {
		t.Errorf("a script that finds kvm otherwise was taken: %q", script)
	}
}

func TestRemoveUnused(t *testing.T) {
	dir := t.TempDir()
	ages := map[string]time.Duration{
		"agent-000000000000.tar": 2 * unusedFor, // the one that is used now
		"agent-111111111111.tar": 2 * unusedFor,
		"agent-222222222222.tar": 0,
		"guest-333333333333.tar": 2 * unusedFor,
	}
	for name, age := range ages {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Now(), time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeUnused("agent", filepath.Join(dir, "agent-000000000000.tar")); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"agent-000000000000.tar", "agent-222222222222.tar", "guest-333333333333.tar"}
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}
