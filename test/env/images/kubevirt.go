package images

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

const (
	rootUser = "root:x:0:0:root:/root:/bin/sh\n"
	// users are KubeVirt's, and Debian's of libvirt, which libvirt looks up
	// even where qemu.conf names another.
	users = rootUser +
		"qemu:x:107:107:qemu:/home/qemu:/bin/sh\n" +
		"libvirt-qemu:x:64055:36::/var/lib/libvirt:/usr/sbin/nologin\n" +
		"nobody:x:65534:65534:::/usr/sbin/nologin\n"
	groups = "root:x:0:\ntty:x:5:\nkvm:x:36:\nlibvirt:x:103:\nqemu:x:107:\nlibvirt-qemu:x:64055:\nnogroup:x:65534:\n"
	// libvirtd is the configuration of the daemon that stands for virtqemud.
	libvirtd = "unix_sock_group = \"root\"\nauth_unix_ro = \"none\"\nauth_unix_rw = \"none\"\nlog_outputs = \"1:stderr\"\n"
)

// minorOfKVM is the line of node-labeller.sh by which it makes /dev/kvm.
var minorOfKVM = regexp.MustCompile(`(?m)^(KVM_MINOR|HYPERVISOR_DEV_MINOR)=.*$`)

// kubevirt is one image for virt-launcher and virt-handler: KubeVirt's programs
// and configuration on Debian.
func kubevirt(ctx context.Context, source binaries.Source) (recipe, error) {
	programs := kubevirtPrograms(source)
	paths, err := source.Ensure(ctx, append(programs, binaries.Virtqemud)...)
	if err != nil {
		return recipe{}, err
	}
	version, err := source.Version(binaries.VirtLauncher)
	if err != nil {
		return recipe{}, err
	}
	root := newRootFS(source)
	r := recipe{
		name: "kubevirt", inputs: []string{root.path()}, base: root.ensure,
		tagged: []string{registry + "kubevirt/virt-launcher:" + version, registry + "kubevirt/virt-handler:" + version},
		config: ocispec.ImageConfig{Entrypoint: []string{"/usr/bin/virt-launcher"}, Env: []string{searchPath}},
	}
	for _, program := range append(programs, binaries.Virtqemud) {
		r.inputs = append(r.inputs, paths[program])
	}
	r.files = func(ctx context.Context, _ io.Writer) ([]file, error) {
		dir, err := source.SourceDir(ctx, binaries.VirtLauncher)
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(dir, "cmd", "virt-launcher")
		labeller, err := nodeLabeller(dir)
		if err != nil {
			return nil, err
		}
		files := []file{
			{path: "etc/passwd", mode: 0o644, text: users},
			{path: "etc/group", mode: 0o644, text: groups},
			{path: "etc/libvirt/libvirtd.conf", mode: 0o644, text: libvirtd},
			{path: "etc/libvirt/qemu.conf", mode: 0o644, source: filepath.Join(dir, "qemu.conf")},
			{path: "etc/libvirt/virtqemud.conf", mode: 0o644, source: filepath.Join(dir, "virtqemud.conf")},
			{path: "etc/libvirt/hooks", mode: 0o777}, // KubeVirt 1.9's launcher puts a link there, and is no root
			{path: "init/usr/bin", mode: 0o755},
			{path: "run/libvirt", mode: 0o755},
			{path: "usr/bin/node-labeller.sh", mode: 0o755, text: labeller},
			{path: "usr/sbin/virtqemud", mode: 0o755, source: paths[binaries.Virtqemud]},
			{path: "usr/share/OVMF", mode: 0o755},
			{path: "var/cache/libvirt/qemu", mode: 0o755},
			{path: "var/lib/kubevirt-node-labeller", mode: 0o755},
			{path: "var/lib/libvirt", mode: 0o755},
			{path: "var/log/libvirt", mode: 0o755},
		}
		for _, program := range programs {
			files = append(files, file{
				path: "usr/bin/" + string(program), mode: 0o755, source: paths[program],
				bindPort: program == binaries.VirtLauncherMonitor,
			})
		}
		return files, nil
	}
	return r, nil
}

// kubevirtPrograms are those in /usr/bin.
func kubevirtPrograms(source binaries.Source) []binaries.Component {
	programs := []binaries.Component{
		binaries.VirtLauncher, binaries.VirtLauncherMonitor, binaries.VirtHandler, binaries.VirtChroot,
		binaries.VirtProbe, binaries.VirtTail, binaries.VirtFreezer, binaries.ContainerDisk,
	}
	if source.Versions["kubevirt"] == binaries.NewestKubeVirt {
		programs = append(programs, binaries.LibvirtHookClient)
	}
	return programs
}

// Programs returns those that are put into images.
func Programs(source binaries.Source) []binaries.Component {
	return append(kubevirtPrograms(source), binaries.Virtqemud, binaries.Pause)
}

// nodeLabeller returns KubeVirt's script that finds what QEMU emulates, less
// the line by which it makes /dev/kvm where the kernel lists the device: on a
// VM without nested virtualization that runs no guest, and the script fails.
func nodeLabeller(dir string) (string, error) {
	script, err := os.ReadFile(filepath.Join(dir, "node-labeller", "node-labeller.sh"))
	if err != nil {
		return "", err
	}
	if !minorOfKVM.Match(script) {
		return "", fmt.Errorf("KubeVirt's node-labeller.sh has no line %s any more: see how it makes /dev/kvm", minorOfKVM)
	}
	return minorOfKVM.ReplaceAllString(string(script), "$1="), nil
}
