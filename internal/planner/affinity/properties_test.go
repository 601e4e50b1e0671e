package affinity

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// coreUse is what a plan puts on a core.
type coreUse struct {
	use  float64
	pins []pin
}

// pin is a vCPU of a VM that is pinned.
type pin struct {
	vm, vcpu int
	// demand, and the part of it that pins are to save.
	demand, spared float64
	isNew          bool
}

// used returns the use of each core with decisions, by the masks of all threads.
func (s *scenario) used(t *testing.T, decisions []Decision) []coreUse {
	t.Helper()
	cores := make([]coreUse, len(s.Node.Topology.Cores))
	for i, use := range OtherUse(s.Node.Topology, s.Node.CPUs, s.VMs) {
		cores[i].use = use
	}
	lack := model.NewLack(s.Node.CPUs)
	for i := range s.VMs {
		vm, d := s.VMs[i], decisions[i]
		demands := threadsOf(&vm)
		saved := s.Node.Costs.Pinned
		switch {
		case vm.Separated:
			saved = 1 - (1-saved)/(1-s.Node.Costs.Separated)
		case len(vm.Current) > 0:
			saved = 0
		}
		vm.Rates = changed(vm.Rates, d.Pins, func(c units.Cores) units.Cores { return c })
		vm.CurrentThreads = d.Threads
		for k, thread := range threadsOf(&vm) {
			demand := demands[k].run + float64(lack.Part(demands[k].cpus))*demands[k].wait
			if k < len(vm.Rates.VCPUs) {
				demand = min(1, demand)
			}
			reached := 0
			for _, core := range s.Node.Topology.Cores {
				reached += core.CPUs.Intersection(thread.cpus).Len()
			}
			for c, core := range s.Node.Topology.Cores {
				cores[c].use += demand * float64(core.CPUs.Intersection(thread.cpus).Len()) / float64(reached)
				if k < len(d.Pins) && d.Reason == v1alpha1.ReasonPinned && core.CPUs.Equal(d.Pins[k].CPUs) {
					isNew := !slices.ContainsFunc(vm.Current, func(p model.Pin) bool {
						return p.VCPU == d.Pins[k].VCPU && p.CPUs.Equal(core.CPUs)
					})
					cores[c].pins = append(cores[c].pins, pin{i, k, demand, demand * saved, isNew})
				}
			}
		}
	}
	return cores
}

// verify checks what must hold of every placement.
func (s *scenario) verify(t *testing.T, placed Placement) {
	t.Helper()
	for i, d := range placed.Decisions {
		s.verifyMasks(t, i, d)
	}
	for c, core := range s.used(t, placed.Decisions) {
		if len(core.pins) > 0 {
			s.verifyCore(t, c, core)
		}
	}
}

// verifyMasks checks that a VM is bound entirely or not at all, to whole cores that it may have.
func (s *scenario) verifyMasks(t *testing.T, i int, d Decision) {
	t.Helper()
	vm := &s.VMs[i]
	bound := d.Reason == v1alpha1.ReasonPinned || d.Reason == v1alpha1.ReasonSeparated
	switch {
	case bound != (len(d.Pins) == len(vm.Rates.VCPUs)), !bound && (len(d.Pins) > 0 || !d.Threads.IsZero()):
		t.Fatalf("VM %d: %d pins, reason %s", i, len(d.Pins), d.Reason)
	case !bound && !vm.Within.IsEmpty() && d.Reason != v1alpha1.ReasonNoAllowedCore && !vm.Fixed:
		t.Fatalf("VM %d is confined to %s and has no pins: %s", i, vm.Within, d.Reason)
	case !bound:
		return
	}
	var near, all units.CPUSet
	for _, p := range d.Pins {
		all = all.Union(p.CPUs)
	}
	cores := 0
	for _, core := range s.Node.Topology.Cores {
		if core.CPUs.Intersection(all).IsEmpty() {
			continue
		}
		cores++
		if !mayHave(s, *vm, core) || !core.CPUs.IsSubsetOf(all) {
			t.Fatalf("VM %d has pins to %s, of which it may not have %s", i, all, core.CPUs)
		}
		for _, other := range s.Node.Topology.Cores {
			if other.LLC == core.LLC {
				near = near.Union(other.CPUs)
			}
		}
	}
	for _, p := range d.Pins {
		if d.Reason == v1alpha1.ReasonPinned && newNode(s.Node).coreOf(p.CPUs) < 0 {
			t.Fatalf("VM %d is pinned to %s", i, p.CPUs)
		}
	}
	for _, cpus := range []units.CPUSet{d.Threads.Emulator, d.Threads.IOThreads, d.Threads.Vhost} {
		if cpus.IsEmpty() || !cpus.IsSubsetOf(near.Intersection(vm.Rates.AllowedCPUs)) || !all.IsSubsetOf(cpus) {
			t.Fatalf("VM %d: threads may use %s, with pins to %s", i, cpus, all)
		}
	}
	if io := d.Threads.Vhost; !vm.Within.IsEmpty() && !io.IsSubsetOf(vm.Within) {
		t.Fatalf("VM %d: vhost may use %s outside of the pool", i, io)
	}
}

