package tools

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// domain is one as KubeVirt makes it, around interfaces.
func domain(interfaces ...string) string {
	return `<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>vm</name>
<memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>` + strings.Join(interfaces, "\n") + `</devices>
<qemu:commandline><qemu:env name='A' value='B'/></qemu:commandline></domain>`
}

const (
	plain = `<interface type='ethernet'><target dev='tap0' managed='no'/><mac address='02:00:00:00:00:01'/>
<model type='virtio-non-transitional'/><rom enabled='no'/><alias name='ua-default'/></interface>`
	multiqueue = `<interface type='ethernet'><mac address='02:00:00:00:00:02'/><model type='virtio'/><driver queues='2'/></interface>`
	vhost      = `<interface type='ethernet'><mac address='02:00:00:00:00:03'/><model type='virtio'/><driver name='vhost' queues='2'/></interface>`
	emulated   = `<interface type='ethernet'><mac address='02:00:00:00:00:04'/><model type='e1000'/></interface>`
	decided    = `<interface type='ethernet'><mac address='02:00:00:00:00:05'/><model type='virtio'/><driver txmode='iothread'/></interface>`
	unnamed    = `<interface type='ethernet'><mac address='02:00:00:00:00:06'/></interface>`
	vhostUser  = `<interface type='vhostuser'><mac address='02:00:00:00:00:07'/><source type='unix' path='/s' mode='client'/><model type='virtio'/></interface>`
)

// hook runs the script as KubeVirt's sidecar does.
func hook(t *testing.T, domain string) string {
	t.Helper()
	out, err := exec.Command("python3", filepath.Join(shipped, "tx-timer/on_define_domain.py"), "--vmi", "{}", "--domain", domain).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// txModes reads the mode of each interface.
func txModes(t *testing.T, text string) (modes []string) {
	t.Helper()
	var d struct {
		Interfaces []struct {
			Driver struct {
				TxMode string `xml:"txmode,attr"`
			} `xml:"driver"`
		} `xml:"devices>interface"`
	}
	if err := xml.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, i := range d.Interfaces {
		modes = append(modes, i.Driver.TxMode)
	}
	return modes
}

func TestTxTimerHook(t *testing.T) {
	once := hook(t, domain(plain, multiqueue, vhost, emulated, decided, unnamed, vhostUser))
	if diff := cmp.Diff([]string{"timer", "timer", "", "", "iothread", "", ""}, txModes(t, once)); diff != "" {
		t.Errorf("modes (-want +got):\n%s", diff)
	}
	for _, kept := range []string{`queues="2"`, "xmlns:qemu=", "<qemu:env", "ua-default"} {
		if !strings.Contains(once, kept) {
			t.Errorf("the domain lost %s:\n%s", kept, once)
		}
	}
	if twice := hook(t, once); twice != once {
		t.Errorf("a second run changed it:\n%s", twice)
	}
	if out, err := exec.Command("python3", filepath.Join(shipped, "tx-timer/on_define_domain.py"), "--domain", "<domain").Output(); err == nil || len(out) > 0 {
		t.Errorf("of no domain it made %q", out)
	}
}

// libvirt's own schema and parser take what the hook makes. That its QEMU driver gives QEMU
// tx=timer for it was seen with libvirt 9 and a started domain, which takes a minute.
func TestLibvirtTakesTheTimer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "domain.xml")
	if err := os.WriteFile(path, []byte(hook(t, domain(plain, multiqueue))), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("virsh", "-q", "-c", "test:///default", "define --validate "+path+"; dumpxml vm").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := string(out)
	if diff := cmp.Diff([]string{"timer", "timer"}, txModes(t, text[strings.Index(text, "<domain"):])); diff != "" {
		t.Errorf("modes (-want +got):\n%s\n%s", diff, text)
	}
}

// QEMU takes the property on the card that KubeVirt's VMs have.
func TestQEMUHasTheTimer(t *testing.T) {
	out, err := exec.Command("qemu-system-x86_64", "-device", "virtio-net-pci-non-transitional,help").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "  tx=<str>") {
		t.Errorf("%v\n%s", err, out)
	}
}
