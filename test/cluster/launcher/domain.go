package launcher

import (
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/test/cluster/launcher/internal/container"
	"github.com/joulevirt/joulevirt/test/guest"
)

// Paths of the guest's boot files in the container.
const (
	kernelPath    = "/var/run/kubevirt/kernel"
	initramfsPath = "/var/run/kubevirt/initramfs"
)

// The libvirt domain, as far as this package uses it.
type (
	domainXML struct {
		XMLName  xml.Name      `xml:"domain"`
		Type     string        `xml:"type,attr"`
		Name     string        `xml:"name"`
		UUID     string        `xml:"uuid"`
		Memory   memoryXML     `xml:"memory"`
		VCPU     vcpuXML       `xml:"vcpu"`
		OS       osXML         `xml:"os"`
		ACPI     struct{}      `xml:"features>acpi"`
		CPU      cpuXML        `xml:"cpu"`
		OnCrash  string        `xml:"on_crash"`
		OnReboot string        `xml:"on_reboot"`
		Emulator string        `xml:"devices>emulator"`
		USB      controllerXML `xml:"devices>controller"`
		Network  interfaceXML  `xml:"devices>interface"`
		Serial   serialXML     `xml:"devices>serial"`
		Balloon  modelXML      `xml:"devices>memballoon"`
	}
	memoryXML struct {
		Unit  string `xml:"unit,attr"`
		Bytes int64  `xml:",chardata"`
	}
	// vcpuXML is how many vCPUs there can be, and how many there are at the start.
	vcpuXML struct {
		Current uint32 `xml:"current,attr"`
		Most    uint32 `xml:",chardata"`
	}
	osXML struct {
		Type    osTypeXML `xml:"type"`
		Kernel  string    `xml:"kernel"`
		Initrd  string    `xml:"initrd"`
		Cmdline string    `xml:"cmdline"`
	}
	osTypeXML struct {
		Arch    string `xml:"arch,attr"`
		Machine string `xml:"machine,attr"`
		Value   string `xml:",chardata"`
	}
	cpuXML struct {
		Mode     string      `xml:"mode,attr,omitempty"`
		Topology topologyXML `xml:"topology"`
	}
	topologyXML struct {
		Sockets uint32 `xml:"sockets,attr"`
		Cores   uint32 `xml:"cores,attr"`
		Threads uint32 `xml:"threads,attr"`
	}
	controllerXML struct {
		Type  string `xml:"type,attr"`
		Model string `xml:"model,attr"`
	}
	interfaceXML struct {
		Type   string    `xml:"type,attr"`
		MAC    macXML    `xml:"mac"`
		Target targetXML `xml:"target"`
		Model  struct {
			Type string `xml:"type,attr"`
		} `xml:"model"`
		ROM struct {
			Enabled string `xml:"enabled,attr"`
		} `xml:"rom"`
		Alias struct {
			Name string `xml:"name,attr"`
		} `xml:"alias"`
	}
	macXML struct {
		Address string `xml:"address,attr"`
	}
	targetXML struct {
		Dev     string `xml:"dev,attr"`
		Managed string `xml:"managed,attr"`
	}
	serialXML struct {
		Type   string `xml:"type,attr"`
		Source struct {
			Mode string `xml:"mode,attr"`
			Path string `xml:"path,attr"`
		} `xml:"source"`
		Log struct {
			File   string `xml:"file,attr"`
			Append string `xml:"append,attr"`
		} `xml:"log"`
	}
	modelXML struct {
		Model string `xml:"model,attr"`
	}
)

// domainName is KubeVirt's name of a VMI's libvirt domain.
func domainName(vmi *kubevirtv1.VirtualMachineInstance) string {
	return vmi.Namespace + "_" + vmi.Name
}

// consoleDir is KubeVirt's folder for the VMI's serial console, seen from
// inside the container.
func consoleDir(vmiUID types.UID) string {
	return filepath.Join(container.PrivateDir, string(vmiUID))
}

const (
	serialSocket = "virt-serial0"
	serialLog    = "virt-serial0-log"
)

