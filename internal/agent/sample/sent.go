package sample

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// sentSpan is what the means of what VMs send are taken over: a whole number of
	// the periods that turns can have, or they would swing with the turns.
	sentSpan = 64 * time.Second
	// sentLeast is the time from which on a mean is told: two of the longest periods.
	sentLeast = 16 * time.Second
	// sentStep is the least distance of two points that are remembered.
	sentStep = 900 * time.Millisecond
)

// SentMeans remembers what VMs sent, for means over more than a round. Its zero
// value remembers nothing. It is not safe for concurrent use.
type SentMeans struct {
	vms map[host.TaskID]sentPast
}

// sentPast is what one VM had sent at some moments, the oldest first.
type sentPast struct {
	taps   int
	points []sentPoint
}

type sentPoint struct {
	at    time.Time
	bytes uint64
}

// Add completes the rates, whose VMs are in the order of the round's. A VM whose
// taps were not read, or that has none, is left without a mean.
func (m *SentMeans) Add(rates *model.NodeRates, round *Round) {
	seen := make(map[host.TaskID]sentPast, len(round.VMs))
	for i := range round.VMs {
		vm := &round.VMs[i]
		past := m.vms[vm.Process]
		if taps := vm.Sample.Taps; vm.Sample.TapsErr == nil && len(taps) > 0 {
			now := sentPoint{at: vm.At}
			for _, tap := range taps {
				now.bytes += tap.FromVM.Bytes
			}
			past = past.with(now, len(taps))
			rates.VMs[i].Sent = past.mean(now)
		}
		seen[vm.Process] = past
	}
	m.vms = seen
}

// with adds a point. Counters that went back, or of another number of taps, tell
// nothing together with those before.
func (p sentPast) with(now sentPoint, taps int) sentPast {
	if n := len(p.points); n > 0 {
		last := p.points[n-1]
		if p.taps != taps || now.bytes < last.bytes || now.at.Before(last.at) {
			p.points = nil
		} else if now.at.Sub(last.at) < sentStep {
			return p
		}
	}
	p.taps, p.points = taps, append(p.points, now)
	for len(p.points) > 1 && now.at.Sub(p.points[1].at) >= sentSpan {
		p.points = p.points[1:]
	}
	return p
}

// mean is that since the oldest point. Nil: it is too young.
func (p sentPast) mean(now sentPoint) *model.Sent {
	const bitsPerByte = 8
	first := p.points[0]
	elapsed := now.at.Sub(first.at)
	if elapsed < sentLeast {
		return nil
	}
	return &model.Sent{
		BitsPerSecond: units.BitsPerSecond(bitsPerByte * rate(first.bytes, now.bytes, elapsed)),
		Seconds:       elapsed.Seconds(),
	}
}
