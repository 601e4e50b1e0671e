package affinity

import (
	"math/rand/v2"
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// scenario is a node with VMs.
type scenario struct {
	Node Node
	VMs  []VM
}

// shape of a node.
type shape struct {
	Packages, CachesPerPackage, CoresPerCache, Siblings int
}

// newTestNode returns an idle node whose CPUs are numbered as Linux does: the second
// siblings after all first ones. Each package is a NUMA node.
func newTestNode(s shape) Node {
	n := s.Packages * s.CachesPerPackage * s.CoresPerCache
	node := Node{MaxCoreUtilization: 0.85, Sharing: v1alpha1.ShareAny, Costs: studyCosts()}
	for i := range n {
		var cpus []int
		for sibling := range s.Siblings {
			cpus = append(cpus, i+sibling*n)
		}
		llc := i / s.CoresPerCache
		node.Topology.Cores = append(node.Topology.Cores, model.Core{
			CPUs: units.NewCPUSet(cpus...), LLC: llc, Package: llc / s.CachesPerPackage, NUMANode: llc / s.CachesPerPackage,
		})
	}
	for cpu := range n * s.Siblings {
		node.CPUs = append(node.CPUs, model.CPURates{CPU: cpu})
	}
	return node
}

// studyCosts are those of the studies' host, with more for a core awake: there it is
// less than the noise.
func studyCosts() model.PowerCosts {
	return model.PowerCosts{PerBusyCore: 6, PerWakeUp: 1e-5, PerAwakeCore: 1, Pinned: 0.2, Separated: 0.1}
}

// newTestVM returns a VM that runs anywhere in a cpuset.
func newTestVM(name string, allowed units.CPUSet, demands ...units.Cores) VM {
	rates := &model.VMRates{PodUID: name, Name: name, AllowedCPUs: allowed}
	for i, demand := range demands {
		rates.VCPUs = append(rates.VCPUs, model.VCPURates{
			Index: i, ThreadRates: model.ThreadRates{RunCores: demand, SwitchesPerSecond: units.PerSecond(2000 * demand)}, CPUs: allowed,
		})
	}
	return VM{Namespace: "default", Rates: rates, Preference: v1alpha1.AffinityAuto}
}

// randomScenario returns a node with VMs in which all that there is happens now and then: caches,
// siblings, classes, cpusets, pools, tenants, wishes, memory and other threads.
func randomScenario(r *rand.Rand, of shape, vms, maxVCPUs int) scenario {
	s := scenario{Node: newTestNode(of)}
	n := &s.Node
	cores := n.Topology.Cores
	n.Costs = model.PowerCosts{
		PerBusyCore: units.Watts(2 + 14*r.Float64()), PerWakeUp: 1e-5, PerAwakeCore: units.Watts(2 * r.Float64()),
		Pinned: 0.25 * r.Float64(), Separated: 0.12 * r.Float64(),
	}
	if r.IntN(2) == 0 {
		n.Topology.Clocks = model.Clocks{
			FollowLoad: true, Lowest: units.Megahertz(400 + 1600*r.Float64()), Highest: units.Megahertz(2500 + 2000*r.Float64()),
			Base: []units.Megahertz{0, 2000, 2400}[r.IntN(3)],
		}
	}
	n.Sharing = []v1alpha1.SiblingSharing{v1alpha1.ShareAny, v1alpha1.ShareAny, v1alpha1.ShareWithinNamespace, v1alpha1.ShareWithinVM}[r.IntN(4)]
	if r.IntN(6) == 0 {
		n.Excluded = units.NewCPUSet(r.IntN(len(cores)))
	}
	if r.IntN(6) == 0 {
		for i := range cores {
			cores[i].Class = v1alpha1.CorePerformance
			if 2*i >= len(cores) {
				cores[i].Class = v1alpha1.CoreEfficiency
			}
		}
	}
	if r.IntN(3) == 0 {
		n.Topology.NICs = []model.NIC{{NUMANode: r.IntN(of.Packages)}}
	}
	var half units.CPUSet
	for _, core := range cores[:(len(cores)+1)/2] {
		half = half.Union(core.CPUs)
	}
	pools := r.IntN(5) == 0
	for i := range vms {
		vm := randomVM(r, n, i, 1+r.IntN(maxVCPUs))
		if pools && r.IntN(2) == 0 {
			vm.Within = half
			if vm.Network = r.IntN(2) == 0; !vm.Network && len(cores) > 1 {
				vm.Within = n.Topology.Online().Difference(half)
			}
		}
		s.VMs = append(s.VMs, vm)
	}
	for i := range n.CPUs {
		if r.IntN(3) == 0 {
			n.CPUs[i].BusyCores = units.Cores(0.3 * r.Float64() * r.Float64())
		}
	}
	s.run()
	return s
}

func randomVM(r *rand.Rand, n *Node, number, vcpus int) VM {
	allowed := n.Topology.Online()
	if r.IntN(4) == 0 {
		for _, core := range n.Topology.Cores {
			if r.IntN(3) == 0 {
				allowed = allowed.Difference(core.CPUs)
			}
		}
	}
	var demands []units.Cores
	idle := r.IntN(3) == 0
	for range vcpus {
		demand := units.Cores(r.Float64() * r.Float64())
		if idle {
			demand *= 0.1
		}
		demands = append(demands, demand)
	}
	vm := newTestVM(string(rune('a'+number%26)), allowed, demands...)
	vm.Namespace = []string{"red", "blue"}[r.IntN(2)]
	vm.Preference = []v1alpha1.AffinityPreference{
		v1alpha1.AffinityAuto, v1alpha1.AffinityAuto, v1alpha1.AffinityAuto, v1alpha1.AffinitySeparated, v1alpha1.AffinityPinned,
	}[r.IntN(5)]
	vm.Network = r.IntN(4) == 0
	rates := vm.Rates
	rates.Emulator.RunCores = units.Cores(0.05 * r.Float64())
	rates.Other.RunCores = units.Cores(0.01 * r.Float64())
	if r.IntN(3) == 0 {
		rates.Vhost.RunCores = units.Cores(0.4 * r.Float64())
	}
	if r.IntN(3) == 0 {
		for i := range rates.VCPUs {
			rates.VCPUs[i].WaitCores = units.Cores(0.05 * r.Float64())
		}
	}
	if r.IntN(2) == 0 {
		for range 1 + n.Topology.Cores[len(n.Topology.Cores)-1].NUMANode {
			rates.MemoryMiB = append(rates.MemoryMiB, uint64(r.IntN(4096)))
		}
	}
	return vm
}

// run adds what the VMs run to the use of the CPUs, where their masks let them.
func (s *scenario) run() {
	for i := range s.VMs {
		for _, t := range threadsOf(&s.VMs[i]) {
			reached := 0
			for _, cpu := range s.Node.CPUs {
				if t.cpus.Contains(cpu.CPU) {
					reached++
				}
			}
			for k := range s.Node.CPUs {
				if cpu := &s.Node.CPUs[k]; t.cpus.Contains(cpu.CPU) {
					cpu.BusyCores = min(1, cpu.BusyCores+units.Cores(t.run/float64(reached)))
				}
			}
		}
	}
}

// smallScenario returns a node with at most 6 cores and at most 5 vCPUs, for which the optimum has
// an answer soon.
func smallScenario(r *rand.Rand) scenario {
	of := []shape{
		{1, 1, 2 + r.IntN(4), 1}, {1, 1, 2 + r.IntN(3), 2}, {1, 2, 2, 1}, {1, 2, 2, 2}, {2, 1, 2, 2}, {2, 1, 3, 1}, {1, 2, 3, 1}, {2, 1, 3, 2},
	}[r.IntN(8)]
	vms := 1 + r.IntN(5)
	s := randomScenario(r, of, vms, 1)
	for extra := r.IntN(6 - vms); extra > 0; extra-- {
		vm := &s.VMs[r.IntN(vms)]
		vcpu := vm.Rates.VCPUs[0]
		vcpu.Index = len(vm.Rates.VCPUs)
		vcpu.RunCores = units.Cores(r.Float64() * r.Float64())
		vm.Rates.VCPUs = append(vm.Rates.VCPUs, vcpu)
		for i := range s.Node.CPUs {
			s.Node.CPUs[i].BusyCores = min(1, s.Node.CPUs[i].BusyCores+vcpu.RunCores/units.Cores(len(s.Node.CPUs)))
		}
	}
	return s
}

// largeScenario returns two packages of 32 cores with two siblings each and 200 VMs of 1 to 8
// vCPUs, most of which have little to do: 45 of 128 CPUs are in use.
func largeScenario(r *rand.Rand) scenario {
	s := scenario{Node: newTestNode(shape{Packages: 2, CachesPerPackage: 1, CoresPerCache: 32, Siblings: 2})}
	s.Node.Topology.NICs = []model.NIC{{NUMANode: 0}}
	all := s.Node.Topology.Online()
	for i := range s.Node.CPUs {
		s.Node.CPUs[i].BusyCores = units.Cores(0.02 * r.Float64())
	}
	for range 200 {
		vcpus := []int{1, 1, 2, 2, 2, 4, 4, 8}[r.IntN(8)]
		level := []float64{0.01, 0.02, 0.05, 0.1, 0.3, 0.6}[r.IntN(6)]
		var demands []units.Cores
		for range vcpus {
			demands = append(demands, units.Cores(min(0.95, 1.5*level*r.Float64())))
		}
		vm := newTestVM("vm", all, demands...)
		vm.Namespace = []string{"red", "blue", "green"}[r.IntN(3)]
		vm.Network = r.IntN(3) == 0
		rates := vm.Rates
		rates.Emulator.RunCores = units.Cores(0.01 * r.Float64())
		rates.Other.RunCores = units.Cores(0.002 * r.Float64())
		if vm.Network {
			rates.Vhost.RunCores = units.Cores(0.3 * r.Float64() * r.Float64())
		}
		rates.MemoryMiB = []uint64{2048, 0}
		if r.IntN(2) == 0 {
			rates.MemoryMiB = []uint64{0, 2048}
		}
		s.VMs = append(s.VMs, vm)
	}
	s.run()
	return s
}

// adopt is the next round: the decisions are in force, and all else is as before.
func (s *scenario) adopt(decisions []Decision) scenario {
	return s.adoptWith(decisions, func(rates units.Cores) units.Cores { return rates })
}

// adoptWith is the next round, in which threads and all else run as measured changes it.
func (s *scenario) adoptWith(decisions []Decision, measured func(units.Cores) units.Cores) scenario {
	next := scenario{Node: s.Node}
	next.Node.CPUs = slices.Clone(s.Node.CPUs)
	for core, use := range OtherUse(s.Node.Topology, s.Node.CPUs, s.VMs) {
		cpus := s.Node.Topology.Cores[core].CPUs
		for i := range next.Node.CPUs {
			if cpu := &next.Node.CPUs[i]; cpus.Contains(cpu.CPU) {
				cpu.BusyCores = measured(units.Cores(use) / units.Cores(cpus.Len()))
			}
		}
	}
	for i, vm := range s.VMs {
		vm.Rates = changed(vm.Rates, decisions[i].Pins, measured)
		vm.Current, vm.CurrentThreads = decisions[i].Pins, decisions[i].Threads
		vm.Separated = decisions[i].Reason == v1alpha1.ReasonSeparated
		next.VMs = append(next.VMs, vm)
	}
	next.run()
	return next
}

// changed are rates of threads with pins that run as measured changes it.
func changed(of *model.VMRates, pins []model.Pin, measured func(units.Cores) units.Cores) *model.VMRates {
	rates := *of
	rates.VCPUs = slices.Clone(rates.VCPUs)
	for k := range rates.VCPUs {
		c := &rates.VCPUs[k]
		c.RunCores, c.CPUs = min(1, measured(c.RunCores)), rates.AllowedCPUs
		if len(pins) > 0 {
			c.CPUs = pins[k].CPUs
		}
	}
	for _, t := range []*model.ThreadRates{&rates.Emulator, &rates.IOThreads, &rates.Vhost, &rates.Other} {
		t.RunCores = measured(t.RunCores)
	}
	return &rates
}
