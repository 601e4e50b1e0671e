package symptoms

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// The figures of a sample. Those before bits are signs too.
const (
	// throttled is the part of the periods in which the VM's CPU limit was used up, in percent.
	throttled = iota
	// outweighed is the part of what others run on the VM's CPUs that is run by VMs with more weight,
	// in percent.
	outweighed
	// steal of the vCPU that waits most, in percent of one CPU. heavySteal is the same with a
	// limit of its own.
	steal
	heavySteal
	// pathWait is how long the threads that move packets wait, in percent of one CPU.
	pathWait
	// drops towards the VM, per million packets.
	drops
	// backlog in front of the taps, in bytes.
	backlog
	// throughput in percent of the baseline.
	throughput
	// ownUse of the busiest vCPU, in percent of one CPU.
	ownUse
	// ownCPUs is the use of the CPUs that the VM may run on by the VM itself, in percent.
	ownCPUs
	// bits per second, both directions.
	bits
	// worstWait of a vCPU in the second of the sample, in percent of one CPU.
	worstWait
	// limitLost and waitLost are the cores that the VM's threads lack for its CPU limit and for other
	// reasons, limited is the limit.
	limitLost
	waitLost
	limited

	signs       = bits
	figureCount = limited + 1
)

// figures are those of a sample.
type figures [figureCount]float64

// limit of a sign: it comes at or beyond come, and goes at or within leave.
type limit struct {
	come, leave float64
	// below is true for a sign that shows by a small figure.
	below bool
	// least is the figure under which a sign that shows by a small one shows nothing.
	least float64
}

const (
	// defaultSteal is the published level from which on a VM is affected; about 1 % is
	// normal, and from twice the level on it had better run elsewhere.
	defaultSteal = 5
	heavyFactor  = 2
	// mostHeavy bounds the level of profiles that bear much steal.
	mostHeavy = 50
	// leaves is the part of its limit that a figure falls to before its sign goes.
	leaves = 0.6
	// demandEnded is the part of its baseline, in percent, below which a VM that moves
	// little has nothing to move.
	demandEnded = 10
	// fewPackets per second, of which a share that was dropped says nothing.
	fewPackets = 10
)

func limitsFor(s Sample) [signs]limit {
	from := s.MaxSteal * 100
	if from == 0 {
		from = defaultSteal
	}
	above := func(come float64) limit { return limit{come: come, leave: leaves * come} }
	return [signs]limit{
		throttled:  above(5),
		outweighed: above(50),
		steal:      above(from),
		heavySteal: {come: max(from, min(mostHeavy, heavyFactor*from)), leave: 0.7 * max(from, min(mostHeavy, heavyFactor*from))},
		pathWait:   above(5),
		drops:      above(1000),
		backlog:    above(128 << 10),
		throughput: {come: 70, leave: 85, below: true, least: demandEnded},
		ownUse:     {come: 90, leave: 75},
		ownCPUs:    {come: 90, leave: 75},
	}
}

// sign is something that was seen for a while.
type sign struct {
	on bool
	// shown is the figure that people see: it changes when it is off by a quarter.
	shown float64
}

// span is what was seen of one figure in a while.
type span struct{ low, middle, high float64 }

func (v *view) of(i int) span { return span{v.low[i], v.middle[i], v.high[i]} }

// update takes what was seen in a shorter and in a longer time, the latter once there
// is enough of it.
func (s *sign) update(at limit, soon, late span, long bool) {
	if s.on {
		s.on = !long || !at.within(late)
	} else {
		s.on = at.beyond(soon)
		s.shown = 0
	}
}

// show what was seen when it is beyond the limit, and a quarter off what people see.
func (s *sign) show(at limit, seen span) {
	if s.on && math.Abs(seen.middle-s.shown) > s.shown/4 && (at.beyond(seen) || s.shown == 0) {
		s.shown = rounded(seen.middle)
	}
}

func (l limit) beyond(x span) bool {
	if l.below {
		return x.high <= l.come && x.low >= l.least
	}
	return x.low >= l.come
}

