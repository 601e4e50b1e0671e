package page

import (
	"slices"
	"strconv"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// mostPins of a core that are named.
const mostPins = 16

// coresView is the cores of a node.
type coresView struct {
	// HeardAt is when the loads came. Nil: they are not known, as to a manager that does not
	// lead.
	HeardAt *time.Time  `json:"heardAt,omitempty"`
	Groups  []coreGroup `json:"groups"`
}

// coreGroup is cores that share a last-level cache.
type coreGroup struct {
	Package int32      `json:"package"`
	NUMA    int32      `json:"numa"`
	LLC     int32      `json:"llc"`
	Class   string     `json:"class,omitempty"`
	Cores   []coreView `json:"cores"`
}

// coreView is one physical core.
type coreView struct {
	// CPUs of the core, in the kernel's list form.
	CPUs string `json:"cpus"`
	// BusyPercent is the mean over the core's CPUs. Nil: not known.
	BusyPercent *float64 `json:"busyPercent,omitempty"`
	// Pool that has the core for itself. Empty: none does.
	Pool v1alpha1.Pool `json:"pool,omitempty"`
	// Kept says by whom the core is kept from pins. Empty: it is not.
	Kept string `json:"kept,omitempty"`
	// Pins of VMs' vCPUs that are in force there: some of them, and how many there are.
	Pins  []string `json:"pins,omitempty"`
	Count int      `json:"count"`
}

// viewCores tells of the cores of a topology. A plan and rates may be nil. Nil: the topology
// has none.
func viewCores(topology *v1alpha1.Topology, plan *v1alpha1.NodePlan, rates *model.NodeRates) *coresView {
	if len(topology.CoreGroups) == 0 {
		return nil
	}
	marks := marksOf(topology, plan)
	busy := map[int]float64{}
	if rates != nil {
		for _, cpu := range rates.CPUs {
			busy[cpu.CPU] = float64(cpu.BusyCores)
		}
	}
	view := &coresView{Groups: []coreGroup{}}
	for _, g := range topology.CoreGroups {
		group := coreGroup{Package: g.Package, NUMA: g.NUMANode, LLC: g.LLC, Class: string(g.Class), Cores: []coreView{}}
		for _, cpus := range g.Cores {
			set, err := units.ParseCPUSet(cpus)
			if err != nil {
				continue // a newer agent's way to write it
			}
			core := coreView{CPUs: set.String(), BusyPercent: mean(set.CPUs(), busy)}
			marks.put(&core, set)
			group.Cores = append(group.Cores, core)
		}
		view.Groups = append(view.Groups, group)
	}
	return view
}

// mean of what some CPUs are used, in percent. Nil: of one it is not known.
func mean(cpus []int, busy map[int]float64) *float64 {
	sum := 0.0
	for _, cpu := range cpus {
		use, known := busy[cpu]
		if !known {
			return nil
		}
		sum += use
	}
	if len(cpus) == 0 {
		return nil
	}
	percent := sum / float64(len(cpus)) * 100
	return &percent
}

// mark is something that is so of some CPUs.
type mark struct {
	cpus units.CPUSet
	is   string
}

// marks are what is known of CPUs beside their load.
type marks struct{ pools, kept, pins []mark }

func marksOf(topology *v1alpha1.Topology, plan *v1alpha1.NodePlan) marks {
	var out marks
	add := func(to *[]mark, cpus, is string) {
		if set, err := units.ParseCPUSet(cpus); err == nil && !set.IsEmpty() {
			*to = append(*to, mark{set, is})
		}
	}
	add(&out.kept, topology.ExclusiveCPUs, "given to one container by the kubelet")
	add(&out.kept, topology.ReservedCPUs, "reserved by the kubelet")
	add(&out.kept, topology.IsolatedCPUs, "isolated by the kernel")
	if plan == nil {
		return out
	}
	add(&out.kept, plan.Spec.ExcludedCPUs, "left out by the plan")
	if p := plan.Spec.Pools; p != nil {
		add(&out.pools, p.NetworkCPUs, string(v1alpha1.PoolNetwork))
		add(&out.pools, p.ComputeCPUs, string(v1alpha1.PoolCompute))
	}
	for i := range plan.Status.VMs {
		applied := &plan.Status.VMs[i]
		if applied.Lever != v1alpha1.LeverAffinity || applied.State != v1alpha1.LeverInForce {
			continue
		}
		for _, thread := range applied.VCPUs {
			add(&out.pins, thread.CPUs, pinName(applied, thread.VCPU))
		}
	}
	return out
}

// put writes on a core what is so of it.
func (m marks) put(core *coreView, cpus units.CPUSet) {
	overlaps := func(of mark) bool { return !of.cpus.Intersection(cpus).IsEmpty() }
	if i := slices.IndexFunc(m.pools, overlaps); i >= 0 {
		core.Pool = v1alpha1.Pool(m.pools[i].is)
	}
	if i := slices.IndexFunc(m.kept, overlaps); i >= 0 {
		core.Kept = m.kept[i].is
	}
	for _, pin := range m.pins {
		if overlaps(pin) {
			if core.Count++; core.Count <= mostPins {
				core.Pins = append(core.Pins, pin.is)
			}
		}
	}
}

func pinName(vm *v1alpha1.VMApplied, vcpu int32) string {
	return vm.Namespace + "/" + vm.Name + " vCPU " + strconv.Itoa(int(vcpu))
}
