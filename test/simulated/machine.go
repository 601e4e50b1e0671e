package simulated

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/sim"
)

const mbit units.BitsPerSecond = 1e6

// machine is a simulated host with VMs. Equal ones behave alike.
type machine struct {
	name string
	seed uint64
	sim.Shape
	// physics of the host. Nil: a server's.
	physics func() *sim.Physics
	// meter that the host has beside the packages'.
	meter sim.Meter
	// vms without namespace and PodUID, which are made up, as names are that are empty.
	vms []sim.VM
	// others is work outside of VMs.
	others sim.Unmanaged
	// noSlices is a kernel without slices of threads.
	noSlices bool
}

// start returns the host with its VMs.
func (m machine) start() (*sim.Host, []sim.VM, error) {
	physics := sim.Server(m.CoresPerPackage)
	if m.physics != nil {
		physics = m.physics()
	}
	h, err := sim.NewHost(sim.Config{
		Name: m.name, Seed: m.seed, Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Shape: m.Shape,
		Physics: physics, CPUModel: "server", NoSlices: m.noSlices, Meter: m.meter,
	})
	if err != nil {
		return nil, nil, err
	}
	vms := m.named()
	for _, vm := range vms {
		if _, err := h.AddVM(vm); err != nil {
			return nil, nil, err
		}
	}
	return h, vms, h.SetUnmanaged(m.others)
}

// named returns the machine's VMs with namespaces, names and PodUIDs.
func (m machine) named() []sim.VM {
	vms := slices.Clone(m.vms)
	for i := range vms {
		vms[i].Namespace, vms[i].Name = "simulated", cmp.Or(vms[i].Name, fmt.Sprintf("vm-%d", i))
		vms[i].PodUID = fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
	}
	return vms
}

// manage starts the host with its VMs, which are of one profile, and its agent, which sees it
// through twin if that is not nil. The caller closes it.
func (m machine) manage(policy model.Policy, profiled func(*model.VM), twin *twin) (*Managed, error) {
	h, vms, err := m.start()
	if err != nil {
		return nil, err
	}
	o := Options{Host: h, Policy: policy}
	if twin != nil {
		if err := twin.of(m, h, vms); err != nil {
			return nil, err
		}
		o.AgentHost = twin
	}
	for _, vm := range vms {
		profile := model.VM{
			PodUID: vm.PodUID, Namespace: vm.Namespace, Name: vm.Name, Profile: "all",
			Affinity: v1alpha1.AffinityAuto, NamespaceSelected: true,
		}
		if profiled != nil {
			profiled(&profile)
		}
		o.VMs = append(o.VMs, profile)
	}
	return Manage(o)
}

// throughput is a profile for bytes to be moved, which leaves the longest window.
func throughput(vm *model.VM) {
	vm.TrafficClass, vm.LatencyBudget, vm.DefendFloods = v1alpha1.TrafficThroughput, 2*model.LongestWindow, true
	vm.OnPackets = 10_000
}

// Size of a fleet.
type size struct {
	seed       uint64
	nodes, vms int
}

// machine of a number: a server of one or two packages, in about the sizes that run VMs, with
// VMs that together use about half of it, and work beside them whose instructions cost other
// energy than theirs. Traffic and work follow different programmes.
func (s size) machine(i int) machine {
	random := rand.New(rand.NewPCG(s.seed, uint64(i)))
	shapes := []sim.Shape{
		{Packages: 1, CoresPerPackage: 16, ThreadsPerCore: 2},
		{Packages: 2, CoresPerPackage: 16, ThreadsPerCore: 2},
		{Packages: 2, NUMAPerPackage: 2, CoresPerPackage: 24, CoresPerLLC: 8, ThreadsPerCore: 2},
		{Packages: 1, NUMAPerPackage: 4, CoresPerPackage: 48, CoresPerLLC: 8, ThreadsPerCore: 2},
	}
	m := machine{
		name: fmt.Sprintf("simulated-%d", i), seed: s.seed, Shape: shapes[random.IntN(len(shapes))], meter: sim.Meter{DRAM: true},
	}
	cpus := float64(m.Packages * m.CoresPerPackage * m.ThreadsPerCore)
	for range s.vms {
		// Of a CPU, and without what the network takes.
		m.vms = append(m.vms, randomVM(0.3*cpus/float64(s.vms), random))
	}
	m.others = sim.Unmanaged{Compute: sim.Compute{
		Programme: sim.Programme{Pattern: sim.Bursty, Period: time.Duration(30+random.IntN(300)) * time.Second, Swing: 0.4},
		Cores:     units.Cores(0.1 * cpus), Heat: 0.6 + random.Float64(),
	}}
	return m
}

