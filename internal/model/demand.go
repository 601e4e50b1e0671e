package model

import "github.com/joulevirt/joulevirt/internal/units"

// Between lackFrom and lackFull, the mean use of the CPUs that a thread may run on, the
// time that it waits turns from waiting for its turn to want of CPU time.
const lackFrom, lackFull units.Cores = 0.90, 0.98

// Lack tells what the CPUs of a node lack. Waiting on CPUs that still idle is no unmet
// demand: the work gets done, only later, and a thread that waits less would run no
// more. Only where its CPUs have almost no idle time would it.
type Lack struct {
	// use by CPU. Below 0: not known.
	use []units.Cores
	// set and part are what was asked for last: most threads in a row have the same.
	set  units.CPUSet
	part units.Cores
}

// NewLack takes the use of a node's CPUs.
func NewLack(cpus []CPURates) *Lack {
	l := &Lack{part: 1}
	for _, cpu := range cpus {
		for len(l.use) <= cpu.CPU {
			l.use = append(l.use, -1)
		}
		// What a hypervisor took was no idle time either.
		l.use[cpu.CPU] = min(1, cpu.BusyCores+cpu.StealCores)
	}
	return l
}

// Part returns the part, from 0 to 1, of the time that threads on some CPUs wait which
// stands for work that they did not get done. It is 1 where the use of no CPU is known.
func (l *Lack) Part(cpus units.CPUSet) units.Cores {
	if cpus.Equal(l.set) {
		return l.part
	}
	var use, known units.Cores
	for _, cpu := range cpus.CPUs() {
		if cpu < len(l.use) && l.use[cpu] >= 0 {
			use, known = use+l.use[cpu], known+1
		}
	}
	l.set, l.part = cpus, 1
	if known > 0 {
		l.part = min(1, max(0, (use/known-lackFrom)/(lackFull-lackFrom)))
	}
	return l.part
}

// Demand returns the CPU time that threads on some CPUs would use if they lacked none:
// at least what they ran, and at most ThreadRates.Demand.
func (l *Lack) Demand(t ThreadRates, cpus units.CPUSet) units.Cores {
	return t.RunCores + l.Part(cpus)*t.WaitCores
}
