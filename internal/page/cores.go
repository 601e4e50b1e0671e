package page

import (
	"slices"
	"strconv"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// maxPins of a core that are named.
const maxPins = 16

// coresView is the cores of a node.
type coresView struct {
	// ReceivedAt is when the loads arrived. Nil: they are unknown, as to a manager that does
	// not lead.
	ReceivedAt *time.Time  `json:"receivedAt,omitempty"`
	Groups     []coreGroup `json:"groups"`
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
	// BusyPercent is the mean over the core's CPUs. Nil: unknown.
	BusyPercent *float64 `json:"busyPercent,omitempty"`
	// Pool of the core, if any.
	Pool v1alpha1.Pool `json:"pool,omitempty"`
	// Excluded says why no VM is pinned to the core. Empty: VMs may be.
	Excluded string `json:"excluded,omitempty"`
	// Pins of VMs' vCPUs that are in force there: some of them, and how many there are.
	Pins  []string `json:"pins,omitempty"`
	Count int      `json:"count"`
}

// viewCores returns the cores of a topology. A plan and rates may be nil. Nil: the topology
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
			marks.apply(&core, set)
			group.Cores = append(group.Cores, core)
		}
		view.Groups = append(view.Groups, group)
	}
	return view
}

// mean use of some CPUs, in percent. Nil: that of one is unknown.
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

// mark is a text about some CPUs.
type mark struct {
	cpus units.CPUSet
	text string
}

// marks are pools, exclusions and pins of a node's CPUs.
type marks struct{ pools, excluded, pins []mark }

func marksOf(topology *v1alpha1.Topology, plan *v1alpha1.NodePlan) marks {
	var out marks
	add := func(to *[]mark, cpus, text string) {
		if set, err := units.ParseCPUSet(cpus); err == nil && !set.IsEmpty() {
			*to = append(*to, mark{set, text})
		}
	}
	add(&out.excluded, topology.TakenCPUs, "kept for others by the kernel or the kubelet")
	if plan == nil {
		return out
	}
	add(&out.excluded, plan.Spec.ExcludedCPUs, "left out by the plan")
	add(&out.pools, plan.Spec.NetworkCPUs, string(v1alpha1.PoolNetwork))
	add(&out.pools, plan.Spec.ComputeCPUs, string(v1alpha1.PoolCompute))
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

// apply adds the marks of a core to it.
func (m marks) apply(core *coreView, cpus units.CPUSet) {
	overlaps := func(of mark) bool { return !of.cpus.Intersection(cpus).IsEmpty() }
	if i := slices.IndexFunc(m.pools, overlaps); i >= 0 {
		core.Pool = v1alpha1.Pool(m.pools[i].text)
	}
	if i := slices.IndexFunc(m.excluded, overlaps); i >= 0 {
		core.Excluded = m.excluded[i].text
	}
	for _, pin := range m.pins {
		if overlaps(pin) {
			if core.Count++; core.Count <= maxPins {
				core.Pins = append(core.Pins, pin.text)
			}
		}
	}
}

func pinName(vm *v1alpha1.VMApplied, vcpu int32) string {
	return vm.Namespace + "/" + vm.Name + " vCPU " + strconv.Itoa(int(vcpu))
}