// verifyCore checks the limits of a core with pins.
func (s *scenario) verifyCore(t *testing.T, c int, core coreUse) {
	t.Helper()
	const rounding, quiet, reserve, longest, newer, older = 1e-6, 0.15, 0.05, 0.1, 0.75, 1.5
	cpus := float64(s.Node.Topology.Cores[c].CPUs.Len())
	isNew := slices.ContainsFunc(core.pins, func(p pin) bool { return p.isNew })
	kept, limit := reserve*cpus, float64(s.Node.MaxCoreUtilization)*cpus
	if !isNew {
		kept = 0
	}
	for _, p := range core.pins {
		vm := &s.VMs[p.vm]
		for _, o := range core.pins {
			other := &s.VMs[o.vm]
			if p.vm != o.vm && cpus > 1 && s.Node.Sharing != v1alpha1.ShareAny &&
				(s.Node.Sharing == v1alpha1.ShareWithinVM || vm.Namespace != other.Namespace) {
				t.Fatalf("VMs %d and %d share siblings", p.vm, o.vm)
			}
		}
		if vm.Alone && len(core.pins) > int(cpus) {
			t.Fatalf("VM %d is to be alone, and %d vCPUs share core %d", p.vm, len(core.pins), c)
		}
		others := core.use - p.demand
		if len(core.pins) == 1 && others <= min(limit, quiet*cpus)-kept+rounding {
			continue
		}
		if core.use > limit-kept+rounding {
			t.Fatalf("use of core %d is %.3f, the limit %.3f", c, core.use, limit-kept)
		}
		most := longest
		if own := float64(vm.MaxWait); own > 0 {
			most = min(most, own)
		}
		wait := func(demand, others float64) float64 {
			allBusy := math.Pow(max(0, others)/cpus, cpus)
			return demand * allBusy / (1 - allBusy)
		}
		saved := 0.0
		for _, o := range core.pins {
			saved += o.spared
		}
		if wait := wait(p.demand, others); wait > older*most+rounding {
			t.Fatalf("vCPU %d of VM %d waits for %.3f of a CPU on core %d, and may for %.3f", p.vcpu, p.vm, wait, c, older*most)
		}
		if wait := wait(p.demand-p.spared, others-saved+p.spared); isNew && wait > newer*most+rounding {
			t.Fatalf("vCPU %d of VM %d is to wait for %.3f of a CPU on core %d, and may for %.3f", p.vcpu, p.vm, wait, c, newer*most)
		}
	}
}

// shapes from a small desktop to a server of two packages.
func shapes() []shape {
	return []shape{
		{Packages: 1, CachesPerPackage: 1, CoresPerCache: 1, Siblings: 1}, {Packages: 1, CachesPerPackage: 1, CoresPerCache: 4, Siblings: 2},
		{Packages: 1, CachesPerPackage: 3, CoresPerCache: 4, Siblings: 1}, {Packages: 2, CachesPerPackage: 1, CoresPerCache: 6, Siblings: 2},
		{Packages: 2, CachesPerPackage: 3, CoresPerCache: 2, Siblings: 2},
	}
}

