package sim

import (
	"math"
	"math/rand/v2"
)

// thermal is the temperature of a host's packages and of its room.
type thermal struct {
	// celsius of each package.
	celsius []float64
	// wander is a slow random change of the room's temperature, and phase where
	// the room's cooling is in its half-hour cycle.
	wander, phase float64
	// watts of each package in the last step, before the meter.
	watts []float64
}

func newThermal(packages int, p *PowerCosts, rng *rand.PCG) thermal {
	t := thermal{celsius: make([]float64, packages), watts: make([]float64, packages), phase: uniform(rng)}
	for i := range t.celsius {
		t.celsius[i] = p.Room + p.Reference
	}
	return t
}

// activity is what the power of a package depends on: arrays over CPUs.
type activity struct {
	busy, heat, wakes, grid []float64
	// window is the shortest window of buffering, in seconds; 0: none.
	window float64
}

func (h *Host) activity() activity {
	a := activity{busy: h.cpus.busy, heat: h.cpus.heat, wakes: h.cpus.wakes, grid: h.cpus.grid}
	for _, v := range h.vms {
		if w := v.work.window; w > 0 && (a.window == 0 || w < a.window) {
			a.window = w
		}
	}
	return a
}

// harmed is the factor by which levers change the power of the packages now.
func (h *Host) harmed() float64 {
	for _, v := range h.vms {
		for i := range v.threads {
			if !v.threads[i].asked.IsEmpty() {
				return 1 + h.cfg.Harm.Affinity
			}
		}
	}
	return 1
}

// core is the state of one physical core.
type core struct {
	// busy is the share of time that any sibling runs, both that of two, and
	// heat their mean energy relative to network work.
	busy, both, heat float64
	// wakes are its distinct wake-ups per second: those on the grid coincide.
	wakes, grid float64
}

func (h *Host) coreOf(first int, a *activity) core {
	c := core{busy: a.busy[first], wakes: a.wakes[first], grid: a.grid[first], heat: 1}
	sum := a.heat[first]
	total := c.busy
	if s := h.sibling[first]; s >= 0 {
		total += a.busy[s]
		c.both = c.busy * a.busy[s]
		c.busy = total - c.both
		c.wakes, c.grid, sum = c.wakes+a.wakes[s], c.grid+a.grid[s], sum+a.heat[s]
	}
	if total > 0 {
		c.heat = sum / total
	}
	c.grid = together(c.grid, a.window)
	return c
}

// together is how many distinct wake-ups are left of those on one grid.
func together(wakes, window float64) float64 {
	if window <= 0 {
		return wakes
	}
	return min(wakes, 1/window)
}

// packageWatts is the power of one package at its temperature:
//
//	cores: Busy*use*heat*clock^2.2 + idle power by depth of sleep + wake-ups
//	shared parts, less while all cores sleep deeply
//	leakage above the reference temperature
func (h *Host) packageWatts(pkg int, a *activity, celsius float64) float64 {
	p := &h.phys.Power
	cores := h.cfg.Shape.CoresPerPackage
	first := pkg * cores
	active, busiest, allIdle := 0.0, 0.0, 1.0
	wakes, grid := 0.0, 0.0
	for i := first; i < first+cores; i++ {
		c := h.coreOf(i, a)
		active += c.busy
		busiest = max(busiest, c.busy)
		allIdle *= max(0, 1-c.busy)
		wakes, grid = wakes+c.wakes, grid+c.grid
	}
	watts := 0.0
	for i := first; i < first+cores; i++ {
		c := h.coreOf(i, a)
		watts += h.coreWatts(&c, active)
	}
	// Cores that wake on one grid are idle together, others by chance.
	aligned := 0.0
	if wakes+grid > 0 {
		aligned = grid / (wakes + grid)
	}
	idle := aligned*(1-busiest) + (1-aligned)*allIdle
	asleep := idle * deepPart(idle, wakes+together(grid, a.window), 2*p.DeepAfter)
	watts += p.Shared - (p.Shared-p.SharedAsleep)*asleep
	watts += p.Leak * float64(cores) * (celsius - p.Room - p.Reference)
	return max(0, watts)
}

// coreWatts is the power of a core. With exponential sleeps of mean g, the part
// of idle time that lies more than d after falling asleep is exp(-d/g).
func (h *Host) coreWatts(c *core, active float64) float64 {
	p := &h.phys.Power
	fastest := max(1, p.Fastest-p.Droop*max(0, active-1))
	const ramp = 0.8 // use from which on the governor asks for the highest clock
	clock := math.Pow(p.Slowest+(fastest-p.Slowest)*min(1, c.busy/ramp), 2.2)
	idle := max(0, 1-c.busy)
	wakes := c.wakes + c.grid
	deep := deepPart(idle, wakes, p.DeepAfter)
	return p.Busy*clock*c.heat*(c.busy+p.Sibling*c.both) +
		p.Shallow*(1-idle*deep) + p.Deep*idle*deep + p.Wake*wakes*deep
}

// deepPart is the share of idle time that is spent deeper than after.
func deepPart(idle, wakes, after float64) float64 {
	if idle <= 0 {
		return 0
	}
	return math.Exp(-after * wakes / idle)
}

// heatUp computes the power of a step, its energy, and the temperature after
// it. bytes are those of the VMs' traffic, per second.
func (h *Host) heatUp(bytes, dt float64) {
	p := &h.phys.Power
	a := h.activity()
	th := &h.thermal
	room := h.room(dt)
	sum, harmed := 0.0, h.harmed()
	for pkg := range th.watts {
		w := harmed * h.packageWatts(pkg, &a, th.celsius[pkg])
		th.watts[pkg] = w
		sum += w
		settled := room + p.Heat*w
		th.celsius[pkg] = settled + (th.celsius[pkg]-settled)*math.Exp(-dt/p.Thermal)
	}
	busy := 0.0
	for _, b := range h.cpus.busy {
		busy += b
	}
	dram := float64(len(th.watts))*p.DRAM + bytes*p.DRAMPerByte + busy*p.DRAMPerCore
	h.energy.add(th.watts, dram, (sum+dram+p.Platform)/p.Supply, dt)
	h.meter(dt)
}

// room is the temperature around the packages: a cooling that switches, and a
// slow random walk that returns.
func (h *Host) room(dt float64) float64 {
	const cycle, swing, back, spread = 1800, 2, 300, 1
	keep := math.Exp(-dt / back)
	th := &h.thermal
	th.wander = th.wander*keep + spread*math.Sqrt(1-keep*keep)*normal(&h.rng)
	return h.phys.Power.Room + th.wander + swing*math.Sin(2*math.Pi*(h.seconds/cycle+th.phase))
}
