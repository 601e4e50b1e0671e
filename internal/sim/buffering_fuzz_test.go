package sim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// FuzzBuffering does what the input says to one VM, two bytes a time, and checks what
// holds of every program: no packet is made up or forgotten, counters never fall, nothing
// is held past the lease, and the same calls do the same.
func FuzzBuffering(f *testing.F) {
	f.Add([]byte("t\x40b\x03k\x20s\x05s\x05t\x05s\x05s\x05"))
	f.Add([]byte("b\x02k\xfff\x30s\x20f\x00s\x05f\x50u\x00s\x01b\x01s\x05"))
	f.Add([]byte("t\xffr\x10g\x30b\x03k\x08s\x50g\x00s\xffq\x01b\x01s\x02q\x00b\x03k\x01s\x09"))
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 200 {
			return
		}
		one, twin := buffered{receiver: receiving(t, Traffic{}, nil)}, buffered{receiver: receiving(t, Traffic{}, nil)}
		for i := 0; i+1 < len(program); i += 2 {
			what, how := program[i], program[i+1]
			one.do(what, how)
			twin.do(what, how)
			if diff := cmp.Diff(one.last, twin.last); diff != "" {
				t.Fatalf("the same calls differ\n%s", diff)
			}
		}
	})
}

// buffered is a VM whose packets may be held, with what was seen last of it.
type buffered struct {
	receiver
	last []host.BufferSample
	// lease is how long packets may still be held.
	lease time.Duration
	// most is the longest window that was asked for.
	most time.Duration
}

// do does one thing. What is refused is refused.
func (b *buffered) do(what, how byte) {
	n := int(how)
	windows := []time.Duration{0, model.ShortestWindow, 2 * model.ShortestWindow, model.FloodWindow, model.LongestWindow}
	switch what {
	case 't':
		traffic := packets(float64(n * n * 4))
		traffic.Pattern = Pattern(n % 3)
		traffic.RoundTrip = time.Duration(n%4) * 100 * time.Microsecond
		b.must(b.SetTraffic(b.pod, traffic))
	case 'f':
		b.must(b.SetTraffic(b.pod, Flood(units.BitsPerSecond(n)*mbit/4)))
	case 'b':
		as := model.Buffering{Window: windows[n%5], FloodWindow: windows[n/5%4], OnPackets: units.PacketsPerSecond(1 + 100*n)}
		if b.Buffer(b.id, tap, as) == nil {
			b.most = max(as.Window, as.FloodWindow)
		}
	case 'u':
		b.must(b.Unbuffer(b.id, tap))
		b.last = nil
	case 'k':
		b.lease = time.Duration(n) * 100 * time.Millisecond
		b.must(b.KeepBuffering(b.lease))
	case 'g':
		var tools *model.GuestTools
		if n > 0 {
			tools = &model.GuestTools{ToleratedMicroseconds: n * 5, TransmitMicroseconds: n % 7 * 200}
		}
		b.must(b.SetGuestTools(b.pod, tools))
	case 'r':
		b.must(b.SetRing(b.pod, n))
	case 'q':
		queue := ""
		if n%2 == 1 {
			queue = "tbf 1:"
		}
		b.must(b.SetTapQueue(b.pod, queue))
		b.last = nil
	case 's':
		b.step(time.Duration(n) * 30 * time.Millisecond)
	}
}

func (b *buffered) step(d time.Duration) {
	b.t.Helper()
	v := b.vms[0]
	ours, counts, arrived := v.buffering.ours, !v.buffering.config.IsZero(), v.toVM.packets+v.toVM.drops
	var was host.BufferSample
	if len(b.last) > 0 {
		was = b.last[0]
	}
	b.Advance(d)
	may := min(d, b.lease)
	b.lease -= may
	list, err := b.Buffered(b.id)
	b.must(err)
	b.last = list
	if !ours {
		if list != nil {
			b.t.Fatalf("buffered without a program: %+v", list)
		}
		return
	}
	is := b.sample()
	const rounding = time.Microsecond
	if is.Passed < was.Passed || is.Held < was.Held || is.Bunches < was.Bunches || is.Active < was.Active || is.Bunches > is.Held {
		b.t.Fatalf("counters %+v, before %+v", is, was)
	}
	if active := is.Active - was.Active; active > may+rounding || active == 0 && is.Held != was.Held {
		b.t.Fatalf("held for %v of %v within the lease: %+v, before %+v", active, may, is, was)
	}
	arrived = v.toVM.packets + v.toVM.drops - arrived
	if !counts {
		arrived = 0 // it lets packets pass and counts none
	}
	if counted := float64(is.Passed-was.Passed) + float64(is.Held-was.Held); counted > arrived*(1+1e-9)+2 || counted < arrived*(1-1e-9)-2 {
		b.t.Fatalf("%.0f packets counted of %.0f", counted, arrived)
	}
	if is.Window > b.most || is.Window != 0 && !model.IsWindow(is.Window) {
		b.t.Fatalf("window %v, of %v at most", is.Window, b.most)
	}
}