func TestPlaceProperties(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := randomScenario(r, shapes()[seed%5], 1+r.IntN(14), 4)
		for i := range s.VMs {
			s.VMs[i].Alone = r.IntN(8) == 0
			s.VMs[i].MaxWait = []units.Cores{0, 0.02, 0.05, 1}[r.IntN(4)]
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			first := Place(s.Node, s.VMs)
			s.verify(t, first)
			if diff := cmp.Diff(first, Place(s.Node, s.VMs)); diff != "" {
				t.Fatalf("not deterministic (-first +second):\n%s", diff)
			}
			settles(t, s, first.Decisions)
		})
	}
}

// settles wants the plan to come to rest under constant rates. It may take some rounds:
// few VMs move in each, VMs that were rejected may find room then, and what is measured
// of threads with pins tells better what else runs where.
func settles(t *testing.T, s scenario, decisions []Decision) {
	t.Helper()
	rounds := 10 + len(s.VMs)
	for range rounds {
		s = s.adopt(decisions)
		next := Place(s.Node, s.VMs)
		s.verify(t, next)
		if cmp.Equal(decisions, next.Decisions) {
			return
		}
		decisions = next.Decisions
	}
	t.Fatalf("the plan still changes after %d rounds of equal rates", rounds)
}

// Two busy vCPUs never share a core while one that both may have idles.
func TestNoHotSpot(t *testing.T) {
	const busy, idle = 0.3, 0.1
	shared := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := randomScenario(r, shapes()[seed%5], 1+r.IntN(10), 4)
		for i := range s.VMs {
			// Of others none shares: they run anywhere rather.
			s.VMs[i].Preference = []v1alpha1.AffinityPreference{v1alpha1.AffinityPinned, v1alpha1.AffinityAuto}[r.IntN(2)]
		}
		decisions := Place(s.Node, s.VMs).Decisions
		predicted := s.used(t, decisions)
		for _, vcpu := range busyPins(&s, decisions, busy) {
			for _, other := range busyPins(&s, decisions, busy) {
				if other.key() == vcpu.key() || !other.cpus.Equal(vcpu.cpus) {
					continue
				}
				shared++
				for core, c := range s.Node.Topology.Cores {
					if predicted[core].use < idle && mayHave(&s, s.VMs[vcpu.vm], c) && c.Class == classOf(&s, vcpu.cpus) {
						t.Errorf("seed %d: VMs %d and %d have busy vCPUs on %s while %s idles", seed, vcpu.vm, other.vm, vcpu.cpus, c.CPUs)
					}
				}
			}
		}
	}
	if shared == 0 {
		t.Error("no two busy vCPUs ever shared a core: nothing was seen")
	}
}

type busyPin struct {
	vm, vcpu int
	cpus     units.CPUSet
}

func (p busyPin) key() string { return fmt.Sprint(p.vm, p.vcpu) }

func busyPins(s *scenario, decisions []Decision, busy units.Cores) []busyPin {
	var pins []busyPin
	for i, d := range decisions {
		for k, pin := range d.Pins {
			if d.Reason == v1alpha1.ReasonPinned && s.VMs[i].Rates.VCPUs[k].Demand() >= busy {
				pins = append(pins, busyPin{i, k, pin.CPUs})
			}
		}
	}
	return pins
}

func mayHave(s *scenario, vm VM, core model.Core) bool {
	return core.CPUs.IsSubsetOf(vm.Rates.AllowedCPUs) && core.CPUs.Intersection(s.Node.Excluded).IsEmpty() &&
		(vm.Within.IsEmpty() || core.CPUs.IsSubsetOf(vm.Within))
}

