package agent

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/guard"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// mostlyHeld is the share of the time from which packets count as held.
const mostlyHeld = 0.5

// find looks for an element, first where it was in the other list.
func find[T any](list []T, at int, is func(*T) bool) *T {
	if at < len(list) && is(&list[at]) {
		return &list[at]
	}
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// idle is the share of the time that each CPU idled, by its number. The scheduler leaves
// isolated ones alone: they help nobody.
func idle(previous, round *sample.Round, topology model.Topology) []float64 {
	elapsed := round.At.Sub(previous.At)
	var idle []float64
	for i := range round.CPUs {
		now := &round.CPUs[i]
		old := find(previous.CPUs, i, func(o *host.CPUTimes) bool { return o.CPU == now.CPU })
		if old == nil || now.Idle < old.Idle || topology.Isolated.Contains(now.CPU) {
			continue
		}
		for len(idle) <= now.CPU {
			idle = append(idle, 0)
		}
		idle[now.CPU] = float64(min(1, units.Over(now.Idle-old.Idle, elapsed)))
	}
	return idle
}

// threads that work for a VM.
func threads(old, vm *sample.VM) []guard.Thread {
	elapsed := vm.At.Sub(old.At)
	list := make([]guard.Thread, 0, len(vm.Sample.Threads)+len(vm.Sample.Workers))
	add := func(before, now []host.ThreadSample) {
		for i := range now {
			t := &now[i]
			was := find(before, i, func(o *host.ThreadSample) bool { return o.ID == t.ID })
			if was == nil || t.Wait < was.Wait || t.CPUs.IsEmpty() {
				continue
			}
			list = append(list, guard.Thread{
				CPUs: t.CPUs, Run: min(1, units.Over(t.Run-was.Run, elapsed)), Wait: min(1, units.Over(t.Wait-was.Wait, elapsed)),
			})
		}
	}
	add(old.Sample.Threads, vm.Sample.Threads)
	add(old.Sample.Workers, vm.Sample.Workers)
	return list
}

// packets towards a VM, and whether they were held.
func packets(old, vm *sample.VM, setting guard.Setting) (guard.Packets, guard.Setting) {
	const bits = 8
	var p guard.Packets
	elapsed := vm.At.Sub(old.At)
	for i := range vm.Sample.Taps {
		tap := &vm.Sample.Taps[i]
		was := find(old.Sample.Taps, i, func(o *host.TapSample) bool { return o.Name == tap.Name })
		if was == nil {
			continue
		}
		p.Handed += units.PacketsPerSecond(rateOf(was.ToVM.Packets, tap.ToVM.Packets, elapsed))
		p.Overrun += units.PacketsPerSecond(rateOf(was.ToVM.Drops, tap.ToVM.Drops, elapsed))
		p.Bits += bits * units.BitsPerSecond(rateOf(was.ToVM.Bytes, tap.ToVM.Bytes, elapsed))
		if tap.Backlog != nil {
			if p.Backlog == nil {
				p.Backlog = new(uint64)
			}
			*p.Backlog += *tap.Backlog
		}
	}
	for i := range vm.Buffered {
		b := &vm.Buffered[i]
		p.Window = max(p.Window, b.Window)
		// Rates are told for longer than they are new.
		if lost, known := vm.DropRates[b.Name]; known && b.Drops != nil {
			if p.Dropped == nil {
				p.Dropped = new(units.PacketsPerSecond)
			}
			*p.Dropped += lost
		}
	}
	if setting == guard.On {
		setting = holding(old, vm)
	}
	return p, setting
}

// holding tells how packets were that may be held: those that came too slowly passed, and
// show how it is without. What is lost in floods tells nothing, for to undo what defends
// against them would leave the VM without when it needs it.
func holding(old, vm *sample.VM) guard.Setting {
	elapsed := vm.At.Sub(old.At)
	held, known := 0.0, false
	for i := range vm.Buffered {
		b := &vm.Buffered[i]
		was := find(old.Buffered, i, func(o *host.BufferSample) bool { return o.Name == b.Name })
		if was == nil || b.Active < was.Active {
			continue
		}
		if b.Flood != nil || was.Flood != nil {
			return guard.Unsure
		}
		known, held = true, max(held, float64(units.Over(b.Active-was.Active, elapsed)))
	}
	switch {
	case !known || held > 0 && held < mostlyHeld:
		return guard.Unsure
	case held > 0:
		return guard.On
	default:
		return guard.Off
	}
}

// rateOf a counter; 0 of one that started over.
func rateOf(old, now uint64, elapsed time.Duration) units.PerSecond {
	if now < old || elapsed <= 0 {
		return 0
	}
	return units.RateOf(now-old, elapsed)
}
