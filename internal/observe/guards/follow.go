package guards

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/interference"
)

const (
	// settle is how long after a lever changed pulls count neither way.
	settle = 20 * time.Second
	// gap without a pull after which those before say nothing of the window.
	gap = 5 * time.Minute
)

// follow is what is known of one VM.
type follow struct {
	heard  time.Time
	levers map[model.Lever]*lever
	guest  guest
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

// hear takes in a pull, and returns the levers that it shows to hurt, and how the VM is without
// those that are off.
func (f *follow) hear(now time.Time, rates *model.NodeRates, of *model.VMRates, vm *VM, nested bool) ([]finding, []without) {
	if f.levers == nil {
		f.levers = map[model.Lever]*lever{}
	}
	sample := interference.Sample{Time: rates.Time, Seconds: rates.IntervalSeconds, Rates: of, Nested: nested, MaxSteal: float64(vm.MaxSteal)}
	figures, readable := interference.Read(sample)
	// What a flood does is no lever's doing.
	readable = readable && (of.Buffering == nil || of.Buffering.Flood == nil)
	// A guest that is not ready, as while it boots, breaks levels for reasons of its own.
	missed := now.Sub(f.heard) > gap || f.guest.failing
	readable = readable && !f.guest.failing
	var found []finding
	var offs []without
	for _, name := range model.NodeLevers() {
		l := f.levers[name]
		on := isOn(name, rates, of, vm)
		if l == nil {
			l = &lever{on: on, histories: map[model.GuardSign]*history{}}
			f.levers[name] = l
		}
		l.turn(on, f.heard, now)
		if missed {
			l.afresh()
		}
		if !readable || now.Sub(l.since) < settle || !slices.Contains(causes(), name) {
			continue
		}
		blamed, off := l.judge(name, now, figures, vm, nested)
		found, offs = append(found, blamed...), append(offs, off...)
	}
	f.heard = now
	return found, offs
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

// judge takes in a pull of a lever that is settled.
func (l *lever) judge(name model.Lever, now time.Time, f interference.Figures, vm *VM, nested bool) (found []finding, offs []without) {
	for _, level := range levels() {
		r, ok := read(level, f, vm, nested, l.base)
		if !ok {
			continue
		}
		h := l.histories[level]
		if h == nil {
			h = &history{}
			l.histories[level] = h
		}
		if !l.on {
			h.without(now, r.nearly)
			offs = append(offs, without{name, level, r.nearly})
			continue
		}
		if is := h.with(now, r.broken); is != fine {
			found = append(found, finding{name, level, is, r.evidence(level, name, h, is)})
		}
	}
	if !l.on {
		l.base.learn(f.Bits)
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
