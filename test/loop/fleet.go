package loop

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

const mbit units.BitsPerSecond = 1e6

// Config of a loop. Equal ones bring equal outcomes.
type Config struct {
	Seed       uint64
	Nodes, VMs int
	// GroupNodes are how many nodes of one model run the members of a group whose traffic may
	// be split otherwise than evenly. 0: there are no groups.
	GroupNodes int
	// Levers that the policy allows. Nil: all.
	Levers []model.Lever
	// Hours that are simulated, and those at the end that are held against the oracle.
	Hours, Judged int
	// Tick is how often agents make a round, beside those at which schedules switch, and
	// the manager hears of it.
	Tick time.Duration
	// Step is the simulator's longest.
	Step time.Duration
	// Flat loads wander, but know no time of day and no trend.
	Flat bool
	// Quiet fleets have no failing meters, and no VM comes or goes.
	Quiet bool
	// Unguarded fleets have no guard of the manager.
	Unguarded bool
}

// Default is the fleet that is told of.
func Default(seed uint64) Config {
	return Config{Seed: seed, Nodes: 50, VMs: 40, GroupNodes: 2, Hours: 72, Judged: 24, Tick: time.Minute, Step: 10 * time.Second}
}

// start is a Monday.
func start() time.Time { return time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC) }

// kind is a model of servers of the fleet.
type kind struct {
	model string
	cores int
	// harm of levers on all machines of the model, and on each fifth of them.
	harm, odd sim.Harm
	// traffic of its VMs relative to that of others.
	traffic float64
}

// Kinds of servers: one on which both levers save, with machines among it that buffering
// harms; one on which affinity harms, which nothing foretells; and one with little traffic, on
// which buffering saves a percent or two, and uneven shares harm, which nothing foretells.
func kinds() []kind {
	return []kind{
		{model: "server a", cores: 10, odd: sim.Harm{Buffering: 0.06}, traffic: 1},
		{model: "server a", cores: 10, odd: sim.Harm{Buffering: 0.06}, traffic: 1},
		{model: "server b", cores: 10, harm: sim.Harm{Affinity: 0.07}, traffic: 0.7},
		{model: "server c", cores: 8, harm: sim.Harm{TrafficShare: 0.08}, traffic: 0.5},
	}
}

// spec of a node.
type spec struct {
	name string
	kind kind
	seed uint64
	// index of the node in the fleet.
	index int
	// group that has members on the node. Empty: none.
	group string
	Config
}

func (c *Config) spec(index int) spec {
	all := kinds()
	// Schedules are drawn by the names of units: fleets with equal ones would share their draws.
	s := spec{name: fmt.Sprintf("node-%03d-of-%d", index, c.Seed), kind: all[index%len(all)], seed: c.Seed, index: index, Config: *c}
	if nth := index / len(all); nth%5 == 4 {
		s.kind.harm.Affinity += s.kind.odd.Affinity
		s.kind.harm.Buffering += s.kind.odd.Buffering
	}
	s.group = c.groupOf(index)
	return s
}

// groupOf a node: nodes of one model make groups in their order, and those that are left none.
func (c *Config) groupOf(index int) string {
	if c.GroupNodes == 0 {
		return ""
	}
	all := kinds()
	alike := func(other int) bool { return all[other%len(all)].model == all[index%len(all)].model }
	before, count := 0, 0
	for i := range c.Nodes {
		if alike(i) {
			count++
			if i < index {
				before++
			}
		}
	}
	if number := before / c.GroupNodes; (number+1)*c.GroupNodes <= count {
		return fmt.Sprintf("%s/%s-%d", namespace, strings.ReplaceAll(all[index%len(all)].model, " ", "-"), number)
	}
	return ""
}

// namespace of all VMs.
const namespace = "simulated"

// mix is after how many slots the VMs of a node are of the same kinds again.
const mix = 8

// grouped tells whether the VMs of a slot are members of the node's group: a quarter is.
func (s *spec) grouped(slot int) bool { return s.group != "" && (slot%mix == 1 || slot%mix == 2) }

// host of the node, without VMs, from a time on.
func (s *spec) host(from time.Time) (*sim.Host, error) {
	h, err := sim.NewHost(sim.Config{
		Name: s.name, Seed: s.seed, Start: from, Step: s.Step,
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

// guest of a slot of the node. Others follow in the same slot when one goes.
func (s *spec) guest(slot, number int) guest {
	random := rand.New(rand.NewPCG(s.seed, uint64(s.index)<<32|uint64(slot)<<16|uint64(number)))
	vm := sim.VM{
		Namespace: namespace, Name: fmt.Sprintf("vm-%d-%d-%d", s.index, slot, number), VCPUs: 2,
		PodUID: fmt.Sprintf("00000000-0000-4000-8000-%04d%04d%04d", s.index, slot, number),
	}
	const maxSteal = 0.05 // the API's default
	profile := model.VM{Affinity: model.AffinityAuto, NamespaceSelected: true, MaxSteal: maxSteal, DefendFloods: true}
	rate := units.BitsPerSecond(0.5+random.Float64()) * units.BitsPerSecond(s.kind.traffic) * mbit
	switch slot % mix {
	case 0, 1, 2: // moves bytes
		vm.Traffic = sim.Traffic{ToVM: 45 * rate, FromVM: 15 * rate, PacketBytes: 1200}
		profile.Profile, profile.TrafficClass = "throughput", model.TrafficThroughput
		profile.LatencyBudget, profile.OnPackets = 2*model.LongestWindow, 2000
	case 3: // sends at times, which may wait
		vm.Traffic = sim.Traffic{
			Programme: sim.Programme{Pattern: sim.Bursty, Period: 10 * time.Minute, Swing: 0.5}, FromVM: 15 * rate, PacketBytes: 1400,
		}
		profile.Profile, profile.TrafficClass = "deferrable", model.TrafficDeferrable
		profile.LatencyBudget, profile.OnPackets, profile.MaxDelay = 2*model.LongestWindow, 2000, time.Minute
	case 4: // computes
		vm.VCPUs, vm.Traffic = 4, sim.Traffic{ToVM: 0.2 * mbit, FromVM: 0.2 * mbit, PacketBytes: 400}
		vm.Compute = sim.Compute{Programme: sim.Programme{Pattern: sim.Diurnal, Period: time.Hour, Swing: 0.3}, Cores: 0.4, Heat: 1.2}
		profile.Profile, profile.TrafficClass = "compute", model.TrafficThroughput
	default: // answers requests
		vm.Traffic = sim.Traffic{ToVM: 4 * rate, FromVM: 8 * rate, PacketBytes: 500}
		vm.Compute = sim.Compute{Programme: sim.Programme{Pattern: sim.Diurnal, Period: 40 * time.Minute}, Cores: 0.05}
		profile.Profile, profile.TrafficClass = "interactive", model.TrafficInteractive
		profile.LatencyBudget, profile.OnPackets = 500*time.Microsecond, 10_000
	}
	if s.grouped(slot) {
		vm.Traffic = sim.Traffic{PacketBytes: vm.Traffic.PacketBytes} // what the group gives it
	}
	profile.PodUID, profile.Namespace, profile.Name = vm.PodUID, vm.Namespace, vm.Name
	return guest{vm: vm, profile: profile, traffic: vm.Traffic}
}
