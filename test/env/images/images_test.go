//go:build e2e

package images

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

// ensure builds the images, and again: the second time nothing may be built.
func ensure(t *testing.T) Set {
	t.Helper()
	parts := Parts{Product: true, Gateway: true}
	first, err := Ensure(t.Context(), binaries.FromEnvironment(os.Getenv, os.Stderr), parts)
	if err != nil {
		t.Fatal(err)
	}
	before := stat(t, first)
	var progress bytes.Buffer
	second, err := Ensure(t.Context(), binaries.FromEnvironment(os.Getenv, &progress), parts)
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