func randomVM(cores float64, random *rand.Rand) sim.VM {
	// Rates of a data centre's VMs spread over orders of magnitude.
	rate := units.BitsPerSecond(random.ExpFloat64()) * 15 * mbit
	vm := sim.VM{
		VCPUs: 1 + random.IntN(4), IOThreads: random.IntN(2),
		Traffic: sim.Traffic{
			Programme: programme(random), ToVM: rate, FromVM: rate * units.BitsPerSecond(random.Float64()),
			PacketBytes: 200 + random.IntN(1300),
		},
		Compute: sim.Compute{
			Programme: programme(random), Cores: units.Cores(cores * 2 * random.Float64()), Heat: 0.8 + 0.5*random.Float64(),
		},
	}
	if random.IntN(50) == 0 {
		vm.Traffic = sim.Flood(mbit / 2)
	}
	return vm
}

func programme(random *rand.Rand) sim.Programme {
	switch random.IntN(3) {
	case 0:
		return sim.Programme{}
	case 1:
		return sim.Programme{Pattern: sim.Diurnal, Period: time.Duration(10+random.IntN(110)) * time.Minute, Swing: 0.8}
	}
	return sim.Programme{Pattern: sim.Bursty, Period: time.Duration(5+random.IntN(60)) * time.Second, Swing: 0.2 + 0.6*random.Float64()}
}

// settling is the time in which the temperature settles, and measuring the time after it over
// which figures are means.
const settling, measuring = 10 * time.Minute, 30 * time.Minute

// measured are means over some time, by the simulated truth.
type measured struct {
	packages, platform units.Watts
	// served is the least part of a VM's traffic that was handled, and computed the CPU time of
	// cores alone that the others' work got.
	served   float64
	computed units.Cores
	// use of each CPU.
	use []units.Cores
}

// saved is the part of the packages' power that a host draws less than another.
func (m measured) saved(than measured) float64 { return 1 - float64(m.packages/than.packages) }

// busiest is the greatest use of a CPU of a set.
func (m measured) busiest(of units.CPUSet) (most units.Cores) {
	for _, cpu := range of.CPUs() {
		most = max(most, m.use[cpu])
	}
	return most
}

// String has powers in watts.
func (m measured) String() string {
	return fmt.Sprintf("packages %6.2f W, platform %6.2f W, %.3f of the traffic handled, %.2f cores' computing", m.packages, m.platform, m.served, m.computed)
}

// measure a host over some time, of which second lets one pass.
func measure(h *sim.Host, vms []sim.VM, d time.Duration, second func() error) (m measured, err error) {
	before, err := h.CPUTimes()
	if err != nil {
		return m, err
	}
	packages, platform := h.Joules(), h.PlatformJoules()
	for range int(d / time.Second) {
		if err := second(); err != nil {
			return m, err
		}
		served := 1.0
		for i := range vms {
			truth, err := h.VMTruth(vms[i].PodUID)
			if err != nil {
				return m, err
			}
			if vms[i].Traffic.ToVM+vms[i].Traffic.FromVM > 0 {
				served = min(served, truth.Served)
			}
			m.computed += units.Cores(float64(truth.Computed) / d.Seconds())
		}
		m.served += served / d.Seconds()
	}
	m.packages = units.Watts(float64(h.Joules()-packages) / d.Seconds())
	m.platform = units.Watts(float64(h.PlatformJoules()-platform) / d.Seconds())
	after, err := h.CPUTimes()
	for cpu := range after {
		m.use = append(m.use, units.Cores((after[cpu].Busy-before[cpu].Busy).Seconds()/d.Seconds()))
	}
	return m, err
}