func classOf(s *scenario, cpus units.CPUSet) v1alpha1.CoreClass {
	for _, core := range s.Node.Topology.Cores {
		if core.CPUs.Equal(cpus) {
			return core.Class
		}
	}
	return ""
}

// With noise of 20 % on constant loads the pins of a settled node hardly ever change,
// but where what is measured makes a core hot.
func TestNoiseMovesNothing(t *testing.T) {
	const nodes, rounds, most = 30, 40, 0.02
	changed, forced := 0, 0
	for seed := range uint64(nodes) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := randomScenario(r, shapes()[seed%5], 2+r.IntN(8), 3)
		for range 4 {
			s = s.adopt(Place(s.Node, s.VMs).Decisions)
		}
		settled := Place(s.Node, s.VMs).Decisions
		for range rounds {
			noisy := s.adoptWith(settled, func(c units.Cores) units.Cores { return c * units.Cores(0.8+0.4*r.Float64()) })
			next := Place(noisy.Node, noisy.VMs).Decisions
			if cmp.Equal(settled, next) {
				continue
			}
			if n := newNode(noisy.Node); n.isBroken(noisy.VMs) {
				forced++
			} else {
				changed++
			}
			settled, s = next, s.adopt(next)
		}
	}
	t.Logf("of %d rounds, pins changed in %d by choice and in %d because a limit was broken", nodes*rounds, changed, forced)
	if float64(changed) > most*nodes*rounds {
		t.Errorf("pins changed by noise alone in %d of %d rounds", changed, nodes*rounds)
	}
}

// load is what wants CPU time on some cores.
type load struct {
	want  float64
	cores []int
}

// unmet returns how much of all demand does not fit on the cores where it may run,
// however the kernel shares it out: all, less the greatest flow from loads to cores.
func unmet(loads []load, room []float64) float64 {
	given := make([][]float64, len(loads))
	left, total := make([]float64, len(loads)), 0.0
	for i := range loads {
		given[i], left[i] = make([]float64, len(room)), loads[i].want
		total += loads[i].want
	}
	// give finds room for some more of a load, taking that of others that may move on.
	var give func(i int, most float64, seen []bool) float64
	give = func(i int, most float64, seen []bool) float64 {
		for _, core := range loads[i].cores {
			if seen[core] {
				continue
			}
			seen[core] = true
			if got := min(most, room[core]); got > 1e-9 {
				room[core] -= got
				given[i][core] += got
				return got
			}
			for j := range loads {
				if given[j][core] <= 1e-9 {
					continue
				}
				if got := give(j, min(most, given[j][core]), seen); got > 0 {
					given[j][core] -= got
					given[i][core] += got
					return got
				}
			}
		}
		return 0
	}
	for i := range loads {
		for left[i] > 1e-9 {
			got := give(i, left[i], make([]bool, len(room)))
			if got == 0 {
				break
			}
			left[i] -= got
			total -= got
		}
	}
	return total
}

// loadsOf are the loads of VMs, where decisions let them run: without, anywhere.
func loadsOf(s *scenario, decisions []Decision) (loads []load) {
	add := func(want units.Cores, set, otherwise units.CPUSet) {
		if set.IsEmpty() {
			set = otherwise
		}
		l := load{want: float64(want)}
		for i, core := range s.Node.Topology.Cores {
			if !core.CPUs.Intersection(set).IsEmpty() {
				l.cores = append(l.cores, i)
			}
		}
		loads = append(loads, l)
	}
	for i, vm := range s.VMs {
		var d Decision
		if decisions != nil {
			d = decisions[i]
		}
		for k, c := range vm.Rates.VCPUs {
			var set units.CPUSet
			if len(d.Pins) > 0 {
				set = d.Pins[k].CPUs
			}
			add(c.RunCores, set, vm.Rates.AllowedCPUs)
		}
		add(vm.Rates.Emulator.RunCores, d.Threads.Emulator, vm.Rates.AllowedCPUs)
		add(vm.Rates.IOThreads.RunCores, d.Threads.IOThreads, vm.Rates.AllowedCPUs)
		add(vm.Rates.Vhost.RunCores, d.Threads.Vhost, vm.Rates.AllowedCPUs)
		add(vm.Rates.Other.RunCores, units.CPUSet{}, vm.Rates.AllowedCPUs)
	}
	return loads
}

