package loop

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/sim"
)

const mbit units.BitsPerSecond = 1e6

// Config of a loop. Equal ones bring equal outcomes.
type Config struct {
	Seed       uint64
	Nodes, VMs int
	// Hours that are simulated.
	Hours int
	// Tick is how often agents make a round, beside those at which schedules switch, and
	// the manager learns from it.
	Tick time.Duration
	// Step is the simulator's longest.
	Step time.Duration
}

// Default is a small fleet for so many hours.
func Default(hours int) Config {
	return Config{Seed: 1, Nodes: 8, VMs: 16, Hours: hours, Tick: time.Minute, Step: 10 * time.Second}
}

// start is a Monday.
func start() time.Time { return time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC) }

// kind is a model of servers of the fleet.
type kind struct {
	model string
	cores int
	// harm that levers do, which nothing predicts.
	harm sim.Harm
	// traffic of its VMs relative to that of others.
	traffic float64
}

// kinds of servers: one on which both levers save, one on which affinity costs energy, and one
// with little traffic, on which buffering saves a percent or two.
func kinds() []kind {
	return []kind{
		{model: "server a", cores: 10, traffic: 1},
		{model: "server a", cores: 10, traffic: 1},
		{model: "server b", cores: 10, harm: sim.Harm{Affinity: 0.07}, traffic: 0.7},
		{model: "server c", cores: 8, traffic: 0.5},
	}
}

// spec of a node.
type spec struct {
	name string
	kind kind
	// index of the node in the fleet.
	index int
	Config
}

func (c *Config) spec(index int) spec {
	all := kinds()
	return spec{name: fmt.Sprintf("node-%03d", index), kind: all[index%len(all)], index: index, Config: *c}
}

// namespace of all VMs.
const namespace = "simulated"

// mix is after how many the VMs of a node are of the same kinds again.
const mix = 8

// host of the node, without VMs.
func (s *spec) host() (*sim.Host, error) {
	h, err := sim.NewHost(sim.Config{
		Name: s.name, Seed: s.Seed, Start: start(), Step: s.Step,
		Shape:   sim.Shape{CoresPerPackage: s.kind.cores, ThreadsPerCore: 2},
		Physics: sim.Server(s.kind.cores), CPUModel: s.kind.model, Harm: s.kind.harm,
	})
	if err != nil {
		return nil, err
	}
	const share, period, swing, heat = 0.05, 3 * time.Minute, 0.4, 1.3
	return h, h.SetUnmanaged(sim.Unmanaged{Compute: sim.Compute{
		Programme: sim.Programme{Pattern: sim.Bursty, Period: period, Swing: swing},
		Cores:     units.Cores(share * float64(2*s.kind.cores)), Heat: heat,
	}})
}

// guest is a VM with what its profile says.
type guest struct {
	vm      sim.VM
	profile model.VM
	// traffic at its usual level.
	traffic sim.Traffic
}

// guest of a number on the node.
func (s *spec) guest(number int) guest {
	random := rand.New(rand.NewPCG(s.Seed, uint64(s.index)<<32|uint64(number)<<16))
	vm := sim.VM{
		Namespace: namespace, Name: fmt.Sprintf("vm-%d-%d", s.index, number), VCPUs: 2,
		PodUID: fmt.Sprintf("00000000-0000-4000-8000-%04d%08d", s.index, number),
	}
	const maxSteal = 0.05 // the API's default
	profile := model.VM{Affinity: v1alpha1.AffinityAuto, NamespaceSelected: true, MaxSteal: maxSteal, DefendFloods: true}
	rate := units.BitsPerSecond(0.5+random.Float64()) * units.BitsPerSecond(s.kind.traffic) * mbit
	switch number % mix {
	case 0, 1, 2: // moves bytes
		vm.Traffic = sim.Traffic{ToVM: 45 * rate, FromVM: 15 * rate, PacketBytes: 1200}
		profile.Profile, profile.TrafficClass = "throughput", v1alpha1.TrafficThroughput
		profile.LatencyBudget, profile.OnPackets = 2*model.LongestWindow, 2000
	case 3: // sends at times, which may wait
		vm.Traffic = sim.Traffic{
			Programme: sim.Programme{Pattern: sim.Bursty, Period: 10 * time.Minute, Swing: 0.5}, FromVM: 15 * rate, PacketBytes: 1400,
		}
		profile.Profile, profile.TrafficClass = "deferrable", v1alpha1.TrafficDeferrable
		profile.LatencyBudget, profile.OnPackets, profile.MaxDelay = 2*model.LongestWindow, 2000, time.Minute
	case 4: // computes
		vm.VCPUs, vm.Traffic = 4, sim.Traffic{ToVM: 0.2 * mbit, FromVM: 0.2 * mbit, PacketBytes: 400}
		vm.Compute = sim.Compute{Programme: sim.Programme{Pattern: sim.Diurnal, Period: time.Hour, Swing: 0.3}, Cores: 0.4, Heat: 1.2}
		profile.Profile, profile.TrafficClass = "compute", v1alpha1.TrafficThroughput
	default: // answers requests
		vm.Traffic = sim.Traffic{ToVM: 4 * rate, FromVM: 8 * rate, PacketBytes: 500}
		vm.Compute = sim.Compute{Programme: sim.Programme{Pattern: sim.Diurnal, Period: 40 * time.Minute}, Cores: 0.05}
		profile.Profile, profile.TrafficClass = "interactive", v1alpha1.TrafficInteractive
		profile.LatencyBudget, profile.OnPackets = 500*time.Microsecond, 10_000
	}
	profile.PodUID, profile.Namespace, profile.Name = vm.PodUID, vm.Namespace, vm.Name
	return guest{vm: vm, profile: profile, traffic: vm.Traffic}
}
