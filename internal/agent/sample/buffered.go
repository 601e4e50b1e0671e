package sample

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// dropsFor is how long the rate of drops of a tap's queue is told after it was looked at.
// A host looks in some rounds only.
const dropsFor = 30 * time.Second

// drops is what is known of the drops of one tap's queue.
type drops struct {
	count uint64
	at    time.Time
	// rate between the two looks before. Nil: there was one, or the counter started over.
	rate *units.PacketsPerSecond
}

// addBuffered completes a VM with the counters of its buffered taps, and with what is
// known of their drops. addSlow was called before.
func (s *Sampler) addBuffered(vm *VM) {
	past := s.seen[vm.Process]
	vm.Buffered, vm.BufferedErr = s.host.Buffered(vm.Process)
	for i := range vm.Buffered {
		if now := vm.Buffered[i].Drops; now != nil {
			past.lookAtDrops(vm.Buffered[i].Name, *now, vm.At)
		}
	}
	for name, last := range past.drops {
		if vm.At.Sub(last.at) >= dropsFor {
			delete(past.drops, name)
			continue
		}
		if last.rate == nil {
			continue
		}
		if vm.DropRates == nil {
			vm.DropRates = map[string]units.PacketsPerSecond{}
		}
		vm.DropRates[name] = *last.rate
	}
}

func (past *slow) lookAtDrops(tap string, count uint64, at time.Time) {
	if past.drops == nil {
		past.drops = map[string]drops{}
	}
	last, known := past.drops[tap]
	next := drops{count: count, at: at}
	switch elapsed := at.Sub(last.at); {
	case !known || count < last.count:
	case elapsed < shortest:
		return
	default:
		mean := units.PacketsPerSecond(rate(last.count, count, elapsed))
		next.rate = &mean
	}
	past.drops[tap] = next
}

// bufferingRates are those of all buffered taps of a VM. Nil: it has none.
func bufferingRates(previous []host.BufferSample, vm *VM, elapsed time.Duration) *model.BufferingRates {
	if len(vm.Buffered) == 0 {
		return nil
	}
	rates := &model.BufferingRates{}
	for i := range vm.Buffered {
		now := &vm.Buffered[i]
		rates.WindowMicroseconds = max(rates.WindowMicroseconds, int(now.Window/time.Microsecond))
		for k := range previous {
			if old := &previous[k]; old.Name == now.Name {
				rates.ActiveShare = max(rates.ActiveShare, float64(share(old.Active, now.Active, elapsed)))
				rates.PassedPerSecond += units.PacketsPerSecond(rate(old.Passed, now.Passed, elapsed))
				rates.HeldPerSecond += units.PacketsPerSecond(rate(old.Held, now.Held, elapsed))
				rates.BunchesPerSecond += rate(old.Bunches, now.Bunches, elapsed)
			}
		}
		if lost, known := vm.DropRates[now.Name]; known {
			if rates.DropsPerSecond == nil {
				rates.DropsPerSecond = new(units.PacketsPerSecond)
			}
			*rates.DropsPerSecond += lost
		}
		rates.GuestTools = leastTolerant(rates.GuestTools, now.Guest)
		rates.Flood = worse(rates.Flood, now.Flood)
	}
	return rates
}

// leastTolerant is what of two declarations of one guest, for two of its cards, binds
// it more.
func leastTolerant(a, b *model.GuestTools) *model.GuestTools {
	if a == nil || b != nil && b.ToleratedMicroseconds < a.ToleratedMicroseconds {
		return b
	}
	return a
}

// worse is the flood of more segments.
func worse(a, b *model.Flood) *model.Flood {
	if a == nil || b != nil && b.SegmentsPerSecond > a.SegmentsPerSecond {
		return b
	}
	return a
}
