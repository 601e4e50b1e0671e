package guard

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Limits from which a symptom counts.
const (
	// mostWait of a bound thread, in percent of a CPU, while another that it may use
	// idles: above 10 % a VM counts as heavily affected; a second of that may be chance.
	mostWait = 25
	// idles is the chance from which on one of several CPUs is taken to idle.
	idles = 0.5
	// mostOverrun and mostDropped are packets of a million. The first is ten times what
	// a VM may lose by default: smaller losses shorten the window, which is the manager's
	// to do. The queue that holds packets loses none in order.
	mostOverrun, mostDropped = 10_000, 1000
	// certain is how many lost packets are no chance.
	certain = 10
	// keepsUp is what each thread of a VM runs at most, and lags what it waits at least,
	// for packets to be lost for want of CPU time: that is no fault of bunches.
	keepsUp, lags = 0.9, 0.1
	// holding may take slack beyond the window, and spare bytes wait in any queue: two
	// packets of the largest size that a network card hands over as one.
	slack = 5 * time.Millisecond
	spare = 128 << 10
)

// reading is one symptom of a lever, as a round shows it.
type reading struct {
	symptom model.Symptom
	lever   model.Lever
	setting Setting
	// value and limit are in the symptom's unit.
	value, limit float64
	// rounds in a row that it takes: more than one for what is seen of moments only.
	rounds int
}

// readings are what a round says of a VM.
func (r *Round) readings(vm *VM) []reading {
	list := []reading{{model.SymptomRunDelay, model.LeverAffinity, vm.Affinity, r.runDelay(vm), mostWait, 1}}
	p := &vm.Packets
	if all := p.Handed + p.Overrun; all > 0 {
		// Losses for want of CPU time say nothing, neither for the lever nor against it.
		setting := vm.Buffering
		if !vm.keepsUp() {
			setting = Unsure
		}
		list = append(list, reading{
			model.SymptomRingOverrun, model.LeverBuffering, setting, r.perMillion(p.Overrun, all), mostOverrun, 1,
		})
	}
	// Also when all are dropped, so that none is handed on.
	if p.Dropped != nil && p.Handed+p.Overrun+*p.Dropped > 0 {
		share := r.perMillion(*p.Dropped, p.Handed+p.Overrun+*p.Dropped)
		list = append(list, reading{model.SymptomQueueDrops, model.LeverBuffering, vm.Buffering, share, mostDropped, 1})
	}
	if p.Backlog != nil {
		const bits, looks = 8, 2
		explained := float64(p.Bits) / bits * (p.Window + slack).Seconds()
		list = append(list, reading{
			model.SymptomBacklog, model.LeverBuffering, vm.Buffering, float64(*p.Backlog), explained + spare, looks,
		})
	}
	return list
}

// keepsUp tells whether all threads of a VM have CPU time to spare.
func (vm *VM) keepsUp() bool {
	return !slices.ContainsFunc(vm.Threads, func(t Thread) bool { return t.Run >= keepsUp || t.Wait >= lags })
}

// perMillion is what was lost of all, 0 when that may be chance.
func (r *Round) perMillion(lost, all units.PacketsPerSecond) float64 {
	const million = 1e6
	if float64(lost)*r.Over.Seconds() < certain {
		return 0
	}
	return million * float64(lost/all)
}

// runDelay is the longest wait of a VM's threads that need not be, in percent: while
// another CPU idles that the container may use, or, of a VM that nothing binds, any.
func (r *Round) runDelay(vm *VM) float64 {
	const percent, worthwhile = 100, 0.01
	most := 0.0
	for i := range vm.Threads {
		t := &vm.Threads[i]
		if wait := percent * float64(t.Wait); t.Wait >= worthwhile && wait > most && r.otherIdles(vm, t.CPUs) {
			most = wait
		}
	}
	return most
}

// otherIdles tells whether one of the CPUs idles that the lever keeps a thread from.
func (r *Round) otherIdles(vm *VM, bound units.CPUSet) bool {
	others := vm.Cpuset
	if vm.Affinity != Off {
		others = others.Difference(bound)
	}
	// The chance that all are busy at once, were they so independently of one another.
	busy := 1.0
	for _, cpu := range others.CPUs() {
		if cpu < len(r.Idle) {
			busy *= 1 - r.Idle[cpu]
		}
	}
	return 1-busy >= idles
}
