package discover

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/host"
)

const (
	uid        = "0f9a3c52-7d1e-4b7a-9c55-0123456789ab"
	otherUID   = "11111111-2222-3333-4444-555555555555"
	systemdUID = "0f9a3c52_7d1e_4b7a_9c55_0123456789ab"
	container  = "c0ffee0000000000000000000000000000000000000000000000000000000000"
)

func TestPodUID(t *testing.T) {
	for name, test := range map[string]struct {
		cgroups string
		want    string
	}{
		"version 2, systemd, burstable":    {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + systemdUID + ".slice/cri-containerd-" + container + ".scope\n", uid},
		"version 2, systemd, guaranteed":   {"0::/kubepods.slice/kubepods-pod" + systemdUID + ".slice/crio-" + container + ".scope\n", uid},
		"version 2, cgroupfs, burstable":   {"0::/kubepods/burstable/pod" + uid + "/" + container + "\n", uid},
		"version 2, cgroupfs, guaranteed":  {"0::/kubepods/pod" + uid + "/" + container + "\n", uid},
		"version 1":                        {"9:name=systemd:/kubepods/besteffort/pod" + uid + "/x\n3:cpuset:/kubepods/besteffort/pod" + uid + "/x\n0::/\n", uid},
		"nested below libvirt's own":       {"0::/kubepods/burstable/pod" + uid + "/" + container + "/machine.slice/emulator\n", uid},
		"a node in a container (kind)":     {"0::/system.slice/docker-abc.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + systemdUID + ".slice/cri-containerd-x.scope\n", uid},
		"K3s":                              {"0::/k3s/kubepods/burstable/pod" + uid + "/x\n", uid},
		"a node in a pod: the inner pod":   {"0::/kubepods/burstable/pod" + otherUID + "/x/kubepods/burstable/pod" + uid + "/y\n", uid},
		"own cgroup namespace, systemd":    {"0::/../../kubepods-burstable-pod" + systemdUID + ".slice/cri-containerd-x.scope\n", uid},
		"own cgroup namespace, cgroupfs":   {"0::/../../pod" + uid + "/x\n", uid},
		"hierarchies disagree":             {"3:cpuset:/kubepods/pod" + uid + "/x\n0::/kubepods/pod" + otherUID + "/x\n", ""},
		"no pod":                           {"0::/system.slice/libvirtd.service\n", ""},
		"a pod's name outside of kubepods": {"0::/user.slice/pod" + uid + "/x\n", ""},
		"kubepods too far above":           {"0::/kubepods/a/b/pod" + uid + "/x\n", ""},
		"not a UID":                        {"0::/kubepods/burstable/podnginx/x\n", ""},
		"static pod":                       {"0::/kubepods/burstable/pod0123456789abcdef0123456789abcdef/x\n", ""},
		"an unrelated slice":               {"0::/evil-pod" + systemdUID + ".slice\n", ""},
		"empty":                            {"", ""},
		"no colons":                        {"nonsense\n\n:::\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := PodUID(test.cgroups)
			if got != test.want || ok != (test.want != "") {
				t.Errorf("PodUID = %q, %v; want %q", got, ok, test.want)
			}
		})
	}
}

func TestGuest(t *testing.T) {
	for name, test := range map[string]struct {
		args            []string
		namespace, name string
		named           bool
	}{
		"KubeVirt":           {[]string{"qemu-kvm", "-name", "guest=shop_web,debug-threads=on", "-S"}, "shop", "web", true},
		"two dashes":         {[]string{"qemu-kvm", "--name", "guest=shop_web"}, "shop", "web", true},
		"short form":         {[]string{"qemu-kvm", "-name", "shop_web"}, "shop", "web", true},
		"no underscore":      {[]string{"q", "-name", "guest=vm1"}, "vm1", "", true},
		"a probe of libvirt": {[]string{"q", "-S", "-machine", "none"}, "", "", false},
		"no value":           {[]string{"q", "-name"}, "", "", false},
		"another option":     {[]string{"q", "-name", "process=qemu"}, "", "", false},
	} {
		namespace, vm, named := Guest(test.args)
		if namespace != test.namespace || vm != test.name || named != test.named {
			t.Errorf("%s: %q, %q, %v", name, namespace, vm, named)
		}
	}
}

