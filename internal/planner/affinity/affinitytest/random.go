package affinitytest

import (
	"math/rand/v2"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Shape of a node.
type Shape struct {
	Packages, CachesPerPackage, CoresPerCache, Siblings int
}

// NewNode returns an idle node whose CPUs are numbered as Linux does: the second
// siblings after all first ones. Each package is a NUMA node.
func NewNode(s Shape) affinity.Node {
	n := s.Packages * s.CachesPerPackage * s.CoresPerCache
	node := affinity.Node{MaxCoreUtilization: 0.85, Sharing: model.ShareAny, Costs: StudyCosts()}
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

// StudyCosts are those of the studies' host, with more for a core awake: there it is
// less than the noise.
func StudyCosts() model.PowerCosts {
	return model.PowerCosts{PerBusyCore: 6, PerWakeUp: 1e-5, PerAwakeCore: 1, Pinned: 0.2, Separated: 0.1}
}

// NewVM returns a VM that runs anywhere in a cpuset.
func NewVM(name string, allowed units.CPUSet, demands ...units.Cores) affinity.VM {
	rates := &model.VMRates{PodUID: name, Name: name, AllowedCPUs: allowed}
	for i, demand := range demands {
		rates.VCPUs = append(rates.VCPUs, model.VCPURates{
			Index: i, ThreadRates: model.ThreadRates{RunCores: demand, SwitchesPerSecond: units.PerSecond(2000 * demand)}, CPUs: allowed,
		})
	}
	return affinity.VM{Namespace: "default", Rates: rates, Preference: model.AffinityAuto}
}

// Random returns a node with VMs in which all that there is happens now and then: caches,
// siblings, classes, cpusets, pools, tenants, wishes, weights, memory and other threads.
func Random(r *rand.Rand, shape Shape, vms, maxVCPUs int) Scenario {
	s := Scenario{Node: NewNode(shape)}
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
	n.Sharing = []model.SiblingSharing{model.ShareAny, model.ShareAny, model.ShareWithinNamespace, model.ShareWithinVM}[r.IntN(4)]
	if r.IntN(6) == 0 {
		n.Excluded = units.NewCPUSet(r.IntN(len(cores)))
	}
	if r.IntN(6) == 0 {
		for i := range cores {
			cores[i].Class = model.CorePerformance
			if 2*i >= len(cores) {
				cores[i].Class = model.CoreEfficiency
			}
		}
	}
	if r.IntN(3) == 0 {
		n.Topology.NICs = []model.NIC{{Name: "eth0", NUMANode: r.IntN(shape.Packages)}}
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
	s.Run()
	return s
}

func randomVM(r *rand.Rand, n *affinity.Node, number, vcpus int) affinity.VM {
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
	vm := NewVM(string(rune('a'+number%26)), allowed, demands...)
	vm.Namespace = []string{"red", "blue"}[r.IntN(2)]
	vm.Preference = []model.AffinityPreference{
		model.AffinityAuto, model.AffinityAuto, model.AffinityAuto, model.AffinitySeparated, model.AffinityPinned,
	}[r.IntN(5)]
	vm.Network = r.IntN(4) == 0
	rates := vm.Rates
	if r.IntN(2) == 0 {
		rates.Weight = 100 + 8000*r.Float64()*r.Float64()
	}
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

// Run adds what the VMs run to the use of the CPUs, where their masks let them.
func (s *Scenario) Run() {
	add := func(run units.Cores, set, otherwise units.CPUSet) {
		if set.IsEmpty() {
			set = otherwise
		}
		count := 0
		for _, cpu := range s.Node.CPUs {
			if set.Contains(cpu.CPU) {
				count++
			}
		}
		for i := range s.Node.CPUs {
			if cpu := &s.Node.CPUs[i]; set.Contains(cpu.CPU) {
				cpu.BusyCores = min(1, cpu.BusyCores+run/units.Cores(count))
			}
		}
	}
	for _, vm := range s.VMs {
		r, threads := vm.Rates, vm.CurrentThreads
		for _, c := range r.VCPUs {
			add(c.RunCores, c.CPUs, r.AllowedCPUs)
		}
		add(r.Emulator.RunCores, threads.Emulator, r.AllowedCPUs)
		add(r.IOThreads.RunCores, threads.IOThreads, r.AllowedCPUs)
		add(r.Vhost.RunCores, threads.Vhost, r.AllowedCPUs)
		add(r.Other.RunCores, units.CPUSet{}, r.AllowedCPUs)
	}
}

// Small returns a node with at most 6 cores and at most 5 vCPUs, for which Optimum has
// an answer soon.
func Small(r *rand.Rand) Scenario {
	shape := []Shape{
		{1, 1, 2 + r.IntN(4), 1}, {1, 1, 2 + r.IntN(3), 2}, {1, 2, 2, 1}, {1, 2, 2, 2}, {2, 1, 2, 2}, {2, 1, 3, 1}, {1, 2, 3, 1}, {2, 1, 3, 2},
	}[r.IntN(8)]
	vms := 1 + r.IntN(5)
	s := Random(r, shape, vms, 1)
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

// Large returns two packages of 32 cores with two siblings each and 200 VMs of 1 to 8
// vCPUs, most of which have little to do: 45 of 128 CPUs are in use.
func Large(r *rand.Rand) Scenario {
	s := Scenario{Node: NewNode(Shape{Packages: 2, CachesPerPackage: 1, CoresPerCache: 32, Siblings: 2})}
	s.Node.Topology.NICs = []model.NIC{{Name: "eth0", NUMANode: 0}}
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
		vm := NewVM("vm", all, demands...)
		vm.Namespace = []string{"red", "blue", "green"}[r.IntN(3)]
		vm.Network = r.IntN(3) == 0
		rates := vm.Rates
		rates.Weight = 1024 * float64(vcpus) / float64(1+r.IntN(10))
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
	s.Run()
	return s
}

// Adopt is the next round: the decisions are in force, and all else is as before.
func (s *Scenario) Adopt(decisions []affinity.Decision) Scenario {
	return s.AdoptWith(decisions, func(rates units.Cores) units.Cores { return rates })
}

// AdoptWith is the next round, in which threads and all else run as measured changes it.
func (s *Scenario) AdoptWith(decisions []affinity.Decision, measured func(units.Cores) units.Cores) Scenario {
	next := Scenario{Node: s.Node}
	m := s.model()
	next.Node.CPUs = append([]model.CPURates(nil), s.Node.CPUs...)
	for i := range next.Node.CPUs {
		next.Node.CPUs[i].BusyCores = 0
	}
	for i, core := range m.cores {
		for k := range next.Node.CPUs {
			if core.CPUs.Contains(next.Node.CPUs[k].CPU) {
				next.Node.CPUs[k].BusyCores = measured(units.Cores(m.unmanaged[i] / m.cpus[i]))
			}
		}
	}
	for i, vm := range s.VMs {
		rates := *vm.Rates
		rates.VCPUs = append([]model.VCPURates(nil), rates.VCPUs...)
		for k := range rates.VCPUs {
			c := &rates.VCPUs[k]
			c.RunCores, c.CPUs = min(1, measured(c.RunCores)), rates.AllowedCPUs
			if pins := decisions[i].Pins; len(pins) > 0 {
				c.CPUs = pins[k].CPUs
			}
		}
		for _, t := range []*model.ThreadRates{&rates.Emulator, &rates.IOThreads, &rates.Vhost, &rates.Other} {
			t.RunCores = measured(t.RunCores)
		}
		vm.Rates, vm.Current, vm.CurrentThreads = &rates, decisions[i].Pins, decisions[i].Threads
		next.VMs = append(next.VMs, vm)
	}
	next.Run()
	return next
}
