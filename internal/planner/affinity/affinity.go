// Package affinity places the vCPUs of VMs on physical cores, each on exactly
// one: never on a part of a core, because a vCPU and a stranger on sibling
// threads slow each other down.
//
// It is a scheduling problem with restricted machines, which is hard to solve
// exactly. Longest-first placement with improving moves is fast, deterministic
// and can start from the plan in force, so that little changes when little
// changed. The tests compare it with exhaustive search on small nodes.
package affinity

import (
	"cmp"
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Node is what the placement needs to know of a node.
type Node struct {
	Topology model.Topology
	// Excluded CPUs take no pins, nor do their siblings.
	Excluded units.CPUSet
	// CPUs is the measured use of each logical CPU.
	CPUs []model.CPURates
	// MaxCoreUtilization is the predicted use per sibling CPU above which a
	// core is hot: from 0 to 1.
	MaxCoreUtilization units.Cores
	// Sharing says whose vCPUs may be bound to the siblings of one core.
	Sharing model.SiblingSharing
	// Costs are what plans are weighed by.
	Costs model.PowerCosts
}

// VM is a VM whose threads are to be placed.
type VM struct {
	// Namespace of the VM: its tenant.
	Namespace string
	Rates     *model.VMRates
	// Preference of the VM's profile: Auto, Separated or Pinned. Shared VMs are not
	// given: what they use is unmanaged load.
	Preference model.AffinityPreference
	// Within are the CPUs of the VM's pool, to which it is confined whatever it
	// prefers. Empty: pools share their cores, and nothing confines the VM.
	Within units.CPUSet
	// Network VMs are placed near the node's network cards, where that costs nothing.
	Network bool
	// Current pins, which are kept when too little is gained by changing them.
	Current []model.Pin
	// CurrentThreads are the CPUs of the other threads now.
	CurrentThreads model.ThreadCPUs
}

// Decision is what becomes of a VM: pins for all its vCPUs, or none and the
// reason.
type Decision struct {
	Pins    []model.Pin
	Threads model.ThreadCPUs
	Reason  model.Reason
}

// Placement is what becomes of a node's VMs, in the order given, and the dynamic
// power that is predicted of the node as it is and with it.
type Placement struct {
	Decisions     []Decision
	Before, After units.Watts
}

// Place decides for each VM, in the order given. VMs that are pinned already
// go first, so that a newcomer never costs another VM its pins; then all
// newcomers at once; and if that makes a core hot, one after the other, the
// least busy first, so that most of them find a place.
func Place(node Node, vms []VM) Placement {
	p := newPlacement(newCores(node), vms)
	var newcomers []int
	for i, vm := range p.vms {
		switch {
		case len(vm.vcpus) == 0 || !vm.pinned:
			newcomers = append(newcomers, i)
		default:
			p.members = append(p.members, i)
		}
	}
	p.settle()
	p.admitAll(newcomers)
	return Placement{Decisions: p.decisions()}
}

// placement is the work in progress.
type placement struct {
	cores cores
	vms   []*vm
	// members are the VMs that get pins, as indexes of vms.
	members []int
	// at is the core of each vCPU of the members.
	at map[*vcpu]int
}

type vm struct {
	vcpus []*vcpu
	// pinned is true when all vCPUs have a usable pin in the plan in force.
	pinned bool
	load   units.Cores
	reason model.Reason
}

type vcpu struct {
	vm, index int
	// load is never zero, so that idle vCPUs are spread too.
	load    units.Cores
	allowed []int
	// current is the core of the pin in force, or -1.
	current int
	shares  []units.Cores
}

// idleLoad is what an idle vCPU counts for.
const idleLoad units.Cores = 0.01

func newPlacement(c cores, vms []VM) *placement {
	p := &placement{cores: c, at: map[*vcpu]int{}}
	for i, in := range vms {
		out := &vm{pinned: true, reason: model.ReasonPinned}
		allowed := c.within(in.Rates.AllowedCPUs)
		for _, rates := range in.Rates.VCPUs {
			v := &vcpu{
				vm: i, index: rates.Index, load: max(rates.RunCores, idleLoad),
				allowed: allowed, current: -1, shares: c.shares(rates),
			}
			if at := slices.IndexFunc(in.Current, func(pin model.Pin) bool { return pin.VCPU == rates.Index }); at >= 0 {
				if core := c.indexOf(in.Current[at].CPUs); slices.Contains(allowed, core) {
					v.current = core
				}
			}
			out.pinned = out.pinned && v.current >= 0
			out.load += v.load
			out.vcpus = append(out.vcpus, v)
		}
		switch {
		case len(out.vcpus) == 0:
			out.reason = model.ReasonNotRunning
		case len(allowed) == 0:
			out.reason = model.ReasonNoAllowedCore
		}
		p.vms = append(p.vms, out)
	}
	return p
}

// settle improves the pins in force and lets go of VMs that would keep a core
// hot. It begins again after each, from the pins in force, so that the others
// are not left where only the one that went made sense.
func (p *placement) settle() {
	for {
		a := p.assign(p.members, nil)
		hot := a.hottest(make([]units.Cores, len(p.cores.limit)))
		if hot < 0 {
			p.at = a.at
			return
		}
		p.reject(p.heaviestOn(a, hot))
	}
}

func (p *placement) heaviestOn(a *assignment, core int) int {
	load := map[int]units.Cores{}
	for _, v := range a.on[core] {
		load[v.vm] += v.load
	}
	return slices.MaxFunc(p.members, func(x, y int) int {
		return cmp.Or(cmp.Compare(load[x], load[y]), cmp.Compare(y, x))
	})
}

func (p *placement) reject(vm int) {
	p.vms[vm].reason = model.ReasonCoreWouldBeHot
	p.members = slices.DeleteFunc(slices.Clone(p.members), func(m int) bool { return m == vm })
}

func (p *placement) admitAll(newcomers []int) {
	newcomers = slices.DeleteFunc(newcomers, func(i int) bool { return p.vms[i].reason != model.ReasonPinned })
	if p.admit(newcomers) {
		return
	}
	slices.SortStableFunc(newcomers, func(x, y int) int { return cmp.Compare(p.vms[x].load, p.vms[y].load) })
	for _, vm := range newcomers {
		if !p.admit([]int{vm}) {
			p.vms[vm].reason = model.ReasonCoreWouldBeHot
		}
	}
}

// admit adds VMs and reports true, or changes nothing when a core would be
// hot, or closer to it than new pins may come.
func (p *placement) admit(newcomers []int) bool {
	members := append(slices.Clone(p.members), newcomers...)
	a := p.assign(members, p.at)
	margin := make([]units.Cores, len(p.cores.limit))
	for core := range margin {
		if slices.ContainsFunc(a.on[core], func(v *vcpu) bool { return p.at[v] != core || !slices.Contains(p.members, v.vm) }) {
			margin[core] = p.cores.reserve[core]
		}
	}
	if a.hottest(margin) >= 0 {
		return false
	}
	p.members, p.at = members, a.at
	return true
}

// assign places the members' vCPUs, beginning from where they are in at, or
// else from the pins in force.
func (p *placement) assign(members []int, at map[*vcpu]int) *assignment {
	var placed []*vcpu
	for _, m := range members {
		placed = append(placed, p.vms[m].vcpus...)
	}
	a := newAssignment(&p.cores, p.cores.unmanaged(placed), len(p.vms))
	var free []*vcpu
	for _, v := range placed {
		core, ok := at[v]
		if !ok && p.vms[v.vm].pinned {
			core, ok = v.current, true
		}
		if !ok {
			free = append(free, v)
			continue
		}
		a.put(v, core)
	}
	a.placeLongestFirst(free)
	a.improve()
	return a
}

func (p *placement) decisions() []Decision {
	decisions := make([]Decision, len(p.vms))
	for i, vm := range p.vms {
		decisions[i].Reason = vm.reason
	}
	for _, m := range p.members {
		for _, v := range p.vms[m].vcpus {
			pin := model.Pin{VCPU: v.index, CPUs: p.cores.cpus[p.at[v]]}
			decisions[m].Pins = append(decisions[m].Pins, pin)
		}
	}
	return decisions
}
