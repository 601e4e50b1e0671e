package pools

import (
	"math/rand/v2"
	"testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// newNode has n cores of the given number of siblings, the second siblings after all
// first ones, and four cores a cache.
func newNode(n, siblings int) Node {
	node := Node{MaxCoreUtilization: 0.85}
	for i := range n {
		var cpus []int
		for s := range siblings {
			cpus = append(cpus, i+s*n)
		}
		node.Topology.Cores = append(node.Topology.Cores, model.Core{CPUs: units.NewCPUSet(cpus...), LLC: i / 4, NUMANode: i / 8, Package: i / 8})
	}
	return node
}

// memberOf has a vCPU for each load, and may run on all of the node's CPUs.
func memberOf(node Node, pool v1alpha1.Pool, weight float64, loads ...units.Cores) Member {
	rates := &model.VMRates{AllowedCPUs: node.Topology.Online(), Weight: weight}
	for i, load := range loads {
		rates.VCPUs = append(rates.VCPUs, model.VCPURates{Index: i, CPUs: rates.AllowedCPUs, ThreadRates: model.ThreadRates{RunCores: load}})
	}
	return Member{VM: VM{Rates: rates, Confinable: true}, Pool: pool}
}

func network(node Node, weight float64, loads ...units.Cores) Member {
	return memberOf(node, v1alpha1.PoolNetwork, weight, loads...)
}

func compute(node Node, weight float64, loads ...units.Cores) Member {
	return memberOf(node, v1alpha1.PoolCompute, weight, loads...)
}

// hogs are VMs of one busy vCPU each.
func hogs(node Node, n int, weight float64) (vms []Member) {
	for range n {
		vms = append(vms, compute(node, weight, 1))
	}
	return vms
}

func disturbed(vm Member) Member {
	vm.Disturbance = v1alpha1.CauseNeighbour
	return vm
}

// waiting has vCPUs wait for most of what they want.
func waiting(vms []Member) []Member {
	for _, vm := range vms {
		for i := range vm.Rates.VCPUs {
			t := &vm.Rates.VCPUs[i].ThreadRates
			t.RunCores, t.WaitCores = 0.3*t.RunCores, 0.7*t.RunCores
		}
	}
	return vms
}

// outcome is a division in short.
func outcome(cores Cores) string { return cores.Network.String() + "|" + cores.Compute.String() }

func TestShareBesideALargePod(t *testing.T) {
	small := thread{demand: 0.3, weight: 1024}
	for name, tc := range map[string]struct {
		rivals []thread
		cpus   int
		want   float64
	}{
		"nobody":                              {nil, 1, 1},
		"one of its size":                     {[]thread{{1, 1024}}, 1, 0.5},
		"one busy vCPU of a pod of 32 CPUs":   {[]thread{{1, 32 * 1024}}, 1, 1.0 / 33},
		"32 busy vCPUs of it, on 32 CPUs":     {many(32, thread{1, 1024}), 32, 0.5},
		"one busy vCPU of it, on 2 CPUs":      {[]thread{{1, 32 * 1024}}, 2, 0.5 + 0.5/33},
		"three of its size on one CPU":        {many(3, thread{1, 1024}), 1, 0.25},
		"a rival that is there a tenth of it": {[]thread{{0.1, 1024}}, 1, 0.9 + 0.1/2},
	} {
		var r rivals
		for _, rival := range tc.rivals {
			r.add(rival, tc.cpus)
		}
		if got := r.share(small); got < tc.want-1e-9 || got > tc.want+1e-9 {
			t.Errorf("%s: %v of a CPU, want %v", name, got, tc.want)
		}
	}
}

func many(n int, of thread) (all []thread) {
	for range n {
		all = append(all, of)
	}
	return all
}

func TestDivide(t *testing.T) {
	eight, two, smt := newNode(8, 1), newNode(2, 1), newNode(8, 2)
	// Ten CPUs, a pod of eight CPUs with one busy vCPU, others with eight busy vCPUs.
	ten := newNode(10, 1)
	large := compute(ten, 8*1024, 1, 0, 0, 0, 0, 0, 0, 0)
	unbound := func(vm Member) Member { vm.Confinable = false; return vm }
	busyBy := func(node Node, use units.Cores) Node {
		for _, cpu := range node.Topology.Online().CPUs() {
			node.CPUs = append(node.CPUs, model.CPURates{CPU: cpu, BusyCores: use})
		}
		return node
	}
	for name, tc := range map[string]struct {
		node Node
		vms  []Member
		want string
	}{
		"a small network VM beside a large pod's one busy vCPU": {ten, append(hogs(ten, 8, 102), large, network(ten, 102, 0.3)), "0|1-9"},
		"the same, and the large pod has no busy vCPU":          {ten, append(hogs(ten, 8, 102), compute(ten, 8*1024, 0, 0, 0, 0, 0, 0, 0, 0), network(ten, 102, 0.3)), "|"},
		"the same, and they wait on CPUs that have time":        {busyBy(newNode(10, 1), 0.5), waiting(append(hogs(ten, 8, 102), compute(ten, 8*1024, 1, 0, 0, 0, 0, 0, 0, 0), network(ten, 102, 0.3))), "|"},
		"the same, and they wait on CPUs that have none":        {busyBy(newNode(10, 1), 1), waiting(append(hogs(ten, 8, 102), compute(ten, 8*1024, 1, 0, 0, 0, 0, 0, 0, 0), network(ten, 102, 0.3))), "0|1-9"},
		"the same, and most CPUs are idle":                      {ten, []Member{large, network(ten, 102, 0.3)}, "|"},
		"the same, and the pod needs all that is left":          {newNode(8, 1), append(hogs(eight, 7, 102), compute(eight, 8*1024, 1, 0, 0, 0, 0, 0, 0, 0), network(eight, 102, 0.3)), "|"},
		"pods of one size share":                                {two, append(hogs(two, 2, 1024), network(two, 1024, 0.3)), "|"},
		"unless the network VM was seen to wait":                {two, append(hogs(two, 2, 1024), disturbed(network(two, 1024, 0.2))), "0|1"},
		"though not where half of the CPUs are idle":            {eight, append(hogs(eight, 3, 1024), disturbed(network(eight, 1024, 0.3))), "|"},
		"it would starve, but compute would lose half":          {two, append(hogs(two, 2, 16*1024), network(two, 1024, 0.2)), "|"},
		"no network VM":                {eight, hogs(eight, 8, 1024), "|"},
		"no compute VM":                {eight, []Member{network(eight, 1024, 0.3)}, "|"},
		"an idle network VM":           {ten, append(hogs(ten, 8, 102), large, network(ten, 102, 0.04)), "|"},
		"dedicated compute VMs":        {eight, []Member{unbound(compute(eight, 1024, 1)), network(eight, 1024, 0.3)}, "|"},
		"unmanaged load counts too":    {busyBy(newNode(16, 1), 0.9), []Member{compute(newNode(16, 1), 1024, 0.1), network(newNode(16, 1), 102, 0.3)}, "0|1-15"},
		"unless it is little":          {busyBy(newNode(16, 1), 0.3), []Member{compute(newNode(16, 1), 1024, 0.1), network(newNode(16, 1), 102, 0.3)}, "|"},
		"whole cores":                  {smt, append(hogs(smt, 15, 8*1024), network(smt, 1024, 0.3, 0.1)), "0,8|1-7,9-15"},
		"the knee":                     {smt, append(hogs(smt, 14, 8*1024), disturbed(network(smt, 1024, 0.7)), disturbed(network(smt, 1024, 0.6))), "0-1,8-9|2-7,10-15"},
		"as many CPUs as it has vCPUs": {smt, append(hogs(smt, 14, 8*1024), disturbed(network(smt, 1024, 0.2, 0.1, 0.1))), "0-1,8-9|2-7,10-15"},
		"one core, all the same":       {newNode(1, 2), append(hogs(newNode(1, 2), 2, 8*1024), disturbed(network(newNode(1, 2), 1024, 0.3))), "|"},
		"weights unknown":              {two, append(hogs(two, 2, 0), network(two, 0, 0.3)), "|"},
		"no cores":                     {Node{}, append(hogs(two, 2, 0), network(two, 0, 0.3)), "|"},
	} {
		if got := outcome(Divide(tc.node, tc.vms)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// Where the network pool lies.
func TestDivideChoosesCores(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Node)
		load   units.Cores
		want   string
	}{
		"the first that suit":    {nil, 0.3, "0"},
		"inside one cache":       {func(n *Node) { n.Excluded = units.NewCPUSet(0, 1, 2) }, 1, "4-5"},
		"outside of what is not": {func(n *Node) { n.Excluded = units.NewCPUSet(0, 1, 2, 3, 4) }, 0.3, "5"},
		"near the card":          {func(n *Node) { n.Topology.NICs = []model.NIC{{NUMANode: 1}} }, 0.3, "8"},
		"not where the card's interrupts fill a core": {func(n *Node) {
			n.Topology.NICs = []model.NIC{{NUMANode: 1, CPUs: units.NewCPUSet(8, 9)}}
			n.CPUs = []model.CPURates{{CPU: 8, BusyCores: 0.6, StealCores: 0.4}, {CPU: 9, BusyCores: 0.6, StealCores: 0.4}}
		}, 0.3, "10"},
		"where others do least": {func(n *Node) {
			n.CPUs = []model.CPURates{{CPU: 0, BusyCores: 0.4, StealCores: 0.6}, {CPU: 1, BusyCores: 0.2, StealCores: 0.8}}
		}, 0.3, "1"},
		"where it was, whatever else its core does": {filledCore, 0.3, "11"},
		"where it was":                   {func(n *Node) { n.Current = cores("11", "0-10,12-15") }, 0.3, "11"},
		"grows in its cache":             {func(n *Node) { n.Current = cores("6", "0-5,7-15") }, 0.9, "4,6"},
		"stays when it could be smaller": {func(n *Node) { n.Current = cores("6-7", "0-5,8-15") }, 0.45, "6-7"},
		"shrinks when it is much larger": {func(n *Node) { n.Current = cores("6-7", "0-5,8-15") }, 0.35, "6"},
		"a core of it went":              {func(n *Node) { n.Current, n.Excluded = cores("6-7", "0-5,8-15"), units.NewCPUSet(6) }, 0.35, "7"},
		"all of it went":                 {func(n *Node) { n.Current, n.Excluded = cores("6", "0-5,7-15"), units.NewCPUSet(6) }, 0.3, "0"},
	} {
		node := newNode(16, 1)
		if tc.change != nil {
			tc.change(&node)
		}
		vms := append(hogs(node, 14, 8*1024), disturbed(network(node, 1024, tc.load)))
		// What the hogs use is no unmanaged load.
		for i := range vms[:14] {
			vms[i].Rates.VCPUs[0].RunCores, vms[i].Rates.VCPUs[0].WaitCores = 0, 1
		}
		vms[14].Rates.VCPUs[0].RunCores, vms[14].Rates.VCPUs[0].WaitCores = 0, tc.load
		got := Divide(node, vms)
		if got.Network.String() != tc.want {
			t.Errorf("%s: %s, want %s", name, outcome(got), tc.want)
		}
	}
}

// filledCore has a pool in force on a core that a card's interrupts fill.
func filledCore(n *Node) {
	n.Current = cores("11", "0-10,12-15")
	n.Topology.NICs = []model.NIC{{NUMANode: 0, CPUs: units.NewCPUSet(11)}}
	n.CPUs = []model.CPURates{{CPU: 11, BusyCores: 0.9, StealCores: 0.1}}
}

func cores(network, compute string) Cores {
	n, err := units.ParseCPUSet(network)
	if err != nil {
		panic(err)
	}
	c, err := units.ParseCPUSet(compute)
	if err != nil {
		panic(err)
	}
	return Cores{Network: n, Compute: c}
}

// A division ends when its cores are quiet, or one pool has no VM, and not before.
func TestDivisionInForce(t *testing.T) {
	node := newNode(4, 1)
	node.Current = cores("0", "1-3")
	for name, tc := range map[string]struct {
		vms  []Member
		want string
	}{
		"it works: nothing waits":  {append(hogs(node, 3, 1024), network(node, 1024, 0.3)), "0|1-3"},
		"fewer hogs":               {append(hogs(node, 2, 1024), network(node, 1024, 0.3)), "0|1-3"},
		"one hog":                  {append(hogs(node, 1, 1024), network(node, 1024, 0.3)), "|"},
		"the network VMs are idle": {append(hogs(node, 3, 1024), network(node, 1024, 0.01)), "|"},
		"they went":                {hogs(node, 3, 1024), "|"},
		"more hogs":                {append(hogs(node, 9, 1024), network(node, 1024, 0.3)), "0|1-3"},
		"a larger compute VM":      {append(hogs(node, 3, 1024), compute(node, 1024, 1, 1, 1, 1), network(node, 1024, 0.3)), "|"},
		"a network VM of more vCPUs, for which compute would be crowded": {append(hogs(node, 2, 1024), network(node, 1024, 0.3, 0)), "|"},
		"the same, disturbed": {append(hogs(node, 2, 1024), disturbed(network(node, 1024, 0.3, 0))), "0-1|2-3"},
	} {
		if got := outcome(Divide(node, tc.vms)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// scenario is a random node with random VMs.
func scenario(r *rand.Rand) (Node, []Member) {
	node := newNode(1+r.IntN(16), 1+r.IntN(2))
	if r.IntN(3) == 0 {
		node.Topology.NICs = []model.NIC{{NUMANode: r.IntN(2), CPUs: units.NewCPUSet(r.IntN(8))}}
	}
	if r.IntN(3) == 0 {
		node.Excluded = units.NewCPUSet(r.IntN(4), r.IntN(32))
	}
	full := units.Cores(r.IntN(2))
	for _, cpu := range node.Topology.Online().CPUs() {
		busy := units.Cores(r.Float64() * r.Float64())
		node.CPUs = append(node.CPUs, model.CPURates{CPU: cpu, BusyCores: busy, StealCores: full * (1 - busy)})
	}
	var vms []Member
	for range r.IntN(24) {
		var loads []units.Cores
		for range r.IntN(5) {
			loads = append(loads, units.Cores(r.Float64()))
		}
		vm := memberOf(node, []v1alpha1.Pool{v1alpha1.PoolNetwork, v1alpha1.PoolCompute}[r.IntN(2)], []float64{0, 102, 1024, 32768}[r.IntN(4)], loads...)
		for i := range vm.Rates.VCPUs {
			vm.Rates.VCPUs[i].WaitCores = units.Cores(r.Float64() * 0.2)
		}
		vm.Rates.Vhost.RunCores = units.Cores(r.Float64() * 0.2)
		vm.Confinable = r.IntN(8) > 0
		if r.IntN(3) == 0 {
			vm.Disturbance = v1alpha1.CauseNeighbour
		}
		if r.IntN(8) == 0 {
			vm.Rates.AllowedCPUs = units.NewCPUSet(r.IntN(16), r.IntN(16), r.IntN(16), r.IntN(16))
		}
		vms = append(vms, vm)
	}
	return node, vms
}

// verify checks what must hold of every division.
func verify(t *testing.T, node Node, vms []Member, cores Cores) {
	t.Helper()
	if cores.Shared() || cores.Compute.IsEmpty() {
		if !cores.Shared() || !cores.Compute.IsEmpty() {
			t.Fatalf("half a division: %s", outcome(cores))
		}
		return
	}
	if !cores.Network.Intersection(cores.Compute).IsEmpty() {
		t.Fatalf("pools have cores in common: %s", outcome(cores))
	}
	both := cores.Network.Union(cores.Compute)
	if !both.IsSubsetOf(node.Topology.Online().Difference(node.Excluded)) {
		t.Fatalf("%s of %s without %s", outcome(cores), node.Topology.Online(), node.Excluded)
	}
	for _, c := range node.Topology.Cores {
		for _, pool := range []units.CPUSet{cores.Network, cores.Compute} {
			if in := c.CPUs.Intersection(pool); !in.IsEmpty() && !in.Equal(c.CPUs) {
				t.Fatalf("core %s is cut: %s", c.CPUs, outcome(cores))
			}
		}
	}
	for i, vm := range vms {
		if !vm.Confinable || len(vm.Rates.VCPUs) == 0 {
			continue
		}
		pool := cores.Compute
		if vm.Pool == v1alpha1.PoolNetwork {
			pool = cores.Network
		}
		if pool.Intersection(vm.Rates.AllowedCPUs).Len() < len(vm.Rates.VCPUs) {
			t.Fatalf("VM %d of %d vCPUs on %s has %s", i, len(vm.Rates.VCPUs), vm.Rates.AllowedCPUs, outcome(cores))
		}
	}
}

func TestDivisionsAreSound(t *testing.T) {
	divided := 0
	for seed := range uint64(3000) {
		node, vms := scenario(rand.New(rand.NewPCG(seed, 5)))
		cores := Divide(node, vms)
		verify(t, node, vms, cores)
		if again := Divide(node, vms); !again.Equal(cores) {
			t.Fatalf("seed %d: %v, then %v", seed, cores, again)
		}
		if !cores.Shared() {
			divided++
		}
	}
	if divided < 100 {
		t.Errorf("only %d of 3000 nodes are divided: the test tests little", divided)
	}
}

// noisy returns the node and its VMs with every load off by up to a fifth.
func noisy(r *rand.Rand, node Node, vms []Member) (Node, []Member) {
	off := func(x units.Cores) units.Cores { return x * units.Cores(0.8+0.4*r.Float64()) }
	node.CPUs = append([]model.CPURates(nil), node.CPUs...)
	for i := range node.CPUs {
		node.CPUs[i].BusyCores = min(1, off(node.CPUs[i].BusyCores))
	}
	vms = append([]Member(nil), vms...)
	for i := range vms {
		rates := *vms[i].Rates
		rates.VCPUs = append([]model.VCPURates(nil), rates.VCPUs...)
		for k := range rates.VCPUs {
			rates.VCPUs[k].RunCores, rates.VCPUs[k].WaitCores = off(rates.VCPUs[k].RunCores), off(rates.VCPUs[k].WaitCores)
		}
		rates.Vhost.RunCores = off(rates.Vhost.RunCores)
		vms[i].Rates, vms[i].Disturbance = &rates, v1alpha1.CauseStable
	}
	return node, vms
}

// Once divided, a node stays so on the same cores while loads are off by a fifth, be
// the VM that was disturbed still so or not.
func TestDivisionsAreStable(t *testing.T) {
	divided := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 5))
		node, vms := scenario(r)
		first := Divide(node, vms)
		if first.Shared() {
			continue
		}
		divided++
		node.Current = first
		for range 10 {
			cores := Divide(noisy(r, node, vms))
			if !cores.Equal(first) {
				t.Fatalf("seed %d: %v|%v becomes %s", seed, first.Network, first.Compute, outcome(cores))
			}
		}
	}
	if divided < 100 {
		t.Errorf("only %d nodes are divided: the test tests little", divided)
	}
}
