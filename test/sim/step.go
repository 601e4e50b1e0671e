package sim

import "time"

// cpus are the host's CPUs as arrays over their numbers.
type cpus struct {
	// Of the current step, per CPU: load is the demand placed on it, busy the
	// time that it ran, heat the same weighted by the instructions' energy,
	// wakes and grid are wake-ups per second, slices the sum of demand times slice,
	// upTo the demand of threads with slices up to some length, and mark tells CPUs
	// apart that are shared out otherwise.
	load, busy, heat, wakes, grid, slices, upTo, mark []float64
	// speed is the CPU's throughput in the last step, relative to a core alone.
	speed []float64
	total []cpuTotal
}

type cpuTotal struct{ busy, idle float64 }

func newCPUs(n int) cpus {
	// One array, so that a step runs over memory in order.
	const arrays = 9
	all := make([]float64, arrays*n)
	cut := func(i int) []float64 { return all[i*n : (i+1)*n : (i+1)*n] }
	c := cpus{load: cut(0), busy: cut(1), heat: cut(2), wakes: cut(3), grid: cut(4), speed: cut(5), slices: cut(6), mark: cut(7), upTo: cut(8), total: make([]cpuTotal, n)}
	for i := range c.speed {
		c.speed[i] = 1
	}
	return c
}

// ticks are a CPU's own timer interrupts, per second.
const ticks = 20

// Advance lets time pass; none when d is not positive. It allocates nothing.
func (h *Host) Advance(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d <= 0 {
		return
	}
	h.energy.begin()
	for d > 0 {
		step := min(d, h.cfg.Step)
		if left := h.leaseUntil - h.monotonic(); left > 0 {
			step = min(step, left) // nothing is held past the lease
		}
		d -= step
		h.step(step.Seconds())
		h.now = h.now.Add(step)
		h.seconds = h.now.Sub(h.cfg.Start).Seconds()
	}
}

// step is one step of dt seconds: what is wanted, where it runs, what becomes
// of it, what it costs.
func (h *Host) step(dt float64) {
	soft := h.want(dt)
	clear(h.cpus.load)
	each := soft / float64(len(h.cpus.load))
	for cpu := range h.cpus.load {
		h.cpus.load[cpu] = each
	}
	h.classes.place(h.cpus.load)
	h.grant(each)
	h.throttle(dt)
	bytes := 0.0
	leased := h.leased()
	for _, v := range h.vms {
		v.serve(&h.classes, dt)
		v.hold(leased, dt)
		bytes += (v.work.rx + v.work.tx) * v.work.served * v.work.size
	}
	h.settle(each, dt)
	h.heatUp(bytes, dt)
}

// want asks every programme, and returns the kernel's own time for packets.
func (h *Host) want(dt float64) (soft float64) {
	h.refreshSpeed()
	s := stepping{
		seconds: h.seconds, dt: dt, monotonic: h.monotonic(),
		leased: h.leased(),
	}
	for i := range h.vms {
		v := h.vms[i]
		v.want(&s)
		v.demands(&h.phys.Net, &h.classes)
		soft += (v.work.rx + v.work.tx) * h.phys.Net.SoftIRQ
		for j := range v.threads {
			t := &v.threads[j]
			k := h.classes.of(t.class)
			// A slower CPU needs longer for the same work, perhaps more than all of
			// its time.
			t.net, t.full = t.net/k.speed, t.demand/k.speed
			t.demand = min(1, t.full)
			k.demand += t.demand
		}
	}
	for i := range h.others {
		o := &h.others[i]
		k := h.classes.of(o.class)
		level := o.player.level(&o.Programme, h.seconds, dt, &o.rng)
		o.demand = min(float64(o.Cores)*level/k.speed, float64(len(k.list)))
		k.demand += o.demand
	}
	return soft
}

// stepping is what VMs know of the step that they are in.
type stepping struct {
	// seconds is its start, since that of the host, dt its length, and monotonic its
	// start since boot.
	seconds, dt float64
	monotonic   time.Duration
	// leased is true while packets may be held.
	leased bool
}

// leased reports whether packets may be held in the step that begins now.
func (h *Host) leased() bool { return h.monotonic() < h.leaseUntil }

// refreshSpeed starts a step of the classes with the throughput of the last
// one. Half of the old is kept, lest the two siblings of a core swing.
func (h *Host) refreshSpeed() {
	smt := h.phys.Power.SMT
	for cpu, sibling := range h.sibling {
		speed := 1.0
		if sibling >= 0 {
			speed *= 1 - (1-smt)*h.cpus.busy[sibling]
		}
		h.cpus.speed[cpu] = (h.cpus.speed[cpu] + speed) / 2
	}
	for i := range h.classes.list {
		k := &h.classes.list[i]
		sum := 0.0
		for _, cpu := range k.list {
			sum += h.cpus.speed[cpu]
		}
		k.speed = sum / float64(len(k.list))
		k.demand, k.use, k.heat, k.wakes, k.grid = 0, 0, 0, 0, 0
	}
}

// settle books what ran on each CPU.
func (h *Host) settle(soft, dt float64) {
	for i := range h.others {
		o := &h.others[i]
		k := h.classes.of(o.class)
		heat := o.Heat
		if heat == 0 {
			heat = 1
		}
		k.use += o.granted
		k.heat += o.granted * heat
		k.wakes += o.granted * otherWakes
	}
	c := &h.cpus
	for cpu := range c.busy {
		c.busy[cpu], c.heat[cpu], c.wakes[cpu], c.grid[cpu] = soft, soft, ticks, 0
	}
	for i := range h.classes.list {
		k := &h.classes.list[i]
		if k.demand <= 0 {
			continue
		}
		for j, cpu := range k.list {
			part := k.spread[j] / k.demand
			c.busy[cpu] += part * k.use
			c.heat[cpu] += part * k.heat
			c.wakes[cpu] += part * (k.wakes - k.grid)
			c.grid[cpu] += part * k.grid
		}
	}
	for cpu := range c.busy {
		if over := c.busy[cpu]; over > 1 {
			c.heat[cpu] /= over
			c.busy[cpu] = 1
		}
		t := &c.total[cpu]
		t.busy += c.busy[cpu] * dt
		t.idle += max(0, 1-c.busy[cpu]) * dt
	}
}

// otherWakes is how often work outside of VMs wakes per core-second.
const otherWakes = 200
