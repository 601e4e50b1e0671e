//go:build e2e

package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
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

// ensure builds the images, and again: the second time nothing may be built.
func ensure(t *testing.T) Set {
	t.Helper()
	first, err := Ensure(t.Context(), binaries.FromEnvironment(os.Getenv, os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	before := stat(t, first)
	var progress bytes.Buffer
	second, err := Ensure(t.Context(), binaries.FromEnvironment(os.Getenv, &progress))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("other images the second time:\n%s", diff)
	}
	for i, after := range stat(t, second) {
		if !os.SameFile(before[i], after) {
			t.Errorf("%s was built twice", after.Name())
		}
	}
	// Programs are looked at each time, which shows on a busy machine.
	for line := range strings.Lines(progress.String()) {
		if strings.Contains(line, "build image") || strings.Contains(line, "root file system") {
			t.Errorf("the second time something was done: %s", line)
		}
	}
	return second
}

func stat(t *testing.T, set Set) []os.FileInfo {
	t.Helper()
	var all []os.FileInfo
	for _, image := range set.All() {
		info, err := os.Stat(image.Archive)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info)
	}
	return all
}

// TestEnsure checks what a node, KubeVirt and the chart need of each image.
func TestEnsure(t *testing.T) {
	set := ensure(t)
	version, err := binaries.FromEnvironment(os.Getenv, nil).Version(binaries.VirtLauncher)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		image   Image
		names   []string
		command []string
		user    string
		files   []string
	}{
		{set.Pause, []string{"registry.local/pause:1"}, []string{"/pause"}, "", []string{"pause"}},
		{set.Tools, []string{"registry.local/tools:1"}, []string{"/bin/sh"}, "", []string{"bin/sh", "bin/busybox", "bin/sleep", "tmp"}},
		{set.Guest, []string{"registry.local/guest:1"}, nil, "", []string{"boot/vmlinuz", "boot/initrd"}},
		{set.KubeVirt, []string{"registry.local/kubevirt/virt-launcher:" + version, "registry.local/kubevirt/virt-handler:" + version},
			[]string{"/usr/bin/virt-launcher"}, "", []string{
				"usr/bin/virt-launcher", "usr/bin/virt-launcher-monitor", "usr/bin/virt-handler", "usr/bin/virt-chroot", "usr/bin/virt-probe",
				"usr/bin/virt-tail", "usr/bin/virt-freezer", "usr/bin/container-disk", "usr/bin/node-labeller.sh", "usr/sbin/virtqemud",
				"usr/libexec/joulevirt/virtqemud", "usr/sbin/virtlogd", "usr/bin/qemu-system-x86_64", "usr/bin/qemu-img", "usr/sbin/nft", "usr/bin/virsh",
				"usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so", "etc/libvirt/qemu.conf", "etc/libvirt/virtqemud.conf",
				"run/libvirt", "var/lib/kubevirt-node-labeller",
			}},
		{set.Manager, []string{"docker.io/joulevirt/manager:latest"}, []string{"/manager"}, "65532:65532", []string{"manager", "usr/share/sbom/manager.cdx.json"}},
		{set.Agent, []string{"docker.io/joulevirt/agent:latest"}, []string{"/agent"}, "0:0", []string{"agent", "usr/share/sbom/agent.cdx.json"}},
		{set.Gateway, []string{"docker.io/joulevirt/gateway:latest"}, []string{"/joulevirt-gateway"}, "65532:65532",
			[]string{"joulevirt-gateway", "usr/share/sbom/joulevirt-gateway.cdx.json", "usr/sbin/nginx", "var/lib/dpkg/status"}},
	} {
		t.Run(tt.names[0], func(t *testing.T) {
			got := unpack(t, tt.image)
			config := got.image.Config
			if command := slices.Concat(config.Entrypoint, config.Cmd); !slices.Equal(command, tt.command) || config.User != tt.user {
				t.Errorf("it runs %q as user %q, want %q as %q", command, config.User, tt.command, tt.user)
			}
			if !slices.Equal(tt.image.Names, tt.names) {
				t.Errorf("names are %q, want %q", tt.image.Names, tt.names)
			}
			var want []string
			for _, name := range tt.names {
				want = append(want, name, name[:strings.LastIndex(name, ":")]+"@"+tt.image.Digest)
			}
			if !slices.Equal(got.names, want) {
				t.Errorf("containerd calls it %q, want %q", got.names, want)
			}
			for _, path := range tt.files {
				if got.files[path] == nil {
					t.Errorf("it has no %s", path)
				}
			}
		})
	}
}

