package discover

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/host"
)

const (
	uid      = "0f9a3c52-7d1e-4b7a-9c55-0123456789ab"
	otherUID = "11111111-2222-3333-4444-555555555555"
)

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
		ID: host.TaskID{PID: pid, TID: pid, Start: 1}, PodUID: uid, Guest: "shop_web",
	}
}

func TestIdentify(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*host.Process, *Inventory)
		known  bool
	}{
		"known":                    {func(*host.Process, *Inventory) {}, true},
		"no underscore":            {func(p *host.Process, _ *Inventory) { p.Guest = "web" }, false},
		"hostile guest name":       {func(p *host.Process, _ *Inventory) { p.Guest = "\x00_\xff" }, false},
		"another VM's name":        {func(p *host.Process, _ *Inventory) { p.Guest = "shop_db" }, false},
		"another namespace":        {func(p *host.Process, _ *Inventory) { p.Guest = "bank_web" }, false},
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
