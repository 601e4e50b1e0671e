package affinitytest

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Optimum returns the best of all placements: of those that meet most wishes, that of
// the least price. It tries all bindings of all VMs, which is for a few vCPUs only.
func (s *Scenario) Optimum() Prediction {
	t := &trial{modelled: s.model(), best: Prediction{Price: math.Inf(1), Unmet: math.MaxInt}}
	for i := range s.VMs {
		t.options = append(t.options, t.optionsOf(i))
	}
	t.try(0)
	return t.best
}

type trial struct {
	*modelled
	options [][]*bound
	chosen  []*bound
	best    Prediction
}

// try goes on with the next VM, unless what is placed already costs more than the
// best: nothing becomes cheaper when more is placed.
func (t *trial) try(at int) {
	p, err := t.predict(t.chosen)
	if p.Unmet > t.best.Unmet || (p.Unmet == t.best.Unmet && p.Price >= t.best.Price) {
		return
	}
	if at == len(t.options) {
		if err == nil {
			t.best = p
		}
		return
	}
	for _, option := range t.options[at] {
		t.chosen = append(t.chosen, option)
		t.try(at + 1)
		t.chosen = t.chosen[:at]
	}
}

func (t *trial) optionsOf(at int) []*bound {
	vm := &t.VMs[at]
	var options []*bound
	add := func(d affinity.Decision) {
		if b, err := t.bind(at, d); err == nil {
			options = append(options, b)
		}
	}
	confined := !vm.Within.IsEmpty() && len(t.confined(vm)) > 0
	if vm.Preference != model.AffinitySeparated {
		t.pinnings(vm, nil, add)
	}
	if vm.Preference != model.AffinityPinned || confined {
		for _, part := range t.parts(vm) {
			add(t.separated(vm, part))
		}
	}
	if !confined {
		add(affinity.Decision{Reason: model.ReasonNoSaving})
	}
	return options
}

func (t *trial) separated(vm *affinity.VM, part units.CPUSet) affinity.Decision {
	d := affinity.Decision{
		Reason:  model.ReasonSeparated,
		Threads: model.ThreadCPUs{Emulator: t.caches(vm, part), IOThreads: part, Vhost: part},
	}
	for _, c := range vm.Rates.VCPUs {
		d.Pins = append(d.Pins, model.Pin{VCPU: c.Index, CPUs: part})
	}
	return d
}

// pinnings calls add with all ways to pin the vCPUs that follow some.
func (t *trial) pinnings(vm *affinity.VM, pins []model.Pin, add func(affinity.Decision)) {
	if len(pins) == len(vm.Rates.VCPUs) {
		if len(pins) > 0 {
			add(affinity.Decision{Reason: model.ReasonPinned, Pins: pins, Threads: t.threads(vm, pins)})
		}
		return
	}
	for _, c := range t.confined(vm) {
		next := append(append([]model.Pin(nil), pins...), model.Pin{VCPU: vm.Rates.VCPUs[len(pins)].Index, CPUs: t.cores[c].CPUs})
		t.pinnings(vm, next, add)
	}
}

// threads returns the masks of the other threads beside pins of a VM that has none yet.
func (t *trial) threads(vm *affinity.VM, pins []model.Pin) model.ThreadCPUs {
	var all, busy units.CPUSet
	for i, p := range pins {
		all = all.Union(p.CPUs)
		if t.demandOf(vm, i) >= busyDemand {
			busy = busy.Union(p.CPUs)
		}
	}
	caches := t.caches(vm, all)
	io := caches.Intersection(t.setOf(t.confined(vm)))
	if apart := io.Difference(busy); !apart.IsEmpty() {
		io = apart
	}
	return model.ThreadCPUs{Emulator: caches, IOThreads: io, Vhost: io}
}
