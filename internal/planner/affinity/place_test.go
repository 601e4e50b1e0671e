package affinity

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// The nodes of the cases.
func desktop() Node { // 4 cores of 2 CPUs: 0 and 4, 1 and 5, ...
	return newTestNode(shape{Packages: 1, CachesPerPackage: 1, CoresPerCache: 4, Siblings: 2})
}

func plain(cores int) Node {
	return newTestNode(shape{Packages: 1, CachesPerPackage: 1, CoresPerCache: cores, Siblings: 1})
}

func server() Node { // 2 packages of 2 cores of 2 CPUs: 0 and 4, 1 and 5; 2 and 6, 3 and 7
	return newTestNode(shape{Packages: 2, CachesPerPackage: 1, CoresPerCache: 2, Siblings: 2})
}

func with(node Node, change func(*Node)) Node {
	change(&node)
	return node
}

func testVM(node Node, preference v1alpha1.AffinityPreference, demands ...units.Cores) VM {
	v := newTestVM("vm", node.Topology.Online(), demands...)
	v.Preference = preference
	return v
}

func but(v VM, change func(*VM)) VM {
	change(&v)
	return v
}

// placedOn tells a decision in short: its reason, and where the vCPUs are.
func placedOn(d Decision) string {
	text := d.Reason
	for _, pin := range d.Pins {
		text += " " + pin.CPUs.String()
	}
	return text
}

