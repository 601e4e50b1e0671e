package datapath

import (
	"testing"
	"time"
)

// bound asserts when a packet leaves, which the rules tell.
func (r *rig) leaves(what string, packet []byte, want time.Duration) {
	r.t.Helper()
	if got := r.send(packet, 1); got != want {
		r.t.Errorf("%s leaves at %d, want %d (now %d)", what, got, want, r.now)
	}
}

func TestProgramWithoutConfiguration(t *testing.T) {
	r := newRig(t)
	foreign := skb{Stamp: uint64(time.Duration(1e18))}
	if got := r.sendAs(plain(0), foreign, 20_000); got != 1e18 {
		t.Errorf("the stamp of a packet became %d", got)
	}
	if s := r.stats(); s.Passed != 0 || s.Holding || s.Window != 0 {
		t.Errorf("stats: %+v", s)
	}
}

// Packets are held once a sliding second brought enough of them, and no earlier.
func TestProgramTurnsOn(t *testing.T) {
	r := newRig(t)
	r.configure(func(c *Config) { c.FloodPackets, c.MostArrivals = 0, 1e9 })
	r.wait(60 * ms) // slots are not where tests begin
	r.send(plain(0), 5000)
	r.wait(900 * ms)
	r.send(plain(0), 4998) // 9,998 within a second
	r.wait(50 * ms)
	r.leaves("the 9,999th", plain(0), 0)
	r.leaves("the 10,000th, of the slot that runs,", plain(0), 0)
	r.wait(70*ms - 120*us)
	if got := r.raw().Last.Packets; got != 9998 {
		t.Errorf("decided by %d packets, want 9998", got)
	}
	r.reset()
	r.configure(func(c *Config) { c.FloodPackets, c.MostArrivals = 0, 1e9 })
	r.send(plain(0), 10_000)
	r.set(start + 125*ms - 1)
	r.leaves("one in the same slot", plain(0), 0)
	r.set(start + 125*ms)
	r.leaves("the first of the next slot, on a boundary,", plain(0), start+125*ms)
	r.wait(1)
	r.leaves("one just past the boundary", plain(0), start+125*ms+500*us)
	r.wait(500*us - 1)
	r.leaves("one on the next boundary", plain(0), start+125*ms+500*us)
}

func TestProgramOldPacketsDoNotCount(t *testing.T) {
	r := newRig(t)
	r.configure(nil)
	r.send(plain(0), 9_999)
	r.wait(1125 * ms) // past the second
	r.send(plain(0), 9_999)
	r.wait(125 * ms)
	r.leaves("a packet", plain(0), 0)
	if got := r.stats().PacketsPerSecond; got != 9_999 {
		t.Errorf("%d packets in the last second, want 9999", got)
	}
	r.wait(10 * time.Minute)
	r.leaves("a packet after a pause", plain(0), 0)
	if got := r.stats().PacketsPerSecond; got != 0 {
		t.Errorf("%d packets in the last second, want 0", got)
	}
}

// Off below OffPackets, once that lasted for Hold.
func TestProgramTurnsOff(t *testing.T) {
	r := newRig(t)
	r.configure(func(c *Config) { c.FloodPackets = 0 })
	r.fast(plain(0))
	r.bursts(plain(0), 7000, 3500*ms)
	if !r.stats().Holding {
		t.Fatal("not held at 7,000 packets/s, which is not below the lower threshold")
	}
	r.bursts(plain(0), 6000, 2*time.Second)
	if !r.stats().Holding {
		t.Fatal("not held before the hold time ended")
	}
	r.bursts(plain(0), 6000, 1500*ms)
	if s := r.stats(); s.Holding {
		t.Fatalf("still held after the hold time: %+v", s)
	}
	r.bursts(plain(0), 9000, 2*time.Second)
	if r.stats().Holding {
		t.Fatal("held below the upper threshold")
	}
	r.bursts(plain(0), 10_000, 1300*ms)
	if !r.stats().Holding {
		t.Fatal("not held at the upper threshold")
	}
}

