package affinity_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/planner/affinity/affinitytest"
	"github.com/joulevirt/joulevirt/internal/units"
)

// The nodes of the cases.
func desktop() affinity.Node { // 4 cores of 2 CPUs: 0 and 4, 1 and 5, ...
	return affinitytest.NewNode(affinitytest.Shape{Packages: 1, CachesPerPackage: 1, CoresPerCache: 4, Siblings: 2})
}

func plain(cores int) affinity.Node {
	return affinitytest.NewNode(affinitytest.Shape{Packages: 1, CachesPerPackage: 1, CoresPerCache: cores, Siblings: 1})
}

func server() affinity.Node { // 2 packages of 2 cores of 2 CPUs: 0 and 4, 1 and 5; 2 and 6, 3 and 7
	return affinitytest.NewNode(affinitytest.Shape{Packages: 2, CachesPerPackage: 1, CoresPerCache: 2, Siblings: 2})
}

func with(node affinity.Node, change func(*affinity.Node)) affinity.Node {
	change(&node)
	return node
}

func vm(node affinity.Node, preference model.AffinityPreference, demands ...units.Cores) affinity.VM {
	v := affinitytest.NewVM("vm", node.Topology.Online(), demands...)
	v.Preference = preference
	return v
}

func but(v affinity.VM, change func(*affinity.VM)) affinity.VM {
	change(&v)
	return v
}

// placedOn tells a decision in short: its reason, and where the vCPUs are.
func placedOn(d affinity.Decision) string {
	text := string(d.Reason)
	for _, pin := range d.Pins {
		text += " " + pin.CPUs.String()
	}
	return text
}