func TestPlace(t *testing.T) {
	const auto, pinned, separated = v1alpha1.AffinityAuto, v1alpha1.AffinityPinned, v1alpha1.AffinitySeparated
	on := func(cpus ...int) units.CPUSet { return units.NewCPUSet(cpus...) }
	busyFirst := with(desktop(), func(n *Node) { n.CPUs[0].BusyCores = 0.6 })
	sharing := func(s v1alpha1.SiblingSharing) Node {
		return with(newTestNode(shape{Packages: 1, CachesPerPackage: 1, CoresPerCache: 1, Siblings: 2}),
			func(n *Node) { n.Sharing = s })
	}
	hybrid := with(plain(4), func(n *Node) {
		for i, class := range []v1alpha1.CoreClass{v1alpha1.CoreEfficiency, v1alpha1.CoreEfficiency, v1alpha1.CorePerformance, v1alpha1.CorePerformance} {
			n.Topology.Cores[i].Class = class
		}
	})
	withNIC := with(server(), func(n *Node) { n.Topology.NICs = []model.NIC{{NUMANode: 1}} })
	for name, tc := range map[string]struct {
		node Node
		vms  []VM
		want []string
	}{
		"busy vCPUs get a core each, with all its siblings": {
			desktop(), []VM{testVM(desktop(), auto, 0.9, 0.8)}, []string{"Pinned 0,4 1,5"}},
		"idle vCPUs share one, and the others sleep": {
			desktop(), []VM{testVM(desktop(), auto, 0.05, 0.05, 0.04), testVM(desktop(), auto, 0.03)}, []string{"Pinned 0,4 0,4 0,4", "Pinned 0,4"}},
		"and so they do beside a busy one, not to wake another": {
			desktop(), []VM{testVM(desktop(), auto, 0.5), testVM(desktop(), auto, 0.05)}, []string{"Pinned 0,4", "Pinned 0,4"}},
		"what may run on one core only does not starve for a sleeping other": {
			with(plain(2), func(n *Node) { n.Costs.PerAwakeCore = 3 }), []VM{
				but(testVM(plain(2), v1alpha1.AffinitySeparated, 0.1), func(v *VM) { v.Rates.AllowedCPUs = on(0); v.Rates.VCPUs[0].CPUs = on(0) }), testVM(plain(2), auto, 1)},
			[]string{"NothingToSeparate", "Pinned 1"}},
		"a core with unmanaged load is no place for a busy one": {
			busyFirst, []VM{testVM(busyFirst, auto, 0.9)}, []string{"Pinned 1,5"}},
		"the sibling of an excluded CPU is excluded too": {
			with(desktop(), func(n *Node) { n.Excluded = on(0) }), []VM{testVM(desktop(), auto, 0.5)}, []string{"Pinned 1,5"}},
		"half a core is no core": {
			desktop(), []VM{but(testVM(desktop(), auto, 0.5), func(v *VM) { v.Rates.AllowedCPUs = on(0, 1) })}, []string{"NoAllowedCore"}},
		"a busy vCPU may have a quiet core to itself": {
			plain(1), []VM{testVM(plain(1), pinned, 1)}, []string{"Pinned 0"}},
		"but not one that others use by two fifths": {
			with(plain(1), func(n *Node) { n.CPUs[0].BusyCores = 0.9 }), []VM{testVM(plain(1), pinned, 0.5)}, []string{"CoreWouldBeHot"}},
		"no threads": {
			desktop(), []VM{testVM(desktop(), auto)}, []string{"NotRunning"}},
		"a core that VMs fill has no room for pins": {
			plain(1), []VM{testVM(plain(1), pinned, 0.7), testVM(plain(1), pinned, 0.2), testVM(plain(1), pinned, 0.2)},
			[]string{"CoreWouldBeHot", "CoreWouldBeHot", "CoreWouldBeHot"}},
		"what waits on CPUs that idle wants no more": {
			plain(2), []VM{testVM(plain(2), pinned, 0.4), but(testVM(plain(2), pinned, 0.1), func(v *VM) { v.Rates.VCPUs[0].WaitCores = 0.7 })},
			[]string{"Pinned 0", "Pinned 0"}},
		"what waits on CPUs that never do does": {
			with(plain(2), func(n *Node) { n.CPUs[0].StealCores, n.CPUs[1].StealCores = 0.75, 0.75 }), []VM{
				testVM(plain(2), pinned, 0.4), but(testVM(plain(2), pinned, 0.1), func(v *VM) { v.Rates.VCPUs[0].WaitCores = 0.7 })},
			[]string{"Pinned 1", "Pinned 0"}},
		"strangers share no siblings": {
			sharing(v1alpha1.ShareWithinVM), []VM{testVM(sharing(""), pinned, 0.3), testVM(sharing(""), pinned, 0.2)}, []string{"Pinned 0-1", "SiblingsTaken"}},
		"tenants share theirs": {
			sharing(v1alpha1.ShareWithinNamespace), []VM{
				testVM(sharing(""), pinned, 0.3), testVM(sharing(""), pinned, 0.2),
				but(testVM(sharing(""), pinned, 0.2), func(v *VM) { v.Namespace = "other" })},
			[]string{"Pinned 0-1", "Pinned 0-1", "SiblingsTaken"}},
		"all on one cache: nothing to separate": {
			desktop(), []VM{testVM(desktop(), separated, 0.4)}, []string{"NothingToSeparate"}},
		"separated to the memory's node": {
			server(), []VM{but(testVM(server(), separated, 0.4), func(v *VM) { v.Rates.MemoryMiB = []uint64{10, 4000} })}, []string{"Separated 2-3,6-7"}},
		"pinned near the memory": {
			server(), []VM{but(testVM(server(), auto, 0.6, 0.6), func(v *VM) { v.Rates.MemoryMiB = []uint64{10, 4000} })}, []string{"Pinned 2,6 3,7"}},
		"pinned near the network card, for network only": {
			withNIC, []VM{but(testVM(withNIC, auto, 0.6), func(v *VM) { v.Network = true })}, []string{"Pinned 2,6"}},
		"one class of cores, the fast one": {
			hybrid, []VM{testVM(hybrid, auto, 0.6, 0.5)}, []string{"Pinned 2 3"}},
		"the fast one, though a slow one is awake already": {
			with(hybrid, func(n *Node) { n.CPUs = slices.Clone(n.CPUs); n.CPUs[0].BusyCores = 0.05 }), []VM{testVM(hybrid, auto, 0.6)}, []string{"Pinned 2"}},
		"the slow one when the fast is full": {
			hybrid, []VM{testVM(hybrid, auto, 0.9, 0.9), testVM(hybrid, auto, 0.6)}, []string{"Pinned 2 3", "Pinned 0"}},
		"confined to the pool, if hot": {
			plain(4), []VM{but(testVM(plain(4), pinned, 0.9, 0.9, 0.9), func(v *VM) { v.Within = on(2, 3) })},
			[]string{"Separated 2-3 2-3 2-3"}},
		"and pinned in it otherwise": {
			plain(4), []VM{but(testVM(plain(4), auto, 0.9, 0.9), func(v *VM) { v.Within = on(2, 3) })}, []string{"Pinned 2 3"}},
		"saving too little is no saving": {
			plain(4), []VM{but(testVM(plain(4), auto, 0.3), func(v *VM) { v.Rates.AllowedCPUs = on(0); v.Rates.VCPUs[0].RunCores = 0.001 })}, []string{"NoSaving"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			s := scenario{Node: tc.node, VMs: tc.vms}
			s.Node.CPUs = slices.Clone(s.Node.CPUs)
			s.run()
			for _, d := range Place(s.Node, s.VMs).Decisions {
				got = append(got, placedOn(d))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// at puts a VM's vCPUs on cores, one after the other, which is where they run now.
func at(v VM, cores ...units.CPUSet) VM {
	for i, cpus := range cores {
		v.Current = append(v.Current, model.Pin{VCPU: i, CPUs: cpus})
		v.Rates.VCPUs[i].CPUs = cpus
	}
	return v
}

func place(node Node, vms ...VM) []string {
	s := scenario{Node: node, VMs: vms}
	s.Node.CPUs = slices.Clone(s.Node.CPUs)
	s.run()
	var got []string
	for _, d := range Place(s.Node, s.VMs).Decisions {
		got = append(got, placedOn(d))
	}
	return got
}

func TestPlaceStartsFromPinsInForce(t *testing.T) {
	const auto, pinned = v1alpha1.AffinityAuto, v1alpha1.AffinityPinned
	on := func(cpus ...int) units.CPUSet { return units.NewCPUSet(cpus...) }
	withLoad := func(load ...units.Cores) Node {
		return with(plain(4), func(n *Node) {
			for i := range load {
				n.CPUs[i].BusyCores = load[i]
			}
		})
	}
	for name, tc := range map[string]struct {
		node Node
		vms  []VM
		want []string
	}{
		"what gains little stays": {
			withLoad(0.02, 0.03, 0, 0), []VM{at(testVM(plain(4), auto, 0.5), on(3))}, []string{"Pinned 3"}},
		"what crowds a core moves": {
			withLoad(0, 0, 0, 0.4), []VM{at(testVM(plain(4), auto, 0.5), on(3))}, []string{"Pinned 0"}},
		"two that became busy are parted": {
			plain(2), []VM{at(testVM(plain(2), auto, 0.4), on(0)), at(testVM(plain(2), auto, 0.4), on(0))}, []string{"Pinned 1", "Pinned 0"}},
		"of a cpuset that shrank only what is outside moves": {
			plain(4), []VM{but(at(testVM(plain(4), pinned, 0.5, 0.5), on(2), on(3)), func(v *VM) { v.Rates.AllowedCPUs = on(0, 1, 2) })},
			[]string{"Pinned 2 0"}},
		"a vCPU that is plugged in moves no other": {
			plain(4), []VM{at(testVM(plain(4), auto, 0.5, 0.5), on(3))}, []string{"Pinned 3 0"}},
		"a newcomer takes nobody's place": {
			plain(2), []VM{testVM(plain(2), pinned, 0.3), at(testVM(plain(2), pinned, 0.6), on(0)), at(testVM(plain(2), auto, 0.55), on(1))},
			[]string{"CoreWouldBeHot", "Pinned 0", "Pinned 1"}},
		"a VM whose wish changed is bound anew": {
			server(), []VM{at(testVM(server(), v1alpha1.AffinitySeparated, 0.5), on(2, 6))}, []string{"Separated 0-1,4-5"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, place(tc.node, tc.vms...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// All would better share a core, and a few a round come to it; on a settled node none does.
func TestFewMoveARound(t *testing.T) {
	const cores, most = 12, 4
	node := plain(cores)
	s := scenario{Node: node}
	var decisions []Decision
	for core := range cores {
		s.VMs = append(s.VMs, testVM(node, v1alpha1.AffinityAuto, 0.08))
		cpus := units.NewCPUSet(core)
		decisions = append(decisions, Decision{
			Reason: v1alpha1.ReasonPinned, Pins: []model.Pin{{CPUs: cpus}},
			Threads: model.ThreadCPUs{Emulator: node.Topology.Online(), IOThreads: node.Topology.Online(), Vhost: node.Topology.Online()},
		})
	}
	s.Node.CPUs = slices.Clone(node.CPUs)
	settled := s.adopt(decisions)
	settled.Node.Settled = true
	if diff := cmp.Diff(decisions, Place(settled.Node, settled.VMs).Decisions); diff != "" {
		t.Errorf("pins of a settled node without a crowded core change (-was +is):\n%s", diff)
	}
	for range cores {
		s = s.adopt(decisions)
		next := Place(s.Node, s.VMs).Decisions
		moved := 0
		for i := range next {
			if !cmp.Equal(next[i], decisions[i]) {
				moved++
			}
		}
		if moved > most {
			t.Fatalf("%d VMs moved in a round, want at most %d", moved, most)
		}
		decisions = next
	}
	used := map[string]int{}
	for _, d := range decisions {
		used[d.Pins[0].CPUs.String()]++
	}
	if len(used) > 2 {
		t.Errorf("12 VMs that idle are on %d cores in the end: %v", len(used), used)
	}
}

func TestWhatIsPinnedWaitsLittle(t *testing.T) {
	busy := with(plain(2), func(n *Node) { n.CPUs[0].BusyCores, n.CPUs[1].BusyCores = 0.45, 0.45 })
	sliced := with(plain(2), func(n *Node) { n.Slices = true })
	small, compute := func(v *VM) { v.MaxWait = 0.02 }, func(v *VM) { v.Compute = true }
	for name, tc := range map[string]struct {
		node Node
		vms  []VM
		want []string
	}{
		"a tenth of the time, on a CPU that others use by half": {
			plain(2), []VM{at(testVM(plain(2), "Pinned", 0.5), units.NewCPUSet(0)), testVM(plain(2), "Pinned", 0.1)}, []string{"Pinned 0", "Pinned 1"}},
		"by a fifth": {
			plain(2), []VM{at(testVM(plain(2), "Pinned", 0.2), units.NewCPUSet(0)), testVM(plain(2), "Pinned", 0.1)}, []string{"Pinned 0", "Pinned 0"}},
		"what is pinned may wait for longer": {
			plain(2), []VM{at(testVM(plain(2), "Pinned", 0.4), units.NewCPUSet(0)), at(testVM(plain(2), "Pinned", 0.1), units.NewCPUSet(0))}, []string{"Pinned 0", "Pinned 0"}},
		"unless its service level says less": {
			plain(2), []VM{at(testVM(plain(2), "Pinned", 0.4), units.NewCPUSet(0)), but(at(testVM(plain(2), "Pinned", 0.1), units.NewCPUSet(0)), small)},
			[]string{"Pinned 0", "Pinned 1"}},
		"nor behind VMs of shorter slices": {
			sliced, []VM{at(testVM(sliced, "Pinned", 0.4), units.NewCPUSet(0)), but(at(testVM(sliced, "Pinned", 0.1), units.NewCPUSet(0)), compute)},
			[]string{"Pinned 1", "Pinned 0"}},
		"a short slice waits for no long one": {
			sliced, []VM{
				but(at(testVM(sliced, "Pinned", 0.4), units.NewCPUSet(0)), compute),
				but(at(testVM(sliced, "Pinned", 0.1), units.NewCPUSet(0)), func(v *VM) { v.MaxWait, v.Network = 0.02, true }),
			},
			[]string{"Pinned 0", "Pinned 0"}},
		"no room for a wish on CPUs that others use by half": {
			busy, []VM{testVM(busy, "Pinned", 0.2)}, []string{"CoreWouldBeHot"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := place(tc.node, tc.vms...); fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// No more idle vCPUs are stacked than ten to a CPU.
func TestFewVCPUsShareACPU(t *testing.T) {
	const vms, most = 14, 10
	var all []VM
	for range vms {
		all = append(all, testVM(plain(1), v1alpha1.AffinityPinned, 0.001))
	}
	bound := 0
	for _, got := range place(plain(1), all...) {
		if got == "Pinned 0" {
			bound++
		}
	}
	if bound != most {
		t.Errorf("%d of %d idle vCPUs are pinned to one CPU, want %d", bound, vms, most)
	}
}
