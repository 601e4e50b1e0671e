package agent

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// declarationTime is how long a guest's declaration must have been otherwise before the status
// follows: a guest may change it with each packet, and a status is written to the API server.
const declarationTime = 15 * time.Second

// readBack is what the status says of a VM's buffering.
type readBack struct {
	published v1alpha1.BufferingReadBack
	// read is what was read last, since then.
	read  v1alpha1.BufferingReadBack
	since time.Time
}

// readBuffering reads back how the packets of VMs are held, by pod UID.
func (a *Agent) readBuffering(round *sample.Round, results []actuate.Result) map[string]v1alpha1.BufferingReadBack {
	samples := map[host.TaskID][]host.BufferSample{}
	for i := range round.VMs {
		samples[round.VMs[i].Process] = round.VMs[i].Buffered
	}
	read := map[string]v1alpha1.BufferingReadBack{}
	next := map[host.TaskID]readBack{}
	for i := range results {
		r := &results[i]
		if r.Outcome != actuate.Applied {
			continue
		}
		taps := samples[r.Process]
		if r.Changed > 0 {
			// What fails here fails in the next round too, which reports it.
			taps, _ = a.opts.Host.Buffered(r.Process)
		}
		one, known := a.readBacks[r.Process]
		if len(taps) > 0 {
			one = one.with(bufferingReadBack(taps), a.opts.Clock.Now(), r.Changed > 0)
		} else if !known {
			continue
		}
		next[r.Process], read[r.PodUID] = one, one.published
	}
	a.readBacks = next
	return read
}

// with adds what is read now. It is published at once when it is the first, or the agent
// changed something itself.
func (b readBack) with(read v1alpha1.BufferingReadBack, now time.Time, changed bool) readBack {
	if b.since.IsZero() || changed {
		return readBack{published: read, read: read, since: now}
	}
	if read != b.read {
		b.read, b.since = read, now
	}
	if now.Sub(b.since) >= declarationTime {
		b.published = b.read
	}
	return b
}

// bufferingReadBack says how the packets of a VM's taps are held: by the longest window
// of its taps, and as the guest tolerates it that it tolerates least of.
func bufferingReadBack(taps []host.BufferSample) v1alpha1.BufferingReadBack {
	window := slices.MaxFunc(taps, func(a, b host.BufferSample) int { return int(a.Window - b.Window) }).Window
	var guest *model.GuestTools
	for i := range taps {
		if g := taps[i].Guest; g != nil && (guest == nil || g.ToleratedMicroseconds < guest.ToleratedMicroseconds) {
			guest = g
		}
	}
	back := v1alpha1.BufferingReadBack{
		WindowMicroseconds: int32(window / time.Microsecond), Transmit: v1alpha1.BufferingHalfNoGuestTools,
	}
	if guest == nil {
		return back
	}
	back.Transmit = v1alpha1.BufferingHalfInForce
	tolerates := model.WindowOf(time.Duration(guest.ToleratedMicroseconds)*time.Microsecond) > 0
	// Of a plan that holds packets only during floods the guest is asked to hold nothing.
	if !tolerates || guest.TransmitMicroseconds == 0 && window > 0 {
		back.Transmit = v1alpha1.BufferingHalfGuestDeclines
	}
	return back
}
