package affinitytest

import (
	"errors"
	"fmt"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/units"
)

// The figures of the design.
const (
	awakeUse                      = 0.1
	awakePackage, awakeCache      = 1, 0.1
	knee, company                 = 0.6, 0.1
	quietDemand, busyDemand       = 0.15, 0.3
	remoteMemory, splitCache      = 0.1, 0.03
	slowCore, farFromNIC          = 0.25, 0.002
	leastSaving, leastShare       = 0.05, 0.05
	settledKnee, settledBusy      = 1.25, 1.5
	quietShare, newCoreReserve    = 0.15, 0.05
	maxVCPUsPerCPU, cpuWeight     = 10, 1024
	leastDemand, rounding         = 1e-4, 1e-6
	crowdAwake, crowdBusy, kneeOf = 10, 3, 2
)

// Scenario is a node with VMs.
type Scenario struct {
	Node affinity.Node
	VMs  []affinity.VM
}

// Prediction is what the design predicts of a placement.
type Prediction struct {
	// Price that the placement is weighed by, and Watts the power in it.
	Price, Watts float64
	// Unmet counts the VMs that are not bound as their owners wish.
	Unmet int
	// Use of each core, and what is left of it when binding spared what it is to.
	Use, Foreseen []float64
}

// Predict returns what the design predicts of decisions, and an error when they break
// a limit.
func (s *Scenario) Predict(decisions []affinity.Decision) (Prediction, error) {
	m := s.model()
	bound := make([]*bound, len(s.VMs))
	for i := range s.VMs {
		var err error
		if bound[i], err = m.bind(i, decisions[i]); err != nil {
			return Prediction{}, fmt.Errorf("VM %d, %+v: %w", i, decisions[i], err)
		}
	}
	return m.predict(bound)
}

type modelled struct {
	*Scenario
	cores     []model.Core
	cpus      []float64
	usable    []bool
	unmanaged []float64
	costs     model.PowerCosts
	crowd     float64
	slow      bool
	near      map[int]bool
}

// bound is one VM as a decision binds it, and what that puts on the cores.
type bound struct {
	vm, unmet        int
	use, busy, press []float64
	// spared is the part of the use that is not to be any more, as the VM is bound.
	spared []float64
	// pins are the core of each vCPU. None: they have none of their own.
	pins         []int
	watts, price float64
	// part that the VM is separated to, outside of a pool.
	part []int
}

func (s *Scenario) model() *modelled {
	m := &modelled{Scenario: s, cores: s.Node.Topology.Cores, costs: s.Node.Costs, near: map[int]bool{}}
	for _, core := range m.cores {
		m.cpus = append(m.cpus, float64(core.CPUs.Len()))
		m.usable = append(m.usable, core.CPUs.Intersection(s.Node.Excluded).IsEmpty())
		m.slow = m.slow || core.Class == model.CoreEfficiency
		for _, nic := range s.Node.Topology.NICs {
			if nic.NUMANode == core.NUMANode {
				m.near[core.NUMANode] = true
			}
		}
	}
	m.crowd = crowdAwake*float64(m.costs.PerAwakeCore) + crowdBusy*float64(m.costs.PerBusyCore) + 8*leastSaving
	m.findUnmanaged()
	return m
}

func (m *modelled) findUnmanaged() {
	busy := make([]float64, len(m.cores))
	for i, core := range m.cores {
		for _, cpu := range m.Node.CPUs {
			if core.CPUs.Contains(cpu.CPU) {
				busy[i] += float64(cpu.BusyCores)
			}
		}
	}
	m.unmanaged = append([]float64(nil), busy...)
	for _, bound := range []bool{true, false} {
		for _, vm := range m.VMs {
			r := vm.Rates
			for _, c := range r.VCPUs {
				m.take(busy, c.RunCores, c.CPUs, bound)
			}
			for _, t := range []struct {
				run units.Cores
				set units.CPUSet
			}{
				{r.Emulator.RunCores, vm.CurrentThreads.Emulator}, {r.IOThreads.RunCores, vm.CurrentThreads.IOThreads},
				{r.Vhost.RunCores, vm.CurrentThreads.Vhost}, {run: r.Other.RunCores},
			} {
				if t.set.IsEmpty() {
					t.set = r.AllowedCPUs
				}
				m.take(busy, t.run, t.set, bound)
			}
		}
		for i := range m.unmanaged {
			m.unmanaged[i] = max(0, m.unmanaged[i])
			busy[i] = m.unmanaged[i]
		}
	}
}

// take takes off the run time of threads that are bound to one core, or of others, by
// how busy cores were.
func (m *modelled) take(busy []float64, run units.Cores, set units.CPUSet, bound bool) {
	var on []int
	total := 0.0
	for i, core := range m.cores {
		if !core.CPUs.Intersection(set).IsEmpty() {
			on, total = append(on, i), total+busy[i]
		}
	}
	if (len(on) == 1) != bound {
		return
	}
	for _, i := range on {
		switch {
		case bound:
			m.unmanaged[i] -= float64(run)
		case total > 0:
			m.unmanaged[i] -= float64(run) * busy[i] / total
		}
	}
}

func busyness(demand float64) float64 {
	return min(1, max(0, (demand-quietDemand)/(busyDemand-quietDemand)))
}