func (l limit) within(x span) bool {
	if l.below {
		return x.low >= l.leave || x.high < l.least
	}
	return x.high <= l.leave
}

// rounded leaves two digits.
func rounded(x float64) float64 {
	if x <= 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-1)
	return math.Round(x/unit) * unit
}

// read returns the figures of a VM's rates, beside those of all VMs of its node. Nil: they are not known.
func read(rates *model.VMRates, node *model.NodeRates) figures {
	var out figures
	if rates.Limit != nil {
		out[throttled], out[limitLost], out[limited] = 100*rates.Limit.ThrottledShare, float64(rates.Limit.WaitCores), float64(rates.Limit.Cores)
	}
	var cpus units.CPUSet
	for _, vcpu := range rates.VCPUs {
		out[steal] = max(out[steal], 100*float64(vcpu.WaitCores))
		out[ownUse] = max(out[ownUse], 100*float64(vcpu.RunCores))
		cpus = cpus.Union(vcpu.CPUs)
	}
	out[heavySteal], out[worstWait], out[waitLost] = out[steal], out[steal], float64(rates.Demand()-rates.Busy())
	for _, threads := range []model.ThreadRates{rates.Vhost, rates.IOThreads, rates.Emulator} {
		out[pathWait] += 100 * float64(threads.WaitCores)
	}
	if waits := max(out[steal], out[pathWait]); node != nil && waits >= leaves*defaultSteal { // else it does not matter
		out[outweighed] = 100 * outweighedShare(rates, cpus, node)
	}
	if n := cpus.Len(); n > 0 {
		out[ownCPUs] = 100 * float64(rates.Busy()) / float64(n)
	}
	var offered, dropped float64
	for _, tap := range rates.Taps {
		out[bits] += float64(tap.ToVM.BitsPerSecond + tap.FromVM.BitsPerSecond)
		offered += float64(tap.ToVM.PacketsPerSecond + tap.ToVM.DropsPerSecond)
		dropped += float64(tap.ToVM.DropsPerSecond)
		if tap.BacklogBytes != nil {
			out[backlog] += float64(*tap.BacklogBytes)
		}
	}
	if offered >= fewPackets {
		out[drops] = 1e6 * dropped / offered
	}
	return out
}

// moreWeight is how many times the weight for each vCPU a VM has to have to count as one that
// outweighs another.
const moreWeight = 2

// outweighedShare is the share of the CPU time that others use on a VM's CPUs that is used by VMs
// which have more weight for each vCPU: what a pod requests is its weight, by which the kernel
// divides a CPU that several want. Of other work the weight is not known.
func outweighedShare(of *model.VMRates, cpus units.CPUSet, node *model.NodeRates) float64 {
	own := perVCPU(of)
	others := -float64(of.Busy())
	for _, cpu := range node.CPUs {
		if cpus.Contains(cpu.CPU) {
			others += float64(cpu.BusyCores)
		}
	}
	if own == 0 || others <= 0 {
		return 0
	}
	heavier := 0.0
	for i := range node.VMs {
		if vm := &node.VMs[i]; vm.PodUID != of.PodUID && perVCPU(vm) >= moreWeight*own {
			heavier += float64(runOn(vm, cpus))
		}
	}
	return min(1, heavier/others)
}

// perVCPU is the weight of a VM for each vCPU. 0: it is not known.
func perVCPU(vm *model.VMRates) float64 { return vm.Weight / float64(max(1, len(vm.VCPUs))) }

// runOn is what the vCPUs of a VM run on some CPUs, were they on each of theirs for as long.
func runOn(vm *model.VMRates, cpus units.CPUSet) units.Cores {
	run := units.Cores(0)
	for _, vcpu := range vm.VCPUs {
		if n := vcpu.CPUs.Len(); n > 0 {
			run += vcpu.RunCores * units.Cores(vcpu.CPUs.Intersection(cpus).Len()) / units.Cores(n)
		}
	}
	return run
}
