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

// at puts a VM's vCPUs on cores, one after the other, which is where they run now.
func at(v affinity.VM, cores ...units.CPUSet) affinity.VM {
	for i, cpus := range cores {
		v.Current = append(v.Current, model.Pin{VCPU: i, CPUs: cpus})
		v.Rates.VCPUs[i].CPUs = cpus
	}
	return v
}

func place(node affinity.Node, vms ...affinity.VM) []string {
	s := affinitytest.Scenario{Node: node, VMs: vms}
	s.Node.CPUs = slices.Clone(s.Node.CPUs)
	s.Run()
	var got []string
	for _, d := range affinity.Place(s.Node, s.VMs).Decisions {
		got = append(got, placedOn(d))
	}
	return got
}

func TestPlaceStartsFromPinsInForce(t *testing.T) {
	const auto, pinned = model.AffinityAuto, model.AffinityPinned
	on := func(cpus ...int) units.CPUSet { return units.NewCPUSet(cpus...) }
	withLoad := func(load ...units.Cores) affinity.Node {
		return with(plain(4), func(n *affinity.Node) {
			for i := range load {
				n.CPUs[i].BusyCores = load[i]
			}
		})
	}
	for name, tc := range map[string]struct {
		node affinity.Node
		vms  []affinity.VM
		want []string
	}{
		"what gains little stays": {
			withLoad(0.02, 0.03, 0, 0), []affinity.VM{at(vm(plain(4), auto, 0.5), on(3))}, []string{"Pinned 3"}},
		"what crowds a core moves": {
			withLoad(0, 0, 0, 0.4), []affinity.VM{at(vm(plain(4), auto, 0.5), on(3))}, []string{"Pinned 0"}},
		"two that became busy are parted": {
			plain(2), []affinity.VM{at(vm(plain(2), auto, 0.4), on(0)), at(vm(plain(2), auto, 0.4), on(0))}, []string{"Pinned 1", "Pinned 0"}},
		"of a cpuset that shrank only what is outside moves": {
			plain(4), []affinity.VM{but(at(vm(plain(4), pinned, 0.5, 0.5), on(2), on(3)), func(v *affinity.VM) { v.Rates.AllowedCPUs = on(0, 1, 2) })},
			[]string{"Pinned 2 0"}},
		"a vCPU that is plugged in moves no other": {
			plain(4), []affinity.VM{at(vm(plain(4), auto, 0.5, 0.5), on(3))}, []string{"Pinned 3 0"}},
		"a newcomer takes nobody's place": {
			plain(2), []affinity.VM{vm(plain(2), pinned, 0.3), at(vm(plain(2), pinned, 0.6), on(0)), at(vm(plain(2), auto, 0.55), on(1))},
			[]string{"CoreWouldBeHot", "Pinned 0", "Pinned 1"}},
		"a VM whose wish changed is bound anew": {
			server(), []affinity.VM{at(vm(server(), model.AffinitySeparated, 0.5), on(2, 6))}, []string{"Separated 0-1,4-5"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, place(tc.node, tc.vms...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// All would better share a core, and a few a round come to it.
func TestFewMoveARound(t *testing.T) {
	const cores, most = 12, 4
	node := plain(cores)
	s := affinitytest.Scenario{Node: node}
	var decisions []affinity.Decision
	for core := range cores {
		s.VMs = append(s.VMs, vm(node, model.AffinityAuto, 0.08))
		cpus := units.NewCPUSet(core)
		decisions = append(decisions, affinity.Decision{
			Reason: model.ReasonPinned, Pins: []model.Pin{{CPUs: cpus}},
			Threads: model.ThreadCPUs{Emulator: node.Topology.Online(), IOThreads: node.Topology.Online(), Vhost: node.Topology.Online()},
		})
	}
	s.Node.CPUs = slices.Clone(node.CPUs)
	for range cores {
		s = s.Adopt(decisions)
		next := affinity.Place(s.Node, s.VMs).Decisions
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
