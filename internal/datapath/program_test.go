package datapath

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The program that is shipped goes by the kernel's clock, which is fq's.
func TestProgramShipped(t *testing.T) {
	lease, err := newLease()
	must(t, err)
	defer lease.close()
	p, err := load(buffering, lease)
	must(t, err)
	defer p.Close()
	must(t, p.Configure(testConfig()))
	must(t, lease.extend(ever))
	r := &rig{program: p, t: t}
	monotonic := func() time.Duration {
		now, err := monotonic()
		must(t, err)
		return now
	}
	before := monotonic()
	r.send(plain(0), 100)
	if at := time.Duration(r.raw().LastArrival); at < before || at > monotonic() {
		t.Errorf("a packet of %d came at %d by the program's clock", before, at)
	}
	// As if the second before had been busy, and the next decision were far off.
	s := r.raw()
	s.Window, s.SlotEnd = uint64(500*us), uint64(before+time.Hour)
	must(t, p.state.Put(uint32(0), &s))
	before = monotonic()
	stamp := r.send(plain(0), 1)
	if stamp < before || stamp > monotonic()+500*us || stamp%(500*us) != 0 {
		t.Errorf("a packet of %d leaves at %d", before, stamp)
	}
}

// Packets of one flow leave in the order in which they come, and none is counted twice or
// not at all, whatever other CPUs do meanwhile and whatever is configured.
func TestProgramOnManyCPUs(t *testing.T) {
	r := newRig(t)
	change := []func(*Config){
		nil, func(c *Config) { c.Window = 1000 * us }, func(c *Config) { c.Window = 125 * us }, func(c *Config) { c.Window = 0 },
	}
	r.configure(nil)
	r.fast(plain(0))
	begin := r.raw()
	var clock, sent, running atomic.Int64
	clock.Store(int64(r.now))
	var wg sync.WaitGroup
	const senders, each = 4, 3000
	running.Store(senders)
	for range senders {
		wg.Go(func() {
			defer running.Add(-1)
			var last [3]time.Duration
			for i := range each {
				flow := i % len(last)
				got := r.send(plain(uint16(flow)), 2)
				sent.Add(2)
				if got != 0 && got >= last[flow] || got == 0 && time.Duration(clock.Load()) >= last[flow] {
					last[flow] = got
					continue
				}
				t.Errorf("a packet of flow %d leaves at %d, one before it at %d", flow, got, last[flow])
				return
			}
		})
	}
	for i := 0; running.Load() > 0; i++ {
		next := r.now + 37*us
		clock.Store(int64(next)) // senders may think that it is later than it is
		r.set(next)
		if i%500 == 0 {
			r.configure(change[i/500%len(change)])
		}
	}
	wg.Wait()
	s := r.raw()
	if got, want := s.Passed+s.Held-begin.Passed-begin.Held, uint64(sent.Load()); got != want {
		t.Errorf("%d packets were counted, %d sent", got, want)
	}
	if got, want := s.Bytes-begin.Bytes, uint64(sent.Load())*uint64(len(plain(0))); got != want {
		t.Errorf("%d bytes were counted, %d sent", got, want)
	}
	if s.Held == begin.Held || s.Bunches > s.Held || s.Arrivals > s.Passed+s.Held || s.Begun != s.Ended {
		t.Errorf("state %+v", s)
	}
}