// TestKubeVirt checks what makes Debian's libvirt and QEMU serve KubeVirt.
func TestKubeVirt(t *testing.T) {
	got := unpack(t, ensure(t).KubeVirt)
	if link := got.files["var/run"]; link == nil || link.Linkname != "../run" {
		t.Errorf("/var/run is %v, want the relative link ../run", link)
	}
	// One file of two names, of which tar stores one as a link.
	daemon, name := got.files["usr/sbin/libvirtd"], got.files["usr/libexec/joulevirt/virtqemud"]
	if daemon == nil || name == nil || (daemon.Typeflag == tar.TypeLink) == (name.Typeflag == tar.TypeLink) {
		t.Errorf("virtqemud is %+v, want it to be libvirtd, %+v", name, daemon)
	}
	for path, header := range got.files {
		if strings.Contains(path, "libvirt/connection-driver/") && strings.HasPrefix(filepath.Base(path), "libvirt_driver_") &&
			!strings.HasPrefix(filepath.Base(path), "libvirt_driver_qemu") {
			t.Errorf("%s is there (%d bytes): want QEMU's driver only", path, header.Size)
		}
	}
	const capability = "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	if got := got.files["usr/bin/virt-launcher-monitor"].PAXRecords["SCHILY.xattr.security.capability"]; got != capability {
		t.Errorf("virt-launcher-monitor's capability is %x, want %x, as setcap stores cap_net_bind_service=eip", got, capability)
	}
	for path, line := range map[string]string{
		"etc/passwd":               "\nqemu:x:107:107:",
		"etc/group":                "\nkvm:x:36:",
		"usr/bin/node-labeller.sh": "\nKVM_MINOR=\n",
	} {
		if !strings.Contains(got.texts[path], line) {
			t.Errorf("/%s has no line %q:\n%s", path, line, got.texts[path])
		}
	}
	if !strings.Contains(got.texts["etc/passwd"], "\nlibvirt-qemu:") {
		t.Errorf("/etc/passwd has no user libvirt-qemu, whom Debian's libvirt looks up:\n%s", got.texts["etc/passwd"])
	}
}

// TestDockerfile checks that the product's images are what the Dockerfile makes of the same sources.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("../../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	set := ensure(t)
	for name, image := range map[string]Image{"manager": set.Manager, "agent": set.Agent} {
		t.Run(name, func(t *testing.T) {
			_, stage, found := strings.Cut(string(text), " AS "+name+"\n")
			if !found {
				t.Fatalf("the Dockerfile has no stage %s", name)
			}
			stage, _, _ = strings.Cut(stage, "\nFROM ")
			line := func(instruction string) string {
				match := regexp.MustCompile(`(?m)^` + instruction + ` (.*)$`).FindStringSubmatch(stage)
				if match == nil {
					t.Fatalf("the Dockerfile's stage %s has no %s", name, instruction)
				}
				return match[1]
			}
			got := unpack(t, image)
			var entrypoint []string
			decode(t, []byte(line("ENTRYPOINT")), &entrypoint)
			want := ocispec.ImageConfig{User: line("USER"), WorkingDir: line("WORKDIR"), Entrypoint: entrypoint}
			if diff := cmp.Diff(want, got.image.Config); diff != "" {
				t.Errorf("configuration, - of the Dockerfile, + of the image:\n%s", diff)
			}
			copies := regexp.MustCompile(`(?m)^COPY --from=build \S+ (\S+)$`).FindAllStringSubmatch(stage, -1)
			if len(copies) == 0 {
				t.Fatalf("the Dockerfile's stage %s copies nothing", name)
			}
			for path, header := range got.files {
				in := func(target []string) bool { return strings.HasPrefix("/"+path, target[1]) }
				if header.Typeflag == tar.TypeReg && !slices.ContainsFunc(copies, in) {
					t.Errorf("/%s is in the image, but the Dockerfile copies only %q", path, copies)
				}
			}
			for _, target := range copies {
				if path := strings.Trim(target[1], "/"); got.files[path] == nil {
					t.Errorf("the image has no /%s, which the Dockerfile copies", path)
				}
			}
		})
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