// predict adds up what VMs put on the cores, and what that costs.
func (m *modelled) predict(vms []*bound) (Prediction, error) {
	p := Prediction{Use: make([]float64, len(m.cores)), Foreseen: make([]float64, len(m.cores))}
	llcs, packages := map[int]float64{}, map[int]float64{}
	var broken error
	awakeCost := float64(m.costs.PerAwakeCore)
	for c, core := range m.cores {
		use := m.unmanaged[c]
		busy, press := busyness(use), use*cpuWeight
		var on []pin
		spared := 0.0
		for _, b := range vms {
			spared += b.spared[c]
			use, busy, press = use+b.use[c], busy+b.busy[c], press+b.press[c]
			for i, at := range b.pins {
				if at == c {
					on = append(on, pin{b.vm, i})
				}
			}
		}
		p.Use[c], p.Foreseen[c] = use, use-spared
		settled := m.isSettled(c, on)
		if err := m.check(c, use, use-spared, press, on); err != nil && broken == nil {
			broken = fmt.Errorf("core %d: %w", c, err)
		}
		kneeAt, busyAt := knee*m.cpus[c], 1.0
		for _, at := range on {
			kneeAt = max(kneeAt, m.demandOf(&m.VMs[at.vm], at.vcpu)+company*m.cpus[c])
		}
		kneeAt = min(kneeAt, m.cpus[c])
		if settled && len(on) > 0 {
			kneeAt, busyAt = kneeAt*settledKnee, settledBusy
		}
		awake := min(1, use/awakeUse)
		llcs[core.LLC] += awake
		packages[core.Package] += awake
		p.Watts += float64(m.costs.PerBusyCore)*m.unmanaged[c] + awakeCost*awake
		p.Price += m.crowd*max(0, busy-busyAt) + kneeOf*m.crowd*max(0, use-kneeAt)
	}
	if m.rise() > 0 {
		p.Watts += float64(m.costs.PerBusyCore) * m.dearer(p.Use)
	}
	for _, awake := range llcs {
		p.Watts += awakeCost * awakeCache * min(1, awake)
	}
	for _, awake := range packages {
		p.Watts += awakeCost * awakePackage * min(1, awake)
	}
	for _, b := range vms {
		p.Watts += b.watts
		p.Price += b.price
		p.Unmet += b.unmet
		use, limit := 0.0, 0.0
		for _, c := range b.part {
			use, limit = use+p.Use[c], limit+float64(m.Node.MaxCoreUtilization)*m.cpus[c]
		}
		if use > limit+rounding && broken == nil {
			broken = fmt.Errorf("VM %d is separated to cores with a load of %v, the limit is %v", b.vm, use, limit)
		}
	}
	p.Price += p.Watts
	return p, broken
}

// pin is a vCPU of a VM, by its place in the list.
type pin struct{ vm, vcpu int }

// startOf returns the core that a vCPU is pinned to now, or -1.
func (m *modelled) startOf(vm, vcpu int) int {
	for _, current := range m.VMs[vm].Current {
		if current.VCPU == m.VMs[vm].Rates.VCPUs[vcpu].Index {
			return m.coreOf(current.CPUs)
		}
	}
	return -1
}

func (m *modelled) coreOf(set units.CPUSet) int {
	for i, core := range m.cores {
		if core.CPUs.Equal(set) {
			return i
		}
	}
	return -1
}

func (m *modelled) isSettled(core int, on []pin) bool {
	for _, at := range on {
		if m.startOf(at.vm, at.vcpu) != core {
			return false
		}
	}
	return true
}

// check holds a core with pins against its limits.
func (m *modelled) check(c int, use, foreseen, press float64, on []pin) error {
	if len(on) == 0 {
		return nil
	}
	reserve := 0.0
	if !m.isSettled(c, on) {
		reserve = newCoreReserve * m.cpus[c]
	}
	for _, x := range on {
		for _, y := range on {
			same := x.vm == y.vm || m.Node.Sharing == model.ShareAny ||
				(m.Node.Sharing == model.ShareWithinNamespace && m.VMs[x.vm].Namespace == m.VMs[y.vm].Namespace)
			if !same && m.cpus[c] > 1 {
				return fmt.Errorf("VMs %d and %d may not share siblings", x.vm, y.vm)
			}
		}
	}
	limit := float64(m.Node.MaxCoreUtilization) * m.cpus[c]
	if len(on) == 1 {
		d := m.demandOf(&m.VMs[on[0].vm], on[0].vcpu)
		if use-d <= min(limit, quietShare*m.cpus[c])-reserve+rounding {
			return nil
		}
	}
	if err := m.checkWaits(c, use, foreseen, on); err != nil {
		return err
	}
	if use > limit-reserve+rounding {
		return fmt.Errorf("use %v is above the limit %v less %v", use, limit, reserve)
	}
	if len(on) > maxVCPUsPerCPU*int(m.cpus[c]) {
		return errors.New("too many vCPUs")
	}
	for _, x := range on {
		vm := &m.VMs[x.vm]
		d := m.demandOf(vm, x.vcpu)
		own := m.weightPerDemand(vm) * d
		// Its share of the core's CPUs by weights, against what others there weigh.
		if share := min(1, m.cpus[c]*own/(own+press-own*d)); share < d-rounding {
			return fmt.Errorf("vCPU %d of VM %d has a share of %v and needs %v", x.vcpu, x.vm, share, d)
		}
	}
	return nil
}
