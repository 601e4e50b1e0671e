package findings

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// states alternates names and percentages, and ends names of disabled ones with "!".
func states(words ...any) *v1alpha1.Sleep {
	out := &v1alpha1.Sleep{}
	for i := 0; i < len(words); i += 2 {
		name := words[i].(string)
		disabled := name[len(name)-1] == '!'
		if disabled {
			name = name[:len(name)-1]
		}
		out.States = append(out.States, v1alpha1.IdleState{Name: name, Percent: int32(words[i+1].(int)), Disabled: disabled})
	}
	return out
}

func TestSleep(t *testing.T) {
	with := func(s *v1alpha1.Sleep, change func(*v1alpha1.Sleep)) *v1alpha1.Sleep {
		change(s)
		return s
	}
	for name, test := range map[string]struct {
		sleep  *v1alpha1.Sleep
		nested bool
		want   string
	}{
		"not known":              {nil, false, ""},
		"deep, as it should be":  {states("POLL", 0, "C1", 2, "C1E", 5, "C6", 80), false, ""},
		"deep now and then":      {states("POLL", 0, "C1", 80, "C6", 1), false, ""},
		"busy":                   {states("POLL", 0, "C1", 19, "C6", 0), false, ""},
		"shallow":                {states("POLL", 0, "C1", 70, "C1E", 20, "C6", 0), false, v1alpha1.ReasonSleepShallow},
		"polling":                {states("POLL", 95, "C1", 0, "C2", 0), false, v1alpha1.ReasonSleepShallow},
		"ACPI's names":           {states("POLL", 0, "C1_ACPI", 90, "C2_ACPI", 0, "C3_ACPI", 0), false, v1alpha1.ReasonSleepShallow},
		"C10 is deep":            {states("POLL", 0, "C1E", 10, "C10", 80), false, ""},
		"none deeper":            {states("POLL", 0, "C1", 90), false, v1alpha1.ReasonSleepMissing},
		"all deeper disabled":    {states("POLL", 0, "C1", 90, "C6!", 0), false, v1alpha1.ReasonSleepDisabled},
		"some disabled":          {states("POLL", 0, "C1", 90, "C3!", 0, "C6", 0), false, v1alpha1.ReasonSleepShallow},
		"held":                   {with(states("POLL", 0, "C1", 90, "C6", 0), func(s *v1alpha1.Sleep) { s.HeldBy = []string{"tuned"} }), false, v1alpha1.ReasonSleepHeld},
		"by an argument":         {with(states("POLL", 0, "C1", 90), func(s *v1alpha1.Sleep) { s.KernelArguments = []string{"intel_idle.max_cstate=1"} }), false, v1alpha1.ReasonSleepArguments},
		"an argument that fails": {with(states("POLL", 0, "C1", 9, "C6", 81), func(s *v1alpha1.Sleep) { s.KernelArguments = []string{"intel_idle.max_cstate=1"} }), false, ""},
		"ARM, refused":           {states("WFI", 95, "cpu-sleep-0", 0, "cluster-sleep-0", 0), false, v1alpha1.ReasonSleepShallow},
		"ARM, WFI alone":         {states("WFI", 95), false, ""},
		"a hypervisor's":         {states("POLL", 0, "C1", 90), true, ""},
		"no states":              {&v1alpha1.Sleep{}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			report := &v1alpha1.NodeReportStatus{Sleep: test.sleep, VMs: 1}
			report.Topology.Nested = test.nested
			got := ""
			for _, f := range OfNode(Node{Name: "n", Report: report}) {
				got += f.Reason
			}
			if got != test.want {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

func TestNodes(t *testing.T) {
	report := &v1alpha1.NodeReportStatus{
		Sleep:        states("POLL", 0, "C1", 50, "C6", 0),
		Topology:     v1alpha1.Topology{Clocks: &v1alpha1.Clocks{Governor: "performance", HighestMegahertz: 3600}},
		Capabilities: []v1alpha1.Capability{{Name: vhostNet, Message: "module vhost_net is not loaded"}},
	}
	watts := ptr.To(units.Watts(100))
	found := OfNode(Node{Name: "n", Report: report, Watts: watts, Basis: v1alpha1.BasisMeasured})
	type brief struct {
		Reason, Object string
		Watts          *units.Watts
		Basis          v1alpha1.Basis
	}
	var got []brief
	for _, f := range found {
		got = append(got, brief{f.Reason, f.Object, f.Watts, f.Basis})
		if f.ChangedBy != v1alpha1.FindingOwnerClusterAdmin || f.Message == "" || f.Remedy == "" {
			t.Errorf("%+v is not whole", f)
		}
	}
	idle := 0.5
	want := []brief{
		{v1alpha1.ReasonSleepShallow, "Node/n", ptr.To(units.Watts(sleepShare * idle * 100)), v1alpha1.BasisModelled},
		{v1alpha1.ReasonFixedClock, "Node/n", nil, ""},
		{v1alpha1.ReasonIdleNode, "Node/n", watts, v1alpha1.BasisMeasured},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	report.VMs = 1
	got = nil
	for _, f := range OfNode(Node{Name: "n", Report: report}) {
		got = append(got, brief{f.Reason, f.Object, f.Watts, f.Basis})
	}
	want = []brief{
		{v1alpha1.ReasonSleepShallow, "Node/n", nil, ""}, {v1alpha1.ReasonFixedClock, "Node/n", nil, ""}, {v1alpha1.ReasonVhostMissing, "Node/n", nil, ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with VMs, without a meter (-want +got):\n%s", diff)
	}
	report.OtherWriters, report.PollingThreads, report.Sleep.HaltPollMicroseconds = []string{"irqbalance", "tuned"}, 2, 1000
	got = nil
	for _, f := range OfNode(Node{Name: "n", Report: report}) {
		got = append(got, brief{f.Reason, f.Object, f.Watts, f.Basis})
		if writes := strings.Contains(f.Message, "irqbalance") && strings.Contains(f.Message, "tuned") && strings.Contains(f.Remedy, "; "); writes != (f.Reason == v1alpha1.ReasonOtherWriter) {
			t.Errorf("of writers: %+v", f)
		}
	}
	want = append(want, brief{v1alpha1.ReasonOtherWriter, "Node/n", nil, ""}, brief{v1alpha1.ReasonPollingThreads, "Node/n", nil, ""}, brief{v1alpha1.ReasonHaltPolling, "Node/n", nil, ""})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with other programs (-want +got):\n%s", diff)
	}
	if found := OfNode(Node{Name: "n"}); found != nil {
		t.Errorf("%+v was found on a node without a report", found)
	}
}

func TestVMs(t *testing.T) {
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	devices := &vmi.Spec.Domain.Devices
	devices.Interfaces = []virtv1.Interface{{Name: "fast", Model: "virtio"}, {Name: "default"}}
	devices.Disks = []virtv1.Disk{
		{Name: "root", DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{Bus: virtv1.DiskBusVirtio}}},
		{Name: "cd", DiskDevice: virtv1.DiskDevice{CDRom: &virtv1.CDRomTarget{Bus: virtv1.DiskBusSATA}}},
	}
	if found := OfVM(vmi, nil, nil, 0); found != nil {
		t.Errorf("%+v was found of a VM with virtio alone", found)
	}
	devices.Interfaces = append(devices.Interfaces, virtv1.Interface{Name: "slow", Model: "e1000e"})
	devices.Disks = append(devices.Disks, virtv1.Disk{Name: "data", DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{Bus: virtv1.DiskBusSATA}}})
	want := []Found{
		{
			Reason: v1alpha1.ReasonEmulatedCard, Object: "VirtualMachineInstance/shop/web", ChangedBy: v1alpha1.FindingOwnerVMOwner,
			Message: "slow is an e1000e: about twice the cycles a byte of virtio", Remedy: "spec.template.spec.domain.devices.interfaces[].model: virtio",
		},
		{
			Reason: v1alpha1.ReasonEmulatedDisk, Object: "VirtualMachineInstance/shop/web", ChangedBy: v1alpha1.FindingOwnerVMOwner,
			Message: "data is at bus sata: each request leaves the guest several times", Remedy: "spec.template.spec.domain.devices.disks[].disk.bus: virtio",
		},
	}
	if diff := cmp.Diff(want, OfVM(vmi, nil, nil, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBusyAndIdleVMs(t *testing.T) {
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	rates := func(vcpus int, vhost float64) *model.VMRates {
		return &model.VMRates{VCPUs: make([]model.VCPURates, vcpus), Vhost: model.ThreadRates{RunCores: units.Cores(vhost)}, Taps: make([]model.TapRates, 1), MemoryMiB: []uint64{1024, 512}}
	}
	queues := vmi.DeepCopy()
	queues.Spec.Domain.Devices.NetworkInterfaceMultiQueue = ptr.To(true)
	for name, test := range map[string]struct {
		vmi   *virtv1.VirtualMachineInstance
		rates *model.VMRates
		idle  time.Duration
		want  string
	}{
		"full":          {vmi, rates(4, 0.9), 0, v1alpha1.ReasonOneQueue},
		"has time":      {vmi, rates(4, 0.8), 0, ""},
		"two vCPUs":     {vmi, rates(2, 0.9), 0, ""},
		"more queues":   {queues, rates(4, 0.9), 0, ""},
		"almost a day":  {vmi, rates(4, 0), 23 * time.Hour, ""},
		"a day":         {vmi, rates(4, 0), 25 * time.Hour, v1alpha1.ReasonIdleVM},
		"not heard now": {vmi, nil, 25 * time.Hour, ""},
	} {
		got := ""
		for _, f := range OfVM(test.vmi, nil, test.rates, test.idle) {
			got += f.Reason
		}
		if got != test.want {
			t.Errorf("%s: found %q, want %q", name, got, test.want)
		}
	}
	if got := OfVM(vmi, nil, rates(4, 0), 50*time.Hour)[0].Message; got != "4 vCPUs and 1.5 GiB did nothing for 2 days" {
		t.Error(got)
	}
}

// TestVhostUnused by a VM that started before the node had it.
func TestVhostUnused(t *testing.T) {
	with := &v1alpha1.NodeReportStatus{Capabilities: []v1alpha1.Capability{{Name: vhostNet, Available: true}}}
	without := &v1alpha1.NodeReportStatus{Capabilities: []v1alpha1.Capability{{Name: vhostNet}}}
	fast := model.VMRates{Taps: []model.TapRates{{ToVM: model.TrafficRates{PacketsPerSecond: 2000}}}}
	slow, helped := fast, fast
	slow.Taps = []model.TapRates{{ToVM: model.TrafficRates{PacketsPerSecond: 500}}}
	helped.Vhost.SwitchesPerSecond = 1
	emulated := &virtv1.VirtualMachineInstance{}
	emulated.Spec.Domain.Devices.Interfaces = []virtv1.Interface{{Model: "e1000"}}
	for name, test := range map[string]struct {
		vmi    *virtv1.VirtualMachineInstance
		report *v1alpha1.NodeReportStatus
		rates  *model.VMRates
		want   bool
	}{
		"unused":            {nil, with, &fast, true},
		"the node has none": {nil, without, &fast, false},
		"not known":         {nil, nil, &fast, false},
		"little traffic":    {nil, with, &slow, false},
		"used":              {nil, with, &helped, false},
		"emulated card":     {emulated, with, &fast, false},
	} {
		if test.vmi == nil {
			test.vmi = &virtv1.VirtualMachineInstance{}
		}
		found := OfVM(test.vmi, test.report, test.rates, 0)
		if got := slices.ContainsFunc(found, func(f Found) bool { return f.Reason == v1alpha1.ReasonVhostUnused }); got != test.want {
			t.Errorf("%s: found %v", name, found)
		}
	}
}

// TestWritesToLocalVolumes are found of VMs that have no others.
func TestWritesToLocalVolumes(t *testing.T) {
	container := virtv1.Volume{Name: "root", VolumeSource: virtv1.VolumeSource{ContainerDisk: &virtv1.ContainerDiskSource{}}}
	empty := virtv1.Volume{Name: "data", VolumeSource: virtv1.VolumeSource{EmptyDisk: &virtv1.EmptyDiskSource{}}}
	seed := virtv1.Volume{Name: "seed", VolumeSource: virtv1.VolumeSource{CloudInitNoCloud: &virtv1.CloudInitNoCloudSource{}}}
	claim := virtv1.Volume{Name: "db", VolumeSource: virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{}}}
	for name, test := range map[string]struct {
		volumes []virtv1.Volume
		written units.PerSecond
		want    string
	}{
		"much":        {[]virtv1.Volume{seed, container, empty}, 12.34e6, "wrote 12.3 MB/s to root, data: a file on the node's own disk, which ends with the pod"},
		"little":      {[]virtv1.Volume{container}, 1e6, ""},
		"and a claim": {[]virtv1.Volume{container, claim}, 12e6, ""},
		"none":        {nil, 12e6, ""},
	} {
		vmi := &virtv1.VirtualMachineInstance{}
		vmi.Spec.Volumes = test.volumes
		got := ""
		for _, f := range OfVM(vmi, nil, &model.VMRates{WrittenBytesPerSecond: test.written}, 0) {
			got += f.Message
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestIdleIsRemembered(t *testing.T) {
	var idle Idle
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	look := func(after time.Duration, cores units.Cores, packets units.PacketsPerSecond, want time.Duration) {
		t.Helper()
		now = now.Add(after)
		vm := &model.VMRates{PodUID: "p", Emulator: model.ThreadRates{RunCores: cores}, Taps: []model.TapRates{{ToVM: model.TrafficRates{PacketsPerSecond: packets}}}}
		if got := idle.Look(vm, now); got != want {
			t.Errorf("idle for %s, want %s", got, want)
		}
	}
	look(0, 0.01, 5, 0)
	look(time.Minute, 0.01, 5, time.Minute)
	look(time.Hour, 0.02, 19, 61*time.Minute)
	look(time.Minute, 0.01, 25, 0)
	look(time.Minute, 0.01, 5, time.Minute)
	look(time.Minute, 0.05, 5, 0)
	look(50*time.Minute, 0, 0, 50*time.Minute)
	look(2*time.Hour, 0, 0, 0) // not heard of for too long
}

func TestLimits(t *testing.T) {
	profile := &v1alpha1.VMNetworkProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}}
	profile.Status.DisturbedVMs = []v1alpha1.DisturbedVM{
		{Name: "a", Node: "n", Reason: v1alpha1.CauseNeighbour, LostCores: "3"},
		{Name: "b", Node: "n", Reason: v1alpha1.CauseOwnLimit, LostCores: "1.5", Message: "limits.cpu 4 throttled b"},
	}
	found := OfProfile(profile)
	if len(found) != 1 || len(found["n"]) != 1 || found["n"][0].Object != "VirtualMachineInstance/shop/b" || found["n"][0].LostCores != 1.5 {
		t.Errorf("found %+v", found)
	}
}