func TestRoleOf(t *testing.T) {
	for name, want := range map[string]Role{
		"CPU 0/KVM":       {VCPU, 0},
		"CPU 17/TCG":      {VCPU, 17},
		"IO iothread1":    {Kind: IOThread},
		"IO mon_iothread": {Kind: IOThread},
		"vhost-1234":      {Kind: Vhost},
		"worker":          {Kind: Other},
		"CPU -1/KVM":      {Kind: Other},
		"CPU 99999/KVM":   {Kind: Other},
		"CPU 0/XEN":       {Kind: Other},
		"CPU 0":           {Kind: Other},
		"CPU /KVM":        {Kind: Other},
		"":                {Kind: Other},
	} {
		if got := RoleOf(host.Thread{ID: host.TaskID{PID: 1, TID: 2}, Name: name}); got != want {
			t.Errorf("RoleOf(%q) = %v, want %v", name, got, want)
		}
	}
	if got := RoleOf(host.Thread{ID: host.TaskID{PID: 2, TID: 2}, Name: "CPU 0/KVM"}); got.Kind != Emulator {
		t.Errorf("the main thread is %v, want the emulator", got)
	}
	if got := RoleOf(host.Thread{ID: host.TaskID{PID: 2, TID: 2}, Name: "vhost-1234"}); got.Kind != Vhost {
		t.Errorf("the kernel's worker is %v", got)
	}
}

func inventory() *Inventory {
	return &Inventory{
		Pods: map[string]Pod{uid: {UID: uid, Namespace: "shop", CreatedBy: "vmi-1"}},
		VMIs: map[string]VMI{"vmi-1": {UID: "vmi-1", Namespace: "shop", Name: "web", Dedicated: true, ActivePods: []string{uid}}},
	}
}

func process(pid int) host.Process {
	return host.Process{
		ID:      host.TaskID{PID: pid, TID: pid, Start: 1},
		Args:    []string{"qemu-kvm", "-name", "guest=shop_web"},
		Cgroups: "0::/kubepods/burstable/pod" + uid + "/x\n",
	}
}

func TestIdentify(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*host.Process, *Inventory)
		known  bool
	}{
		"known":                    {func(*host.Process, *Inventory) {}, true},
		"no guest name":            {func(p *host.Process, _ *Inventory) { p.Args = nil }, false},
		"hostile guest name":       {func(p *host.Process, _ *Inventory) { p.Args[2] = "guest=\x00_\xff" }, false},
		"another VM's name":        {func(p *host.Process, _ *Inventory) { p.Args[2] = "guest=shop_db" }, false},
		"another namespace":        {func(p *host.Process, _ *Inventory) { p.Args[2] = "guest=bank_web" }, false},
		"no pod":                   {func(p *host.Process, _ *Inventory) { p.Cgroups = "0::/\n" }, false},
		"a pod that is not here":   {func(_ *host.Process, i *Inventory) { delete(i.Pods, uid) }, false},
		"a VMI that is not here":   {func(_ *host.Process, i *Inventory) { delete(i.VMIs, "vmi-1") }, false},
		"a pod labelled by a user": {func(_ *host.Process, i *Inventory) { i.Pods[uid] = Pod{uid, "evil", "vmi-1"} }, false},
		"a pod that KubeVirt does not know": {func(_ *host.Process, i *Inventory) {
			vmi := i.VMIs["vmi-1"]
			vmi.ActivePods = []string{otherUID}
			i.VMIs["vmi-1"] = vmi
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, i := process(10), inventory()
			test.change(&p, i)
			vm, known := identify(p, i)
			if known != test.known {
				t.Fatalf("known: %v", known)
			}
			want := VM{}
			if known {
				want = VM{Process: p.ID, PodUID: uid, Namespace: "shop", Name: "web", Dedicated: true}
			}
			if diff := cmp.Diff(want, vm); diff != "" {
				t.Errorf("VM (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTwoProcessesOfOnePodAreBothUnknown(t *testing.T) {
	if vms := All([]host.Process{process(10), process(11)}, inventory()); len(vms) != 0 {
		t.Errorf("VMs %v, want none", vms)
	}
}