// Where all that runs finds room without a plan, it does with one: nobody starves for
// somebody's pins. Outside of pools, which take from some on purpose.
func TestPlansLeaveRoomForAll(t *testing.T) {
	tried := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 21))
		s := randomScenario(r, shapes()[seed%5], 1+r.IntN(14), 4)
		room := func() []float64 {
			all := make([]float64, len(s.Node.Topology.Cores))
			for i, core := range s.Node.Topology.Cores {
				all[i] = float64(core.CPUs.Len())
			}
			return all
		}
		for i := range s.VMs {
			s.VMs[i].Within = units.CPUSet{}
		}
		before := unmet(loadsOf(&s, nil), room())
		after := unmet(loadsOf(&s, Place(s.Node, s.VMs).Decisions), room())
		if before < 1e-6 {
			tried++
		}
		if after > before+1e-6 {
			t.Errorf("seed %d: %.3f CPUs' work finds no room with a plan, %.3f without", seed, after, before)
		}
	}
	if tried < 100 {
		t.Errorf("only %d nodes had room for all", tried)
	}
}

// A VM that stays keeps its pins or loses them, whatever others do, and loses them only
// where a limit is broken; one without pins gets none.
func TestStays(t *testing.T) {
	kept, lost := 0, 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := randomScenario(r, shapes()[seed%5], 2+r.IntN(12), 4)
		s = s.adopt(Place(s.Node, s.VMs).Decisions)
		for i := range s.VMs {
			s.VMs[i].Fixed = r.IntN(2) == 0
			for k := range s.VMs[i].Rates.VCPUs {
				c := &s.VMs[i].Rates.VCPUs[k]
				c.RunCores = min(1, c.RunCores*2)
			}
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			for i, d := range Place(s.Node, s.VMs).Decisions {
				vm := &s.VMs[i]
				switch {
				case !vm.Fixed:
				case len(d.Pins) == 0:
					lost += min(1, len(vm.Current))
				case !cmp.Equal(d.Pins, vm.Current):
					t.Errorf("VM %d has pins %v, had %v", i, d.Pins, vm.Current)
				default:
					kept++
				}
			}
		})
	}
	if kept == 0 || lost == 0 {
		t.Errorf("%d VMs kept their pins and %d lost them: want some of both", kept, lost)
	}
}

// idle has so many VMs of two vCPUs that do next to nothing, on a node of four cores.
func idle(vms int) scenario {
	s := scenario{Node: newTestNode(shapes()[1])}
	for i := range vms {
		vm := newTestVM(string(rune('a'+i)), s.Node.Topology.Online(), 0.02, 0.02)
		vm.Preference = v1alpha1.AffinityPinned
		s.VMs = append(s.VMs, vm)
	}
	s.run()
	return s
}

// sharers returns the most vCPUs that are pinned to a core of a VM's vCPUs, itself too.
func sharers(placed Placement, vm int) int {
	most := 0
	for _, mine := range placed.Decisions[vm].Pins {
		on := 0
		for _, d := range placed.Decisions {
			for _, pin := range d.Pins {
				if pin.CPUs.Equal(mine.CPUs) {
					on++
				}
			}
		}
		most = max(most, on)
	}
	return most
}

