package launcher

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

func TestCgroupNames(t *testing.T) {
	tests := map[string]struct {
		driver CgroupDriver
		qos    corev1.PodQOSClass
		want   string
	}{
		"class unknown":         {Cgroupfs, "", "kubepods/burstable/poda-b/cafe"},
		"burstable":             {Cgroupfs, corev1.PodQOSBurstable, "kubepods/burstable/poda-b/cafe"},
		"best effort":           {Cgroupfs, corev1.PodQOSBestEffort, "kubepods/besteffort/poda-b/cafe"},
		"guaranteed":            {Cgroupfs, corev1.PodQOSGuaranteed, "kubepods/poda-b/cafe"},
		"burstable, systemd":    {Systemd, corev1.PodQOSBurstable, "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice/cri-containerd-cafe.scope"},
		"guaranteed, systemd":   {Systemd, corev1.PodQOSGuaranteed, "kubepods.slice/kubepods-poda_b.slice/cri-containerd-cafe.scope"},
		"class unknown systemd": {Systemd, "", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice/cri-containerd-cafe.scope"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(cgroupNames(test.driver, test.qos, "a-b", "cafe"), "/"); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestSharesFor(t *testing.T) {
	tests := map[string]struct {
		requests []string
		want     uint64
	}{
		"none":                    {nil, 2},
		"one milli":               {[]string{"1m"}, 2},
		"a tenth":                 {[]string{"100m"}, 102},
		"sum of the containers'":  {[]string{"1", "500m"}, 1536},
		"more than the host does": {[]string{"64"}, 65536},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			for _, request := range test.requests {
				requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(request)}
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests}})
			}
			if got := sharesFor(pod); got != test.want {
				t.Errorf("got %d shares, want %d", got, test.want)
			}
		})
	}
}

// On a host that has its controllers in version 1, files stand for version 2's.
func TestVersion2(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "kubepods")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files := []string{filepath.Join(parent, "cgroup.subtree_control"), filepath.Join(dir, "cpu.weight"), filepath.Join(dir, "cpuset.cpus")}
	for _, file := range files {
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	enabling := hierarchy{mount: parent, unified: true, controllers: []string{"cpu", "hugetlb"}}
	if created, err := enabling.makeLevel(dir); err != nil || created {
		t.Fatalf("an existing level: created %t, %v", created, err)
	}
	setting := hierarchy{mount: parent, unified: true, controllers: []string{"cpu", "cpuset"}}
	if err := setting.set(dir, resources{shares: 1024, cpus: "0-3"}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, file := range files {
		got = append(got, read(t, file))
	}
	if diff := cmp.Diff([]string{"+cpu", "39", "0-3"}, got); diff != "" {
		t.Errorf("unexpected settings (-want +got):\n%s", diff)
	}
}

func TestWeightsOfBothVersions(t *testing.T) {
	for shares, want := range map[uint64]uint64{2: 1, 102: 4, 256: 10, 1024: 39, 262144: 10000} {
		if got := weightOf(shares); got != want {
			t.Errorf("%d shares are weight %d, want %d", shares, got, want)
		}
	}
	for weight := uint64(1); weight <= maxWeight; weight++ {
		if back := weightOf(sharesOf(weight)); back != weight {
			t.Fatalf("weight %d became %d", weight, back)
		}
	}
}

func TestRemoveLeavesForeignCgroups(t *testing.T) {
	mount := t.TempDir()
	names := []string{"kubepods", "burstable", "podx", "cafe"}
	dir := filepath.Join(mount, filepath.Join(names...))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := removeCgroup(t.Context(), []hierarchy{{mount: mount}}, names); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("a cgroup that was not created here is gone: %v", err)
	}
}

