package symptoms

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Round is what one round of samples showed.
type Round struct {
	Time time.Time
	// Over is the time that all rates are means over.
	Over time.Duration
	// Idle is the share of the time that each logical CPU idled, by its number; 0 of
	// those that do not take threads by themselves.
	Idle []float64
	// VMs that run on the node, also those of which nothing could be read.
	VMs []VM
}

// Setting is how a lever stood during a round.
type Setting int

// The settings.
const (
	// Unsure: it changed, or is not known. The round says nothing about the lever.
	Unsure Setting = iota
	// Off from begin to end.
	Off
	// On from begin to end.
	On
)

// VM is what a round showed of one VM.
type VM struct {
	PodUID, Namespace, Name string
	Affinity, Buffering     Setting
	// Cpuset is where the VM's container may run.
	Cpuset  units.CPUSet
	Threads []Thread
	// Packets towards the VM, of all its taps.
	Packets Packets
}

// Thread is one thread of a VM.
type Thread struct {
	// CPUs that it may run on.
	CPUs units.CPUSet
	// Run is CPU time used, Wait is time spent runnable without a CPU.
	Run, Wait units.Cores
}

// Packets are what became of a VM's packets. Buffering is on while any are held.
type Packets struct {
	// Handed to the VM's card, and Overrun: found no room there.
	Handed, Overrun units.PacketsPerSecond
	// Dropped by the queue in front of the taps. Nil: it was not looked at.
	Dropped *units.PacketsPerSecond
	// Backlog that waits now, in bytes. Nil: it was not looked at.
	Backlog *uint64
	// Bits of the packets that came, and the longest Window that they are held for.
	Bits   units.BitsPerSecond
	Window time.Duration
}

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

// Reading is one symptom of a lever, as a round shows it.
type Reading struct {
	Symptom model.Symptom
	Lever   v1alpha1.Lever
	Setting Setting
	// Value and Limit are in the symptom's unit.
	Value, Limit float64
	// Rounds in a row that it takes: more than one for what is seen of moments only.
	Rounds int
}

// Readings are what a round shows of a VM.
func (r *Round) Readings(vm *VM) []Reading {
	list := []Reading{{model.SymptomRunDelay, v1alpha1.LeverAffinity, vm.Affinity, r.runDelay(vm), mostWait, 1}}
	p := &vm.Packets
	if all := p.Handed + p.Overrun; all > 0 {
		// Losses for want of CPU time say nothing, neither for the lever nor against it.
		setting := vm.Buffering
		if !vm.keepsUp() {
			setting = Unsure
		}
		list = append(list, Reading{
			model.SymptomRingOverrun, v1alpha1.LeverBuffering, setting, r.perMillion(p.Overrun, all), mostOverrun, 1,
		})
	}
	// Also when all are dropped, so that none is handed on.
	if p.Dropped != nil && p.Handed+p.Overrun+*p.Dropped > 0 {
		share := r.perMillion(*p.Dropped, p.Handed+p.Overrun+*p.Dropped)
		list = append(list, Reading{model.SymptomQueueDrops, v1alpha1.LeverBuffering, vm.Buffering, share, mostDropped, 1})
	}
	if p.Backlog != nil {
		const bits, looks = 8, 2
		explained := float64(p.Bits) / bits * (p.Window + slack).Seconds()
		list = append(list, Reading{
			model.SymptomBacklog, v1alpha1.LeverBuffering, vm.Buffering, float64(*p.Backlog), explained + spare, looks,
		})
	}
	return list
}

// keepsUp reports whether all threads of a VM have CPU time to spare.
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

// otherIdles reports whether one of the CPUs idles that the lever keeps a thread from.
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