// VMs that waited where they were bound get CPUs of their own, and those that are stacked
// with them make room; when there is no room they run anywhere.
func TestVMsThatWaitedShareNoCPU(t *testing.T) {
	stacked := idle(12)
	first := Place(stacked.Node, stacked.VMs)
	if sharers(first, 0) <= 2 {
		t.Fatalf("nothing is stacked: %+v", first.Decisions)
	}
	next := stacked.adopt(first.Decisions)
	next.VMs[0].Alone = true
	moved := Place(next.Node, next.VMs)
	if got := sharers(moved, 0); got != 2 && got != 1 {
		t.Errorf("%d vCPUs share its cores: %+v", got, moved.Decisions)
	}
	for i := range next.VMs {
		next.VMs[i].Alone = true
		if len(moved.Decisions[i].Pins) == 0 {
			t.Errorf("VM %d is bound no more: %s", i, moved.Decisions[i].Reason)
		}
	}
	bound := 0
	all := Place(next.Node, next.VMs)
	for i, d := range all.Decisions {
		switch {
		case len(d.Pins) > 0:
			bound++
			if got := sharers(all, i); got > 2 {
				t.Errorf("VM %d: %d vCPUs share its cores", i, got)
			}
		case d.Reason != v1alpha1.ReasonCoreWouldBeHot:
			t.Errorf("VM %d runs anywhere: %s", i, d.Reason)
		}
	}
	if bound == 0 || bound > 4 {
		t.Errorf("%d VMs are bound to eight CPUs", bound)
	}
}

func turbo() model.Clocks {
	return model.Clocks{Governor: "schedutil", FollowLoad: true, Lowest: 800, Highest: 3500, Base: 2500}
}

// coresOf counts the cores that VMs are pinned to.
func coresOf(decisions []Decision) int {
	used := map[string]bool{}
	for _, d := range decisions {
		for _, pin := range d.Pins {
			used[pin.CPUs.String()] = true
		}
	}
	return len(used)
}

// fleet is a server with room to spare, whose VMs work a little each.
func fleet(clocks model.Clocks) scenario {
	node := newTestNode(shape{Packages: 1, CachesPerPackage: 1, CoresPerCache: 16, Siblings: 2})
	node.Topology.Clocks = clocks
	node.Costs.PerAwakeCore = 0.3
	s := scenario{Node: node}
	for i := range 40 {
		s.VMs = append(s.VMs, testVM(node, v1alpha1.AffinityAuto, units.Cores(0.06+0.004*float64(i%10)), 0.08))
	}
	s.run()
	return s
}

// How far to pack is decided by the price: not at all where a core that is used more is much
// dearer, and onto few cores where clocks do not matter.
func TestClocksDecideHowFarToPack(t *testing.T) {
	count := func(change func(*model.Clocks)) int {
		clocks := turbo()
		change(&clocks)
		s := fleet(clocks)
		return coresOf(Place(s.Node, s.VMs).Decisions)
	}
	wide := count(func(*model.Clocks) {})
	fixed := count(func(c *model.Clocks) { c.FollowLoad = false })
	none := count(func(c *model.Clocks) { *c = model.Clocks{} })
	flat := count(func(c *model.Clocks) { c.Lowest = c.Highest })
	if wide <= fixed {
		t.Errorf("%d cores have pins by wide clocks, %d by fixed ones: want fewer", wide, fixed)
	}
	if none != fixed || flat != fixed {
		t.Errorf("%d cores have pins where clocks are not known, %d where there is one only, %d where they are fixed", none, flat, fixed)
	}
}

// A plan costs no more than to bind no VM.
func TestPlansCostNoMore(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 32))
		s := randomScenario(r, shapes()[seed%5], 1+r.IntN(14), 4)
		s.Node.Topology.Clocks = turbo()
		for i := range s.VMs {
			s.VMs[i].Preference, s.VMs[i].Within = v1alpha1.AffinityAuto, units.CPUSet{}
		}
		n := newNode(s.Node)
		use := n.unmanaged(s.VMs)
		without := newState(n, s.VMs, use)
		without.bindCurrent()
		if with := n.place(s.VMs, use, false); with.total > without.total+eps {
			t.Errorf("seed %d: the plan costs %.3f, none %.3f", seed, with.total, without.total)
		}
	}
}

// isBroken reports whether a limit is broken by what is in force.
func (n *node) isBroken(vms []VM) bool {
	s := newState(n, vms, n.unmanaged(vms))
	s.bindCurrent()
	return s.broken() > 0
}