func TestPlace(t *testing.T) {
	const auto, pinned, separated = model.AffinityAuto, model.AffinityPinned, model.AffinitySeparated
	on := func(cpus ...int) units.CPUSet { return units.NewCPUSet(cpus...) }
	busyFirst := with(desktop(), func(n *affinity.Node) { n.CPUs[0].BusyCores = 0.6 })
	sharing := func(s model.SiblingSharing) affinity.Node {
		return with(affinitytest.NewNode(affinitytest.Shape{Packages: 1, CachesPerPackage: 1, CoresPerCache: 1, Siblings: 2}),
			func(n *affinity.Node) { n.Sharing = s })
	}
	hybrid := with(plain(4), func(n *affinity.Node) {
		for i, class := range []model.CoreClass{model.CoreEfficiency, model.CoreEfficiency, model.CorePerformance, model.CorePerformance} {
			n.Topology.Cores[i].Class = class
		}
	})
	withNIC := with(server(), func(n *affinity.Node) { n.Topology.NICs = []model.NIC{{Name: "eth0", NUMANode: 1}} })
	for name, tc := range map[string]struct {
		node affinity.Node
		vms  []affinity.VM
		want []string
	}{
		"busy vCPUs get a core each, with all its siblings": {
			desktop(), []affinity.VM{vm(desktop(), auto, 0.9, 0.8)}, []string{"Pinned 0,4 1,5"}},
		"idle vCPUs share one, and the others sleep": {
			desktop(), []affinity.VM{vm(desktop(), auto, 0.05, 0.05, 0.04), vm(desktop(), auto, 0.03)}, []string{"Pinned 0,4 0,4 0,4", "Pinned 0,4"}},
		"and so they do beside a busy one, not to wake another": {
			desktop(), []affinity.VM{vm(desktop(), auto, 0.5), vm(desktop(), auto, 0.05)}, []string{"Pinned 0,4", "Pinned 0,4"}},
		"what may run on one core only does not starve for a sleeping other": {
			with(plain(2), func(n *affinity.Node) { n.Costs.PerAwakeCore = 3 }), []affinity.VM{
				but(vm(plain(2), model.AffinitySeparated, 0.1), func(v *affinity.VM) { v.Rates.AllowedCPUs = on(0); v.Rates.VCPUs[0].CPUs = on(0) }), vm(plain(2), auto, 1)},
			[]string{"NothingToSeparate", "Pinned 1"}},
		"a core with unmanaged load is no place for a busy one": {
			busyFirst, []affinity.VM{vm(busyFirst, auto, 0.9)}, []string{"Pinned 1,5"}},
		"the sibling of an excluded CPU is excluded too": {
			with(desktop(), func(n *affinity.Node) { n.Excluded = on(0) }), []affinity.VM{vm(desktop(), auto, 0.5)}, []string{"Pinned 1,5"}},
		"half a core is no core": {
			desktop(), []affinity.VM{but(vm(desktop(), auto, 0.5), func(v *affinity.VM) { v.Rates.AllowedCPUs = on(0, 1) })}, []string{"NoAllowedCore"}},
		"a busy vCPU may have a quiet core to itself": {
			plain(1), []affinity.VM{vm(plain(1), pinned, 1)}, []string{"Pinned 0"}},
		"but not one that others use by two fifths": {
			with(plain(1), func(n *affinity.Node) { n.CPUs[0].BusyCores = 0.9 }), []affinity.VM{vm(plain(1), pinned, 0.5)}, []string{"CoreWouldBeHot"}},
		"no threads": {
			desktop(), []affinity.VM{vm(desktop(), auto)}, []string{"NotRunning"}},
		"a core that VMs fill has no room for pins": {
			plain(1), []affinity.VM{vm(plain(1), pinned, 0.7), vm(plain(1), pinned, 0.2), vm(plain(1), pinned, 0.2)},
			[]string{"CoreWouldBeHot", "CoreWouldBeHot", "CoreWouldBeHot"}},
		"what waits on CPUs that idle wants no more": {
			plain(2), []affinity.VM{vm(plain(2), pinned, 0.4), but(vm(plain(2), pinned, 0.1), func(v *affinity.VM) { v.Rates.VCPUs[0].WaitCores = 0.7 })},
			[]string{"Pinned 0", "Pinned 0"}},
		"what waits on CPUs that never do does": {
			with(plain(2), func(n *affinity.Node) { n.CPUs[0].StealCores, n.CPUs[1].StealCores = 0.75, 0.75 }), []affinity.VM{
				vm(plain(2), pinned, 0.4), but(vm(plain(2), pinned, 0.1), func(v *affinity.VM) { v.Rates.VCPUs[0].WaitCores = 0.7 })},
			[]string{"Pinned 0", "Pinned 1"}},
		"strangers share no siblings": {
			sharing(model.ShareWithinVM), []affinity.VM{vm(sharing(""), pinned, 0.3), vm(sharing(""), pinned, 0.2)}, []string{"Pinned 0-1", "SiblingsTaken"}},
		"tenants share theirs": {
			sharing(model.ShareWithinNamespace), []affinity.VM{
				vm(sharing(""), pinned, 0.3), vm(sharing(""), pinned, 0.2),
				but(vm(sharing(""), pinned, 0.2), func(v *affinity.VM) { v.Namespace = "other" })},
			[]string{"Pinned 0-1", "Pinned 0-1", "SiblingsTaken"}},
		"all on one cache: nothing to separate": {
			desktop(), []affinity.VM{vm(desktop(), separated, 0.4)}, []string{"NothingToSeparate"}},
		"separated to the memory's node": {
			server(), []affinity.VM{but(vm(server(), separated, 0.4), func(v *affinity.VM) { v.Rates.MemoryMiB = []uint64{10, 4000} })}, []string{"Separated 2-3,6-7"}},
		"pinned near the memory": {
			server(), []affinity.VM{but(vm(server(), auto, 0.6, 0.6), func(v *affinity.VM) { v.Rates.MemoryMiB = []uint64{10, 4000} })}, []string{"Pinned 2,6 3,7"}},
		"pinned near the network card, for network only": {
			withNIC, []affinity.VM{but(vm(withNIC, auto, 0.6), func(v *affinity.VM) { v.Network = true })}, []string{"Pinned 2,6"}},
		"one class of cores, the fast one": {
			hybrid, []affinity.VM{vm(hybrid, auto, 0.6, 0.5)}, []string{"Pinned 2 3"}},
		"the slow one when the fast is full": {
			hybrid, []affinity.VM{vm(hybrid, auto, 0.9, 0.9), vm(hybrid, auto, 0.6)}, []string{"Pinned 2 3", "Pinned 0"}},
		"confined to the pool, if hot": {
			plain(4), []affinity.VM{but(vm(plain(4), pinned, 0.9, 0.9, 0.9), func(v *affinity.VM) { v.Within = on(2, 3) })},
			[]string{"Separated 2-3 2-3 2-3"}},
		"and pinned in it otherwise": {
			plain(4), []affinity.VM{but(vm(plain(4), auto, 0.9, 0.9), func(v *affinity.VM) { v.Within = on(2, 3) })}, []string{"Pinned 2 3"}},
		"saving too little is no saving": {
			plain(4), []affinity.VM{but(vm(plain(4), auto, 0.3), func(v *affinity.VM) { v.Rates.AllowedCPUs = on(0); v.Rates.VCPUs[0].RunCores = 0.001 })}, []string{"NoSaving"}},
		"a small VM does not starve beside a vCPU with a large pod's weight": {
			plain(2), []affinity.VM{
				but(vm(plain(2), pinned, 0.4), func(v *affinity.VM) { v.Rates.AllowedCPUs = on(0); v.Rates.Weight = 100 * 1024 }),
				but(vm(plain(2), pinned, 0.25), func(v *affinity.VM) { v.Rates.Weight = 100 })},
			[]string{"Pinned 0", "Pinned 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			s := affinitytest.Scenario{Node: tc.node, VMs: tc.vms}
			s.Node.CPUs = slices.Clone(s.Node.CPUs)
			s.Run()
			for _, d := range affinity.Place(s.Node, s.VMs).Decisions {
				got = append(got, placedOn(d))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
