package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/buffer"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// steady is how long a guest's declaration must have been otherwise before that is told:
// a guest may change its mind with each packet, and a status is written to the API server.
const steady = 15 * time.Second

// mostOnPackets is the highest rate of packets that a plan may name.
const mostOnPackets = 1e9

func bufferingOf(action *v1alpha1.BufferingAction) (model.Buffering, error) {
	b := model.Buffering{OnPackets: units.PacketsPerSecond(action.OnPacketsPerSecond)}
	if us := action.WindowMicroseconds; us != nil {
		if b.Window = time.Duration(*us) * time.Microsecond; !model.IsWindow(b.Window) {
			return model.Buffering{}, fmt.Errorf("buffering.windowMicroseconds %d: must be 125, 250, 500 or 1000", *us)
		}
	}
	if us := action.FloodWindowMicroseconds; us != nil {
		if b.FloodWindow = time.Duration(*us) * time.Microsecond; !model.IsWindow(b.FloodWindow) || b.FloodWindow > model.FloodWindow {
			return model.Buffering{}, fmt.Errorf("buffering.floodWindowMicroseconds %d: must be 125, 250 or 500", *us)
		}
	}
	switch on, services := action.OnPacketsPerSecond, action.SmallPacketServices; {
	case b.IsZero():
		return model.Buffering{}, fmt.Errorf("buffering has neither windowMicroseconds nor floodWindowMicroseconds: give it one, or leave it out")
	case on < 1 || on > mostOnPackets:
		return model.Buffering{}, fmt.Errorf("buffering.onPacketsPerSecond %d: must be from 1 to %d", on, int(mostOnPackets))
	case len(services) > model.MaxServices:
		return model.Buffering{}, fmt.Errorf("buffering.smallPacketServices has %d entries: must have at most %d", len(services), model.MaxServices)
	}
	for i, s := range action.SmallPacketServices {
		if s.Port < 1 || s.Port > 65535 {
			return model.Buffering{}, fmt.Errorf("buffering.smallPacketServices[%d].port %d: must be from 1 to 65535", i, s.Port)
		}
		udp := s.Protocol == "" || s.Protocol == v1alpha1.TransportUDP
		if !udp && s.Protocol != v1alpha1.TransportTCP {
			return model.Buffering{}, fmt.Errorf("buffering.smallPacketServices[%d].protocol %.16q: must be TCP or UDP", i, s.Protocol)
		}
		b.Services = append(b.Services, model.Service{UDP: udp, Port: uint16(s.Port)})
	}
	if !b.IsValid() {
		return model.Buffering{}, fmt.Errorf("buffering %+v cannot be done by this version of the agent", b)
	}
	return b, nil
}

func bufferingWords() deviceWords {
	return deviceWords{v1alpha1.ReasonNoTap, v1alpha1.ReasonBufferingUnsupported, "the plan holds no packets"}
}

// told is what the status says of a VM's buffering.
type told struct {
	said v1alpha1.BufferingReadBack
	// seen is what was seen last, since then.
	seen  v1alpha1.BufferingReadBack
	since time.Time
}

// readBuffering reads back how the packets of VMs are held, by pod UID.
func (a *Agent) readBuffering(round *sample.Round, o orders, results []buffer.Result) map[string]v1alpha1.BufferingReadBack {
	samples := map[host.TaskID][]host.BufferSample{}
	for i := range round.VMs {
		samples[round.VMs[i].Process] = round.VMs[i].Buffered
	}
	read := map[string]v1alpha1.BufferingReadBack{}
	next := map[host.TaskID]told{}
	for i := range results {
		r := &results[i]
		if r.Outcome != buffer.Applied {
			continue
		}
		seen := samples[r.Process]
		if r.Changed > 0 {
			// What fails here fails in the next round too, which tells.
			seen, _ = a.opts.Host.Buffered(r.Process)
		}
		one, known := a.told[r.Process]
		if len(seen) > 0 {
			one = one.with(bufferingReadBack(seen, o.buffering[r.PodUID]), a.opts.Clock.Now(), r.Changed > 0)
		} else if !known {
			continue
		}
		next[r.Process], read[r.PodUID] = one, one.said
	}
	a.told = next
	return read
}

// with takes what is seen now. It is said at once when it is the first, or the agent
// changed something itself.
func (t told) with(seen v1alpha1.BufferingReadBack, now time.Time, changed bool) told {
	if t.since.IsZero() || changed {
		return told{said: seen, seen: seen, since: now}
	}
	if seen != t.seen {
		t.seen, t.since = seen, now
	}
	if now.Sub(t.since) >= steady {
		t.said = t.seen
	}
	return t
}

// bufferingReadBack says how the packets of a VM's taps are held: by the longest window
// of its taps, and as the guest tolerates it that it tolerates least of.
func bufferingReadBack(taps []host.BufferSample, want model.Buffering) v1alpha1.BufferingReadBack {
	window := slices.MaxFunc(taps, func(a, b host.BufferSample) int { return int(a.Window - b.Window) }).Window
	var guest *model.GuestTools
	for i := range taps {
		if g := taps[i].Guest; g != nil && (guest == nil || g.ToleratedMicroseconds < guest.ToleratedMicroseconds) {
			guest = g
		}
	}
	back := v1alpha1.BufferingReadBack{
		WindowMicroseconds: int32(window / time.Microsecond),
		Receive:            v1alpha1.BufferingHalfInForce, Transmit: v1alpha1.BufferingHalfNoGuestTools,
	}
	if guest == nil {
		return back
	}
	if window == 0 && want.Window > 0 {
		back.Receive = v1alpha1.BufferingHalfGuestDeclines
	}
	back.Transmit = v1alpha1.BufferingHalfInForce
	tolerates := model.WindowOf(time.Duration(guest.ToleratedMicroseconds)*time.Microsecond) > 0
	// Of a plan that holds packets only during floods the guest is told to hold nothing.
	if !tolerates || guest.TransmitMicroseconds == 0 && window > 0 {
		back.Transmit = v1alpha1.BufferingHalfGuestDeclines
	}
	return back
}