func TestDomain(t *testing.T) {
	vmi := &kubevirtv1.VirtualMachineInstance{}
	vmi.Namespace, vmi.Name, vmi.UID = "shop", "web_1", "u-1"
	vmi.Spec.Domain.CPU = &kubevirtv1.CPU{Sockets: 2, Cores: 3}
	vmi.Spec.Domain.Devices.Interfaces = []kubevirtv1.Interface{{Name: "pods", MacAddress: "02:00:00:00:00:07"}}
	domain, err := domainFor(vmi, false, DefaultMaxGuestMemory)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<domain type="qemu">`, `<name>shop_web_1</name>`, `<vcpu current="6">6</vcpu>`,
		`<topology sockets="2" cores="3" threads="1">`, `<memory unit="b">134217728</memory>`,
		`<mac address="02:00:00:00:00:07">`, `<target dev="tap0" managed="no">`, `<alias name="ua-pods">`,
		`<log file="/var/run/kubevirt-private/u-1/virt-serial0-log" append="on">`,
	} {
		if !strings.Contains(domain, want) {
			t.Errorf("the domain lacks %s:\n%s", want, domain)
		}
	}
	vmi.Spec.Domain.CPU.MaxSockets = 4
	pluggable, err := domainFor(vmi, false, DefaultMaxGuestMemory)
	if err != nil || !strings.Contains(pluggable, `<vcpu current="6">12</vcpu>`) || !strings.Contains(pluggable, `<topology sockets="4" cores="3" threads="1">`) {
		t.Errorf("no room for two more sockets: %v\n%s", err, pluggable)
	}
	kvm, err := domainFor(vmi, true, DefaultMaxGuestMemory)
	if err != nil || !strings.Contains(kvm, `<domain type="kvm">`) || !strings.Contains(kvm, `mode="host-passthrough"`) {
		t.Errorf("not a domain for KVM: %v\n%s", err, kvm)
	}
}

func TestGuestMemory(t *testing.T) {
	const limit = 128 << 20
	quantity := func(s string) *resource.Quantity { q := resource.MustParse(s); return &q }
	tests := map[string]struct {
		guest   *resource.Quantity
		request *resource.Quantity
		want    int64
	}{
		"nothing asked":            {nil, nil, limit},
		"less than the limit":      {quantity("96Mi"), nil, 96 << 20},
		"more than the limit":      {quantity("4Gi"), nil, limit},
		"by request":               {nil, quantity("100Mi"), 100 << 20},
		"guest wins over request":  {quantity("96Mi"), quantity("4Gi"), 96 << 20},
		"no negative memory comes": {quantity("-1"), nil, limit},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			vmi := &kubevirtv1.VirtualMachineInstance{}
			if test.guest != nil {
				vmi.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: test.guest}
			}
			if test.request != nil {
				vmi.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: *test.request}
			}
			if got := guestMemory(vmi, limit); got != test.want {
				t.Errorf("got %d bytes, want %d", got, test.want)
			}
		})
	}
}

func TestIsFileName(t *testing.T) {
	for name, want := range map[string]bool{
		"5d3f6bd0-7a1c": true, "": false, ".": false, "..": false, "/": false, "../x": false, "a/b": false, ".hidden": false,
	} {
		if got := isFileName(name); got != want {
			t.Errorf("isFileName(%q) is %t", name, got)
		}
	}
}

func TestNextAddress(t *testing.T) {
	subnet := netip.MustParsePrefix("10.254.7.0/29")
	tests := map[string]struct {
		last  string
		taken []string
		want  string
	}{
		"first":                     {"10.254.7.1", nil, "10.254.7.2"},
		"the next, not the lowest":  {"10.254.7.3", nil, "10.254.7.4"},
		"round, without broadcast":  {"10.254.7.6", nil, "10.254.7.2"},
		"taken ones are passed":     {"10.254.7.5", []string{"10.254.7.6", "10.254.7.2"}, "10.254.7.3"},
		"the last one, if the only": {"10.254.7.4", []string{"10.254.7.2", "10.254.7.3", "10.254.7.5", "10.254.7.6"}, "10.254.7.4"},
		"none left":                 {"10.254.7.4", []string{"10.254.7.2", "10.254.7.3", "10.254.7.4", "10.254.7.5", "10.254.7.6"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			taken := map[netip.Addr]bool{}
			for _, address := range test.taken {
				taken[netip.MustParseAddr(address)] = true
			}
			got, err := nextAddress(subnet, netip.MustParseAddr(test.last), taken)
			if test.want == "" {
				if err == nil {
					t.Errorf("a full subnet gave %s", got)
				}
				return
			}
			if err != nil || got.String() != test.want {
				t.Errorf("got %s, %v, want %s", got, err, test.want)
			}
		})
	}
}
