package symptoms

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// The figures of a sample. Those before bits are signs too.
const (
	// steal, in percent of one CPU: the mean over the vCPUs. heavySteal is the same with
	// a limit of its own.
	steal = iota
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

	signs       = bits
	figureCount = bits + 1
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
	if s.on && math.Abs(soon.middle-s.shown) > s.shown/4 && (at.beyond(soon) || s.shown == 0) {
		s.shown = rounded(soon.middle)
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

// read returns the figures of a VM's rates.
func read(rates *model.VMRates) figures {
	var out figures
	var cpus units.CPUSet
	for _, vcpu := range rates.VCPUs {
		out[steal] += 100 * float64(vcpu.WaitCores) / float64(len(rates.VCPUs))
		out[ownUse] = max(out[ownUse], 100*float64(vcpu.RunCores))
		cpus = cpus.Union(vcpu.CPUs)
	}
	out[heavySteal] = out[steal]
	for _, threads := range []model.ThreadRates{rates.Vhost, rates.IOThreads, rates.Emulator} {
		out[pathWait] += 100 * float64(threads.WaitCores)
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
