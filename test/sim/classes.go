package sim

import (
	"math"
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// class is all threads that may run on the same CPUs. The scheduler treats
// them alike, which makes a step cost little more than one look at each thread.
type class struct {
	// cpus is what a thread's affinity reads as; list are those that the
	// scheduler uses: without isolated CPUs, unless it is one CPU.
	cpus units.CPUSet
	list []int32
	// wander is the chance that a thread wakes on another core than before.
	wander float64

	// Of the current step. demand is CPU time per time; spread is the demand by
	// CPU of list, crowding the demand of all classes on them, and speed the
	// throughput that its CPUs gave in the last step.
	demand, speed, crowding float64
	spread                  []float64
	// turns is one over the mean slice, in seconds, of what runs on the class's CPUs,
	// bySlice the demand there of threads with slices up to each of the host's lengths.
	turns   float64
	bySlice []float64
	// use is what ran in the end; heat is the same weighted by the energy of
	// the instructions; wakes are wake-ups per second, and grid those of them
	// that fall on the common grid of buffering.
	use, heat, wakes, grid float64
	// part of the demand that is on the CPU which is being shared out.
	part float64
}

// classes keeps one class for each set of CPUs.
type classes struct {
	topology model.Topology
	coreOf   map[int]int
	list     []class
	byText   map[string]int32
	// order has the classes from narrow to wide.
	order []int32
	// lengths of slices, in seconds, of what wants to run in the current step: rising.
	lengths []float64
}

// maxClasses is when unused ones are looked for: a host has few different sets.
const maxClasses = 4096

func newClasses(topology model.Topology) classes {
	c := classes{topology: topology, coreOf: map[int]int{}, byText: map[string]int32{}}
	for i, core := range topology.Cores {
		for _, cpu := range core.CPUs.CPUs() {
			c.coreOf[cpu] = i
		}
	}
	return c
}

func (c *classes) of(i int32) *class { return &c.list[i] }

func (c *classes) full() bool { return len(c.list) >= maxClasses }

// intern returns the class of a set, which must not be empty.
func (c *classes) intern(set units.CPUSet) int32 {
	text := set.String()
	if i, known := c.byText[text]; known {
		return i
	}
	numbers := set.CPUs()
	one := class{cpus: set, list: make([]int32, len(numbers)), spread: make([]float64, len(numbers)), speed: 1, turns: 1 / defaultSlice}
	cores := map[int]bool{}
	for i, cpu := range numbers {
		one.list[i] = int32(cpu)
		cores[c.coreOf[cpu]] = true
	}
	one.wander = 1 - 1/float64(len(cores))
	i := int32(len(c.list))
	c.list = append(c.list, one)
	c.byText[text] = i
	c.order = append(c.order, i)
	slices.SortFunc(c.order, func(a, b int32) int {
		if d := len(c.list[a].list) - len(c.list[b].list); d != 0 {
			return d
		}
		return int(a - b)
	})
	return i
}

// place spreads the classes' demands over CPUs, narrow classes first, each so
// that its CPUs become level: what a scheduler tends to that balances load.
// load is added to.
func (c *classes) place(load []float64) {
	for _, i := range c.order {
		k := &c.list[i]
		if k.demand <= 0 {
			continue
		}
		level := k.fill(load)
		for j, cpu := range k.list {
			k.spread[j] = max(0, level-load[cpu])
			load[cpu] += k.spread[j]
		}
	}
}

// fill returns the level up to which the class's demand fills its CPUs.
func (k *class) fill(load []float64) float64 {
	level := math.Inf(1)
	for {
		sum, n := k.demand, 0
		for _, cpu := range k.list {
			if load[cpu] < level {
				sum += load[cpu]
				n++
			}
		}
		next := sum / float64(n)
		if next >= level || level-next < 1e-12 {
			return next
		}
		level = next
	}
}
