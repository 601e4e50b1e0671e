package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// imageName is the annotation by which containerd names what it imports.
const imageName = "io.containerd.image.name"

// file is a file of a layer.
type file struct {
	// path in the image, without the first slash.
	path string
	mode int64
	// owner is the user and group.
	owner int
	// source is a file of this machine; target makes a symbolic link, and
	// neither of them, nor text, a folder.
	source, target, text string
	// bindPort lets a program, started by any user, listen below port 1024.
	bindPort bool
}

// layer is a tar file.
type layer struct {
	path string
	ocispec.Descriptor
}

// newLayer writes files to a tar file.
func newLayer(output string, files []file) (layer, error) {
	if err := writeTar(output, files); err != nil {
		return layer{}, err
	}
	return readLayer(output)
}

// writeTar writes files, and the folders above them, to a tar file. The same
// files give the same bytes.
func writeTar(output string, files []file) error {
	out, err := os.Create(output)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(out)
	made := map[string]bool{".": true}
	for _, f := range files {
		if err = writeFile(archive, made, f); err != nil {
			err = fmt.Errorf("add %s to %s: %w", f.path, output, err)
			break
		}
	}
	return errors.Join(err, archive.Close(), out.Close())
}

func writeFile(archive *tar.Writer, made map[string]bool, f file) error {
	if parent := path.Dir(f.path); !made[parent] {
		if err := writeFile(archive, made, file{path: parent, mode: 0o755}); err != nil {
			return err
		}
	}
	header := &tar.Header{Name: f.path, Mode: f.mode, Uid: f.owner, Gid: f.owner, Format: tar.FormatPAX}
	var content io.Reader = strings.NewReader(f.text)
	switch {
	case f.target != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, f.target
	case f.source != "":
		source, err := os.Open(f.source)
		if err != nil {
			return err
		}
		defer source.Close()
		info, err := source.Stat()
		if err != nil {
			return err
		}
		header.Typeflag, header.Size, content = tar.TypeReg, info.Size(), source
	case f.text != "":
		header.Typeflag, header.Size = tar.TypeReg, int64(len(f.text))
	default:
		header.Typeflag, header.Name = tar.TypeDir, f.path+"/"
		made[f.path] = true
	}
	if f.bindPort {
		header.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": bindPortCapability()}
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(archive, content)
	return err
}

// bindPortCapability is what `setcap cap_net_bind_service=eip` stores: the
// kernel's struct vfs_cap_data.
func bindPortCapability() string {
	const revision2, effective = 0x02000000, 1
	data := []uint32{revision2 | effective, 1 << unix.CAP_NET_BIND_SERVICE, 1 << unix.CAP_NET_BIND_SERVICE, 0, 0}
	var text bytes.Buffer
	for _, word := range data {
		text.Write(binary.LittleEndian.AppendUint32(nil, word))
	}
	return text.String()
}

// readLayer returns a tar file with its size and digest.
func readLayer(path string) (layer, error) {
	content, err := os.Open(path)
	if err != nil {
		return layer{}, err
	}
	defer content.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, content)
	if err != nil {
		return layer{}, fmt.Errorf("read %s: %w", path, err)
	}
	return layer{path: path, Descriptor: ocispec.Descriptor{
		// Not compressed: it is read once, on the machine that wrote it.
		MediaType: ocispec.MediaTypeImageLayer, Digest: digest.NewDigest(digest.SHA256, hash), Size: size,
	}}, nil
}

// writeArchive writes an OCI layout with one image of several names to a tar
// file, its index first.
func writeArchive(output string, names []string, config ocispec.ImageConfig, layers []layer) error {
	image := ocispec.Image{
		Platform: ocispec.Platform{Architecture: "amd64", OS: "linux"},
		Config:   config,
		RootFS:   ocispec.RootFS{Type: "layers"},
	}
	manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	for _, l := range layers {
		image.RootFS.DiffIDs = append(image.RootFS.DiffIDs, l.Digest)
		manifest.Layers = append(manifest.Layers, l.Descriptor)
	}
	imageText, err := json.Marshal(image)
	if err != nil {
		return err
	}
	manifest.Config = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromBytes(imageText), Size: int64(len(imageText))}
	manifestText, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	sum := digest.FromBytes(manifestText)
	for _, name := range names {
		for _, full := range []string{name, repository(name) + "@" + sum.String()} {
			index.Manifests = append(index.Manifests, ocispec.Descriptor{
				MediaType: ocispec.MediaTypeImageManifest, Digest: sum, Size: int64(len(manifestText)),
				Annotations: map[string]string{imageName: full},
			})
		}
	}
	indexText, err := json.Marshal(index)
	if err != nil {
		return err
	}
	files := []file{
		{path: ocispec.ImageIndexFile, mode: 0o644, text: string(indexText)},
		{path: ocispec.ImageLayoutFile, mode: 0o644, text: `{"imageLayoutVersion":"` + ocispec.ImageLayoutVersion + `"}`},
		{path: blob(sum), mode: 0o644, text: string(manifestText)},
		{path: blob(manifest.Config.Digest), mode: 0o644, text: string(imageText)},
	}
	for _, l := range layers {
		files = append(files, file{path: blob(l.Digest), mode: 0o644, source: l.path})
	}
	return writeTar(output, files)
}

func blob(sum digest.Digest) string {
	return path.Join(ocispec.ImageBlobsDir, sum.Algorithm().String(), sum.Encoded())
}

// repository is a name without its tag.
func repository(name string) string { return name[:strings.LastIndex(name, ":")] }

// readArchive reads an archive's index.
func readArchive(path string) (Image, error) {
	in, err := os.Open(path)
	if err != nil {
		return Image{}, err
	}
	defer in.Close()
	archive := tar.NewReader(in)
	header, err := archive.Next()
	var index ocispec.Index
	if err == nil && header.Name == ocispec.ImageIndexFile {
		err = json.NewDecoder(archive).Decode(&index)
	}
	if err != nil || len(index.Manifests) == 0 {
		return Image{}, fmt.Errorf("%s does not start with an index of images (%w): remove it", path, err)
	}
	image := Image{Archive: path, Digest: index.Manifests[0].Digest.String()}
	for _, manifest := range index.Manifests {
		if name := manifest.Annotations[imageName]; !strings.Contains(name, "@") {
			image.Names = append(image.Names, name)
		}
	}
	return image, nil
}