// topology is the VMI's, each part at least one, with room for the sockets that may
// be plugged in while the VM runs, and the vCPUs that it starts with.
func topology(vmi *kubevirtv1.VirtualMachineInstance) (t topologyXML, vcpus vcpuXML) {
	t = topologyXML{Sockets: 1, Cores: 1, Threads: 1}
	most := uint32(0)
	if cpu := vmi.Spec.Domain.CPU; cpu != nil {
		t = topologyXML{Sockets: max(1, cpu.Sockets), Cores: max(1, cpu.Cores), Threads: max(1, cpu.Threads)}
		most = cpu.MaxSockets
	}
	vcpus.Current = t.Sockets * t.Cores * t.Threads
	t.Sockets = max(t.Sockets, most)
	vcpus.Most = t.Sockets * t.Cores * t.Threads
	return t, vcpus
}

// guestMemory is what the VMI asks for, in bytes, but at most limit.
func guestMemory(vmi *kubevirtv1.VirtualMachineInstance, limit int64) int64 {
	asked := vmi.Spec.Domain.Resources.Requests.Memory().Value()
	if memory := vmi.Spec.Domain.Memory; memory != nil && memory.Guest != nil {
		asked = memory.Guest.Value()
	}
	if asked <= 0 {
		return limit
	}
	return min(asked, limit)
}

// interfaceName is the VMI's first network's, on which the device alias builds.
func interfaceName(vmi *kubevirtv1.VirtualMachineInstance) string {
	if interfaces := vmi.Spec.Domain.Devices.Interfaces; len(interfaces) > 0 {
		return interfaces[0].Name
	}
	return "default"
}

// guestMAC is the VMI's own, or one made from its UID: locally administered
// and the same after a restart of the pod.
func guestMAC(vmi *kubevirtv1.VirtualMachineInstance) string {
	if interfaces := vmi.Spec.Domain.Devices.Interfaces; len(interfaces) > 0 && interfaces[0].MacAddress != "" {
		return interfaces[0].MacAddress
	}
	sum := sha256.Sum256([]byte(vmi.UID))
	return net.HardwareAddr(append([]byte{0x02}, sum[:5]...)).String()
}

// domainFor renders the libvirt domain of vmi.
func domainFor(vmi *kubevirtv1.VirtualMachineInstance, kvm bool, maxMemory int64) (string, error) {
	if strings.Contains(vmi.Namespace, "_") {
		return "", fmt.Errorf("namespace %q of VMI %s: must not contain an underscore", vmi.Namespace, vmi.Name)
	}
	t, vcpus := topology(vmi)
	d := domainXML{
		Type:     "qemu",
		Name:     domainName(vmi),
		UUID:     uuid.NewSHA1(uuid.NameSpaceOID, []byte(vmi.UID)).String(),
		Memory:   memoryXML{Unit: "b", Bytes: guestMemory(vmi, maxMemory)},
		VCPU:     vcpus,
		CPU:      cpuXML{Topology: t},
		OnCrash:  "destroy",
		OnReboot: "destroy",
		OS: osXML{
			Type:    osTypeXML{Arch: "x86_64", Machine: "q35", Value: "hvm"},
			Kernel:  kernelPath,
			Initrd:  initramfsPath,
			Cmdline: guest.CommandLine(fmt.Sprintf("%s/%d", guestAddress, guestBits), guestGateway),
		},
		Emulator: "/usr/bin/qemu-system-x86_64",
		USB:      controllerXML{Type: "usb", Model: "none"},
		Balloon:  modelXML{Model: "none"},
	}
	if kvm {
		d.Type, d.CPU.Mode = "kvm", "host-passthrough"
	}
	d.Network.Type = "ethernet"
	d.Network.MAC.Address = guestMAC(vmi)
	d.Network.Target = targetXML{Dev: podTap, Managed: "no"}
	d.Network.Model.Type = "virtio-non-transitional"
	d.Network.ROM.Enabled = "no"
	d.Network.Alias.Name = "ua-" + interfaceName(vmi)
	d.Serial.Type = "unix"
	d.Serial.Source.Mode = "bind"
	d.Serial.Source.Path = filepath.Join(consoleDir(vmi.UID), serialSocket)
	d.Serial.Log.File = filepath.Join(consoleDir(vmi.UID), serialLog)
	d.Serial.Log.Append = "on"
	text, err := xml.MarshalIndent(d, "", "  ")
	if err != nil {
		return "", fmt.Errorf("write the domain of VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	return string(text), nil
}
