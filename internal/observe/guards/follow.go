package guards

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/interference"
)

const (
	// settle is how long after a lever changed pulls count neither way, and drain the same
	// after a group's shares became even: connections stay where they are for a while. Most
	// of them, for the shortest withdrawal has to show how the VM is without.
	settle = 20 * time.Second
	drain  = 2 * time.Minute
	// gap without a pull after which those before say nothing of the window.
	gap = 5 * time.Minute
)

// follow is what is known of one VM.
type follow struct {
	heard time.Time
	// node and podUID of the VM, and its name as the group it is of tells it.
	node, podUID, name string
	levers             map[model.Lever]*lever
	guest              guest
	// group of the VM, and how its share compared when that was known last. Empty: none.
	group string
	share Share
	// alerts that name the VM: true when the lever acted on its group when they came.
	alerts map[string]bool
}

// watched are the levers that a VM is looked at for.
func watched() []model.Lever { return append(model.NodeLevers(), model.LeverTrafficShare) }

// acts tells whether a lever acts on the VM, as far as is known.
func (f *follow) acts(name model.Lever) bool {
	l := f.levers[name]
	return l != nil && l.on
}

// lever is what is known of one lever and a VM.
type lever struct {
	// on since a time, and before it not at another: it came or went between. Both are
	// zero for what was there when the VM was first heard of.
	on            bool
	before, since time.Time
	base          baseline
	histories     map[model.GuardSign]*history
}

// finding is a lever that hurts, by a sign.
type finding struct {
	lever    model.Lever
	sign     model.GuardSign
	verdict  verdict
	evidence string
}

// without is a pull of a lever that is off: whether a level was nearly broken.
type without struct {
	lever  model.Lever
	sign   model.GuardSign
	nearly bool
}

// pulled is what a pull tells of a VM.
type pulled struct {
	now     time.Time
	figures interference.Figures
	vm      *VM
	nested  bool
	// readable is false when the figures say nothing of levers, missed true when those
	// before say nothing of now.
	readable, missed bool
}

// hear takes in a pull, and returns the levers that it shows to hurt, and how the VM is without
// those that are off.
func (f *follow) hear(now time.Time, rates *model.NodeRates, of *model.VMRates, vm *VM, nested bool) ([]finding, []without) {
	if f.levers == nil {
		f.levers = map[model.Lever]*lever{}
	}
	f.node, f.podUID, f.name = rates.Node, of.PodUID, of.Name
	p := f.pulled(now, rates, of, vm, nested)
	var found []finding
	var offs []without
	for _, name := range model.NodeLevers() {
		on := isOn(name, rates, of, vm)
		l := f.levers[name]
		if l == nil {
			l = &lever{on: on, histories: map[model.GuardSign]*history{}}
			f.levers[name] = l
		}
		l.turn(on, f.heard, now)
		if !slices.Contains(causes(), name) {
			continue
		}
		blamed, off := l.judge(name, &p, settle)
		found, offs = append(found, blamed...), append(offs, off...)
	}
	blamed, off := f.hearShare(&p)
	f.heard = now
	return append(found, blamed...), append(offs, off...)
}

// pulled reads a pull.
func (f *follow) pulled(now time.Time, rates *model.NodeRates, of *model.VMRates, vm *VM, nested bool) pulled {
	sample := interference.Sample{Time: rates.Time, Seconds: rates.IntervalSeconds, Rates: of, Nested: nested, MaxSteal: float64(vm.MaxSteal)}
	figures, readable := interference.Read(sample)
	return pulled{
		now: now, figures: figures, vm: vm, nested: nested,
		// What a flood does is no lever's doing. A guest that is not ready, as while it boots,
		// breaks levels for reasons of its own.
		readable: readable && (of.Buffering == nil || of.Buffering.Flood == nil) && !f.guest.failing,
		missed:   now.Sub(f.heard) > gap || f.guest.failing,
	}
}

// turn notes whether the lever is on.
func (l *lever) turn(on bool, before, now time.Time) {
	if on != l.on {
		l.on, l.before, l.since = on, before, now
		l.afresh()
	}
}

// afresh forgets pulls with the lever.
func (l *lever) afresh() {
	for _, h := range l.histories {
		h.afresh()
	}
}

// judge takes in a pull, once the lever was as it is for so long.
func (l *lever) judge(name model.Lever, p *pulled, settled time.Duration) (found []finding, offs []without) {
	if p.missed {
		l.afresh()
	}
	if !p.readable || p.now.Sub(l.since) < settled {
		return nil, nil
	}
	for _, level := range levels() {
		r, ok := read(level, p.figures, p.vm, p.nested, l.base)
		if !ok {
			continue
		}
		h := l.histories[level]
		if h == nil {
			h = &history{}
			l.histories[level] = h
		}
		if !l.on {
			h.without(p.now, r.nearly)
			offs = append(offs, without{name, level, r.nearly})
			continue
		}
		if is := h.with(p.now, r.broken); is != fine {
			found = append(found, finding{name, level, is, r.evidence(level, name, h, is)})
		}
	}
	if !l.on {
		l.base.learn(p.figures.Bits)
	}
	return found, offs
}

// isOn tells whether a lever acts on a VM: by the plan that is applied, by what the agent
// says of schedules and of its guard, and of pins by where threads may run.
func isOn(name model.Lever, rates *model.NodeRates, of *model.VMRates, vm *VM) bool {
	if !slices.Contains(vm.Acts, name) {
		return false
	}
	for i := range rates.Switches {
		if s := &rates.Switches[i]; s.Lever == name && !s.On {
			return false
		}
	}
	for i := range rates.Trips {
		t := &rates.Trips[i]
		if t.Lever == name && (t.PodUID == of.PodUID || t.PodUID == "") && rates.Time.Before(t.Until) {
			return false
		}
	}
	if name != model.LeverAffinity {
		return true
	}
	return slices.ContainsFunc(of.VCPUs, func(v model.VCPURates) bool {
		return v.CPUs.IsSubsetOf(of.AllowedCPUs) && !v.CPUs.Equal(of.AllowedCPUs)
	})
}
