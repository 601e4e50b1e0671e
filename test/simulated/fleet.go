package simulated

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

const mbit units.BitsPerSecond = 1e6

// Options of a fleet.
type Options struct {
	Seed       uint64
	Nodes, VMs int
	// Off are the hidden effects that are switched off.
	Off sim.Effect
	// Workers step the nodes. 0: one a CPU.
	Workers int
}

// Fleet is simulated nodes of different sizes, with VMs whose traffic and work
// follow different programmes.
type Fleet struct {
	Nodes   []*Node
	workers int
}

// New makes a fleet. Equal options make equal fleets.
func New(o Options) (*Fleet, error) {
	priors, err := prior.Default()
	if err != nil {
		return nil, err
	}
	f := &Fleet{workers: o.Workers}
	for i := range o.Nodes {
		random := rand.New(rand.NewPCG(o.Seed, uint64(i)))
		h, err := sim.NewHost(config(o, i, random))
		if err != nil {
			return nil, err
		}
		vms, inventory, err := populate(h, o.VMs, random)
		if err != nil {
			return nil, err
		}
		node, err := newNode(h, vms, inventory, priors.Node)
		if err != nil {
			return nil, err
		}
		f.Nodes = append(f.Nodes, node)
	}
	return f, nil
}

// config makes servers of one or two packages, in about the sizes that run VMs.
func config(o Options, i int, random *rand.Rand) sim.Config {
	shapes := []sim.Shape{
		{Packages: 1, CoresPerPackage: 16, ThreadsPerCore: 2},
		{Packages: 2, CoresPerPackage: 16, ThreadsPerCore: 2},
		{Packages: 2, NUMAPerPackage: 2, CoresPerPackage: 24, CoresPerLLC: 8, ThreadsPerCore: 2},
		{Packages: 1, NUMAPerPackage: 4, CoresPerPackage: 48, CoresPerLLC: 8, ThreadsPerCore: 2},
	}
	shape := shapes[random.IntN(len(shapes))]
	return sim.Config{
		Name: fmt.Sprintf("simulated-%d", i), Seed: o.Seed, Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Shape: shape, Physics: sim.Server(shape.CoresPerPackage), CPUModel: "server", Off: o.Off,
		Meter: sim.Meter{DRAM: true},
	}
}

// populate starts VMs that together use about half of the host, and work beside
// them whose instructions cost other energy than theirs.
func populate(h *sim.Host, count int, random *rand.Rand) ([]sim.VM, *discover.Inventory, error) {
	topology, err := h.Topology()
	if err != nil {
		return nil, nil, err
	}
	cpus := float64(topology.Online().Len())
	// Of a CPU, and without what the network takes.
	each := 0.3 * cpus / float64(max(1, count))
	inventory := &discover.Inventory{Pods: map[string]discover.Pod{}, VMIs: map[string]discover.VMI{}}
	vms := make([]sim.VM, count)
	for i := range vms {
		vm := randomVM(i, each, random)
		vm.PodUID = fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		if _, err := h.AddVM(vm); err != nil {
			return nil, nil, err
		}
		vms[i] = vm
		uid := "vmi-" + vm.PodUID
		inventory.Pods[vm.PodUID] = discover.Pod{UID: vm.PodUID, Namespace: vm.Namespace, CreatedBy: uid}
		inventory.VMIs[uid] = discover.VMI{UID: uid, Namespace: vm.Namespace, Name: vm.Name}
	}
	err = h.SetUnmanaged(sim.Unmanaged{Compute: sim.Compute{
		Programme: sim.Programme{Pattern: sim.Bursty, Period: time.Duration(30+random.IntN(300)) * time.Second, Swing: 0.4},
		Cores:     units.Cores(0.1 * cpus), Heat: 0.6 + random.Float64(),
	}})
	return vms, inventory, err
}

func randomVM(i int, cores float64, random *rand.Rand) sim.VM {
	// Rates of a data centre's VMs spread over orders of magnitude.
	rate := units.BitsPerSecond(random.ExpFloat64()) * 15 * mbit
	vm := sim.VM{
		Namespace: "simulated", Name: fmt.Sprintf("vm-%d", i), VCPUs: 1 + random.IntN(4), IOThreads: random.IntN(2),
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

// Run lets all nodes do a number of rounds.
func (f *Fleet) Run(rounds int) error {
	return f.each(func(n *Node) error { return n.rounds(rounds) })
}

// Advance lets seconds pass on all nodes, and no agent look.
func (f *Fleet) Advance(seconds int) error {
	return f.each(func(n *Node) error {
		for range seconds {
			n.Host.Advance(time.Second)
		}
		return nil
	})
}

// Unbuffered is the window of VMs whose packets are not held, as those of New.
func Unbuffered(*model.VMRates) time.Duration { return 0 }

// each does something with all nodes, side by side. Their order changes nothing.
func (f *Fleet) each(do func(*Node) error) error {
	var group errgroup.Group
	group.SetLimit(cmp.Or(f.workers, runtime.GOMAXPROCS(0)))
	for _, n := range f.Nodes {
		group.Go(func() error { return do(n) })
	}
	return group.Wait()
}