// The window is halved until a bunch fits the guest's ring; too few packets for a window,
// and too many for any, are not held.
func TestProgramWindows(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		window    time.Duration
		perSecond int
		want      time.Duration
	}{
		{1000 * us, 1999, 0}, {1000 * us, 2000, 1000 * us}, {1000 * us, 128_000, 1000 * us},
		{1000 * us, 128_001, 500 * us}, {500 * us, 3999, 0}, {500 * us, 4000, 500 * us},
		{250 * us, 8000, 250 * us}, {125 * us, 15_999, 0}, {125 * us, 16_000, 125 * us},
		{125 * us, 1_024_000, 125 * us}, {125 * us, 1_100_000, 62_500},
		{1000 * us, 8_000_000, 15_625}, {1000 * us, 8_300_000, 0},
	} {
		r.reset()
		r.configure(func(o *Config) {
			o.Window, o.OnPackets, o.OffPackets, o.MostArrivals, o.FloodPackets = c.window, 1000, 900, 1e9, 0
		})
		r.send(plain(0), c.perSecond)
		r.wait(125 * ms)
		r.send(plain(0), 1)
		if got := time.Duration(r.raw().Window); got != c.want {
			t.Errorf("window %s at %d packets/s is %s, want %s", c.window, c.perSecond, got, c.want)
		}
	}
}

// Packets that come in bunches as large as that need no help.
func TestProgramArrivals(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		bunch int
		held  bool
	}{{31, true}, {32, false}} {
		r.reset()
		r.configure(func(c *Config) { c.MostArrivals, c.FloodPackets = 32, 0 })
		for range 1000 {
			r.send(plain(0), c.bunch-1)
			r.wait(10 * us) // no longer than the gap
			r.send(plain(0), 1)
			r.wait(ms)
		}
		r.wait(125 * ms)
		r.send(plain(0), 1)
		s := r.stats()
		if s.Holding != c.held {
			t.Errorf("%d packets an arrival: held is %t, want %t", c.bunch, s.Holding, c.held)
		}
		if got := s.PacketsPerArrival; got < float64(c.bunch)-0.1 || got > float64(c.bunch) {
			t.Errorf("%g packets an arrival, want %d", got, c.bunch)
		}
	}
}

func TestProgramStamps(t *testing.T) {
	r := newRig(t)
	r.configure(func(c *Config) { c.FloodPackets = 0 })
	r.fast(plain(0))
	r.wait(100 * us)
	boundary := r.now - 100*us + 500*us
	for _, c := range []struct {
		what        string
		stamp, want time.Duration
	}{
		{"one without a stamp", 0, boundary},
		{"one whose time has passed", r.now - 1, boundary},
		{"one that is due before the boundary", r.now + us, boundary},
		{"one that is due at the boundary", boundary, boundary},
		{"one that is due after it", boundary + 1, boundary + 500*us},
		{"one of TCP's pacing", boundary + 3600*us, boundary + 4000*us},
		{"one of a wall clock", 1_700_000_000 * time.Second, boundary},
		{"one beyond ten seconds", r.now + 10*time.Second, boundary},
	} {
		for flow := uint16(0); ; flow++ {
			// Each of a flow of its own, so that none waits for another.
			packet := plain(flow)
			entry := r.entry(packet)
			var owed uint64
			must(t, r.flows.Lookup(entry, &owed))
			if time.Duration(owed) > r.now {
				continue
			}
			if got := r.sendAs(packet, skb{Stamp: uint64(c.stamp)}, 1); got != c.want {
				t.Errorf("%s leaves at %d, want %d", c.what, got, c.want)
			}
			break
		}
	}
}

// A stamp that is far ahead is its sender's: others that share the entry do not wait for it.
func TestProgramRemembersNoFarDeadlines(t *testing.T) {
	r := newRig(t)
	r.configure(func(c *Config) { c.FloodPackets = 0 })
	r.fast(plain(0))
	r.wait(100 * us)
	next := r.now + 400*us
	if got := r.sendAs(plain(0), skb{Stamp: uint64(r.now + 5*time.Second)}, 1); got != r.now+5*time.Second+400*us {
		t.Errorf("leaves at %d", got)
	}
	r.leaves("the next of the flow", plain(0), next)
}

