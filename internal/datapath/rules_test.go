package datapath

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// leaves asserts when a packet leaves by the rules.
func (r *rig) leaves(what string, packet []byte, want time.Duration) {
	r.t.Helper()
	if got := r.send(packet, 1); got != want {
		r.t.Errorf("%s leaves at %d, want %d (now %d)", what, got, want, r.now)
	}
}

// Packets are held once a second brought enough of them. The window is halved until a bunch fits the guest's ring; too few packets for a window,
// and too many for any, are not held.
func TestProgramWindows(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		window        time.Duration
		on, perSecond int
		want          time.Duration
	}{
		{500 * us, 10_000, 9999, 0}, {500 * us, 10_000, 10_000, 500 * us},
		{1000 * us, 1000, 1999, 0}, {1000 * us, 1000, 2000, 1000 * us}, {1000 * us, 1000, 128_000, 1000 * us},
		{1000 * us, 1000, 128_001, 500 * us}, {500 * us, 1000, 3999, 0}, {500 * us, 1000, 4000, 500 * us},
		{250 * us, 1000, 8000, 250 * us}, {125 * us, 1000, 15_999, 0}, {125 * us, 1000, 16_000, 125 * us},
		{125 * us, 1000, 1_024_000, 125 * us}, {125 * us, 1000, 1_100_000, 62_500},
		{1000 * us, 1000, 8_000_000, 15_625}, {1000 * us, 1000, 8_300_000, 0},
	} {
		r.reset()
		r.configure(func(o *Config) {
			o.Window, o.OnPackets, o.OffPackets, o.MostArrivals, o.FloodPackets = c.window, units.PacketsPerSecond(c.on), 900, 1e9, 0
		})
		r.send(plain(0), c.perSecond)
		r.wait(125 * ms)
		r.send(plain(0), 1)
		if got := time.Duration(r.raw().Window); got != c.want {
			t.Errorf("window %s at %d packets/s is %s, want %s", c.window, c.perSecond, got, c.want)
		}
	}
}

// Whatever ends holding, nothing overtakes what its flow still has in the queue; other
// flows, and what is exempt, go at once.
func TestProgramKeepsOrder(t *testing.T) {
	r := newRig(t)
	for name, end := range map[string]func(r *rig){
		"no configuration":    func(r *rig) { must(r.t, r.Configure(Config{})) },
		"floods only":         func(r *rig) { r.configure(func(c *Config) { c.Window = 0 }) },
		"the lease":           func(r *rig) { must(r.t, r.lease.extend(r.now)) },
		"the guest":           func(r *rig) { r.run(r.ingress, frame(0, nil), skb{}, 1) },
		"a shorter window":    func(r *rig) { r.configure(func(c *Config) { c.Window = 125 * us }) },
		"the guest tolerates": func(r *rig) { r.run(r.ingress, frame(125, nil), skb{}, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			r.reset()
			r.configure(func(c *Config) { c.Window, c.FloodPackets = 1000*us, 0 })
			r.fast(plain(0))
			other := plain(1)
			for i := uint16(2); r.entry(other) == r.entry(plain(0)); i++ {
				other = plain(i)
			}
			r.entry(plain(0)) // to be forgotten with the rest
			r.wait(100 * us)
			held := r.send(plain(0), 1)
			if held != r.now+900*us {
				t.Fatalf("a packet leaves at %d", held)
			}
			end(r)
			r.wait(50 * us)
			r.leaves("the next of the flow", plain(0), held)
			if got := r.send(other, 1); got >= held {
				t.Errorf("another flow's leaves at %d", got)
			}
			r.leaves("one of its own time", plain(0), held)
			if got := r.sendAs(plain(0), skb{Stamp: uint64(held + us)}, 1); got < held+us {
				t.Errorf("one that is due later leaves at %d", got)
			}
			r.leaves("one that opens a connection", syn(0), 0)
			r.set(held)
			if got := r.send(other, 1); got > held+125*us {
				t.Errorf("another flow's leaves at %d", got)
			}
		})
	}
	r.t = t
}

// Of packets that come all the time, those of a window leave together at its end, in their order, and
// none is lost.
func TestProgramBunches(t *testing.T) {
	const window, gap, windows = 500 * us, 50 * us, 100
	r := newRig(t)
	r.configure(func(c *Config) { c.Window, c.FloodPackets = window, 0 })
	r.fast(plain(0))
	before := r.stats()
	r.set(r.now.Truncate(window) + gap/2)
	packets := uint64(0)
	for end := r.now + windows*window; r.now < end; r.wait(gap) {
		flow := uint16(packets % 3)
		r.leaves("a packet", plain(flow), r.now.Truncate(window)+window)
		packets++
	}
	after := r.stats()
	if held, bunches := after.Held-before.Held, after.Bunches-before.Bunches; held != packets || after.Passed != before.Passed || bunches != windows {
		t.Errorf("%d of %d packets were held in %d bunches, want all in %d", held, packets, bunches, windows)
	}
}

// What the state says between two packets is what the next packet finds.
func TestProgramCountsWhileNothingComes(t *testing.T) {
	r := newRig(t)
	r.configure(func(c *Config) { c.FloodPackets = 0 })
	r.fast(plain(0))
	before := r.stats().Active
	r.wait(3 * time.Second)
	paused := r.stats().Active
	if paused-before > time.Second {
		t.Errorf("active for %s of a pause", paused-before)
	}
	r.send(plain(0), 1)
	if got := r.stats().Active; got != paused {
		t.Errorf("active for %s when read in the pause, %s when a packet came", paused, got)
	}
}
