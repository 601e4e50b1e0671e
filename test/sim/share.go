package sim

import (
	"math"
	"slices"
)

// requestOfOne is the weight of a pod that asks for one CPU, in cpu.shares.
const requestOfOne = 1024

// grant gives every thread what it wants where its CPUs have the time for it, and
// shares out the CPUs that have not. soft is the kernel's own part of each CPU,
// which goes first.
func (h *Host) grant(soft float64) {
	crowded := false
	for i := range h.classes.list {
		k := &h.classes.list[i]
		k.crowding = 0
		if k.demand <= 0 {
			continue
		}
		for _, cpu := range k.list {
			load := h.cpus.load[cpu]
			k.crowding += load
			crowded = crowded || load > 1
		}
	}
	for _, v := range h.vms {
		for j := range v.threads {
			v.threads[j].granted = v.threads[j].demand
		}
	}
	for i := range h.others {
		h.others[i].granted = h.others[i].demand
	}
	h.orderSlices()
	if crowded {
		h.ration(max(0, 1-soft))
	}
}

// throttle stops VMs whose CPU limit is used up for the rest of each of the kernel's periods. What they
// leave is nobody's in this step.
func (h *Host) throttle(dt float64) {
	const period = 0.1
	for _, v := range h.vms {
		if v.LimitCores == 0 {
			continue
		}
		v.periods += dt / period
		sum := 0.0
		for i := range v.threads {
			sum += v.threads[i].granted
		}
		if sum <= v.LimitCores {
			continue
		}
		v.throttledPeriods += dt / period
		v.throttled += (sum - v.LimitCores) * dt
		for i := range v.threads {
			v.threads[i].granted *= v.LimitCores / sum
		}
	}
}

// ration shares out each crowded CPU. CPUs on which the same threads are to the
// same part are shared out together.
func (h *Host) ration(room float64) {
	list := h.classes.list
	mark := h.cpus.mark
	clear(mark)
	for i := range list {
		if k := &list[i]; k.demand > 0 {
			for j, cpu := range k.list {
				mark[cpu] += k.spread[j] * math.Sqrt(float64(i+2)) // sums of roots are hardly ever equal
			}
		}
	}
	for _, v := range h.vms {
		v.runnable = 0
		for j := range v.threads {
			v.runnable += v.threads[j].demand
		}
	}
	load := h.cpus.load
	const done = -1
	for cpu := range load {
		if load[cpu] <= 1 || mark[cpu] == done {
			continue
		}
		alike := 1.0
		for other := cpu + 1; other < len(load); other++ {
			if mark[other] == mark[cpu] && load[other] == load[cpu] {
				mark[other] = done
				alike++
			}
		}
		h.rationOne(int32(cpu), alike, room)
	}
	for _, v := range h.vms {
		for j := range v.threads {
			v.threads[j].granted = max(0, v.threads[j].granted)
		}
	}
	for i := range h.others {
		h.others[i].granted = max(0, h.others[i].granted)
	}
}

// rationOne shares out one CPU, and others that are alike, as the kernel does
// between cgroups:
//
//	claim of a VM = weight of its pod * its load on the CPU / its load on all CPUs
//
// Whoever wants less than its claim's part gets it, and leaves the rest to the
// others. Within a VM, threads are equal. Work outside of VMs claims as pods do that
// ask for what it wants.
func (h *Host) rationOne(cpu int32, alike, room float64) {
	list := h.classes.list
	for i := range list {
		list[i].part = list[i].partOn(cpu)
	}
	for _, v := range h.vms {
		v.there, v.claim = 0, 0
		for j := range v.threads {
			v.there += v.threads[j].demand * list[v.threads[j].class].part
		}
		if v.there > 0 {
			v.claim = v.Weight * v.there / v.runnable
		}
	}
	for i := range h.others {
		o := &h.others[i]
		o.there = o.demand * list[o.class].part
	}
	level := h.level(room)
	for _, v := range h.vms {
		if most := v.claim * level; v.there > most {
			v.cut(list, most, alike)
		}
	}
	for i := range h.others {
		o := &h.others[i]
		if most := requestOfOne * o.there * level; o.there > most {
			o.granted -= (o.there - most) * alike
		}
	}
}

// level is the CPU time that each unit of weight is worth, so that all together get
// the room. It grows from round to round, and ends when nobody more has enough.
func (h *Host) level(room float64) float64 {
	level := 0.0
	for {
		rest, claims := room, 0.0
		for _, v := range h.vms {
			if v.there <= v.claim*level {
				rest -= v.there
			} else {
				claims += v.claim
			}
		}
		for i := range h.others {
			if o := &h.others[i]; requestOfOne*level >= 1 {
				rest -= o.there
			} else {
				claims += requestOfOne * o.there
			}
		}
		if claims <= 0 || rest <= claims*level*(1+1e-12) {
			return level
		}
		level = rest / claims
	}
}

// cut bounds what the VM's threads get of a CPU, all the same unless one wants less.
func (v *vm) cut(list []class, room, alike float64) {
	level := 0.0
	for {
		rest, parts := room, 0.0
		for i := range v.threads {
			part := list[v.threads[i].class].part
			if want := v.threads[i].demand; want <= level {
				rest -= want * part
			} else {
				parts += part
			}
		}
		if parts <= 0 || rest <= parts*level*(1+1e-12) {
			break
		}
		level = rest / parts
	}
	for i := range v.threads {
		if t := &v.threads[i]; t.demand > level {
			t.granted -= (t.demand - level) * list[t.class].part * alike
		}
	}
}

// partOn is the part of the class's demand that is on a CPU.
func (k *class) partOn(cpu int32) float64 {
	if k.demand <= 0 {
		return 0
	}
	at, found := slices.BinarySearch(k.list, cpu)
	if !found {
		return 0
	}
	return k.spread[at] / k.demand
}