// Whatever ends holding, nothing overtakes what its flow still has in the queue; other
// flows, and what is exempt, go at once.
func TestProgramKeepsOrder(t *testing.T) {
	r := newRig(t)
	for name, end := range map[string]func(r *rig){
		"no configuration":    func(r *rig) { must(r.t, r.Configure(Config{})) },
		"floods only":         func(r *rig) { r.configure(func(c *Config) { c.Window = 0 }) },
		"the lease":           func(r *rig) { must(r.t, r.lease.Extend(r.now)) },
		"the guest":           func(r *rig) { r.run(r.hear, frame(0, nil), skb{}, 1) },
		"a shorter window":    func(r *rig) { r.configure(func(c *Config) { c.Window = 125 * us }) },
		"the guest tolerates": func(r *rig) { r.run(r.hear, frame(125, nil), skb{}, 1) },
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

// Past the lease all leave at once, and what is foreign to fq's clock is no stamp.
func TestProgramLease(t *testing.T) {
	r := newRig(t)
	r.configure(func(c *Config) { c.FloodPackets = 0 })
	r.fast(plain(0))
	must(t, r.lease.Extend(r.now+100*us))
	r.wait(100*us - 1)
	r.leaves("a packet at the lease's end", plain(0), r.now+1+400*us)
	r.wait(401 * us)
	r.leaves("a packet without a lease", plain(0), 0)
	if r.stats().Holding {
		t.Error("held without a lease")
	}
	if got := r.sendAs(plain(0), skb{Stamp: uint64(r.now + 3*ms)}, 1); got != r.now+3*ms {
		t.Errorf("a packet with a stamp leaves at %d", got)
	}
	if got := r.sendAs(plain(0), skb{Stamp: 1_700_000_000e9}, 1); got != 0 {
		t.Errorf("a packet with a wall clock's stamp leaves at %d", got)
	}
	must(t, r.lease.Extend(ever))
	if got := r.send(plain(0), 1); got <= r.now {
		t.Error("not held with a new lease")
	}
}

// Thresholds count what the VM is woken for, however many segments it has.
func TestProgramSegments(t *testing.T) {
	r := newRig(t)
	r.configure(func(c *Config) { c.FloodPackets = 0 })
	large := append(plain(0), make([]byte, 1000)...)
	r.sendAs(large, skb{Segments: 40, SegmentSize: 1000}, 9000)
	r.sendAs(large, skb{SegmentSize: 100}, 100)
	r.wait(125 * ms)
	r.leaves("a packet", plain(0), 0)
	s := r.stats()
	want := uint64(9000*40 + 100*((len(large)+99)/100))
	if s.PacketsPerSecond != 9100 || s.SegmentsPerSecond != want || s.BytesPerSecond != 9100*uint64(len(large)) {
		t.Errorf("%d packets, %d segments and %d bytes a second", s.PacketsPerSecond, s.SegmentsPerSecond, s.BytesPerSecond)
	}
}

// A tag that is beside the data changes nothing.
func TestProgramTagBesideTheData(t *testing.T) {
	r := newRig(t)
	r.configure(func(c *Config) { c.FloodPackets = 0 })
	r.fast(plain(0))
	r.wait(100 * us)
	for what, c := range map[string]struct {
		packet []byte
		want   time.Duration
	}{"a SYN": {syn(0), 0}, "ARP": {arp(), 0}, "a plain packet": {plain(0), r.now + 400*us}} {
		if _, got, _ := r.run(r.holdTagged, c.packet, skb{}, 1); got != c.want {
			t.Errorf("%s leaves at %d, want %d", what, got, c.want)
		}
	}
}

// What the program says of the time in the mode and of bunches.
func TestProgramCounts(t *testing.T) {
	r := newRig(t)
	r.configure(func(c *Config) { c.FloodPackets = 0 })
	r.fast(plain(0))
	before := r.stats()
	for range 1000 {
		r.send(plain(0), 10)
		r.send(plain(1), 10)
		r.wait(ms)
	}
	after := r.stats()
	if got := after.Active - before.Active; got != time.Second {
		t.Errorf("active for %s, want 1s", got)
	}
	if got := after.Held - before.Held; got != 20_000 {
		t.Errorf("%d held, want 20000", got)
	}
	if got := after.Bunches - before.Bunches; got != 1000 {
		t.Errorf("%d bunches, want 1000", got)
	}
	r.wait(3 * time.Second)
	s := r.stats()
	if s.Holding || s.PacketsPerSecond != 0 || s.Active-after.Active > time.Second {
		t.Errorf("after a pause: %+v", s)
	}
	r.send(plain(0), 1)
	if got := r.stats().Active; got != s.Active {
		t.Errorf("active for %s when told in the pause, %s when a packet came", s.Active, got)
	}
}
