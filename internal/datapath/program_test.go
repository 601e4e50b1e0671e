package datapath

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// The program that is shipped goes by the kernel's clock, which is fq's.
func TestProgramShipped(t *testing.T) {
	lease, err := NewLease()
	must(t, err)
	defer lease.Close()
	p, err := Load(lease)
	must(t, err)
	defer p.Close()
	must(t, p.Configure(testConfig()))
	must(t, lease.Extend(ever))
	r := &rig{Program: p, t: t}
	monotonic := func() time.Duration {
		var now unix.Timespec
		must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
		return time.Duration(now.Nano())
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

func TestConfigureRefuses(t *testing.T) {
	r := newRig(t)
	r.configure(nil)
	var before, after bpf.JvConfig
	must(t, r.config.Lookup(uint32(0), &before))
	for name, change := range map[string]func(*Config){
		"a window off the grid":     func(c *Config) { c.Window = 300 * us },
		"a long window":             func(c *Config) { c.Window = 2 * ms },
		"a negative window":         func(c *Config) { c.Window = -500 * us },
		"a long window for floods":  func(c *Config) { c.FloodWindow = 1000 * us },
		"no rate":                   func(c *Config) { c.OnPackets = 0 },
		"no number":                 func(c *Config) { c.OnPackets = units.PacketsPerSecond(math.NaN()) },
		"too many services":         func(c *Config) { c.Services = make([]model.Service, 9) },
		"off above on":              func(c *Config) { c.OffPackets = 10_001 },
		"never off":                 func(c *Config) { c.OffPackets = 0 },
		"a negative hold time":      func(c *Config) { c.Hold = -1 },
		"a negative gap":            func(c *Config) { c.Gap = -1 },
		"no arrivals":               func(c *Config) { c.MostArrivals = 0 },
		"a share above one":         func(c *Config) { c.FloodSYN = 1.1 },
		"a share that is no number": func(c *Config) { c.FloodSYN = math.NaN() },
	} {
		c := testConfig()
		change(&c)
		if err := r.Configure(c); err == nil {
			t.Errorf("%s was taken", name)
		}
		must(t, r.config.Lookup(uint32(0), &after))
		if after != before {
			t.Fatalf("%s changed something", name)
		}
	}
	for _, b := range []model.Buffering{{}, bufferingOf(1000*us, 500*us, 10_000), bufferingOf(0, 125*us, 1.5)} {
		if err := r.Configure(ConfigOf(b)); err != nil {
			t.Errorf("%+v: %v", b, err)
		}
	}
}

func TestLease(t *testing.T) {
	path := filepath.Join(newPinRoot(t), "lease")
	must(t, os.Mkdir(filepath.Dir(path), 0o700))
	first, err := OpenLease(path)
	must(t, err)
	must(t, first.Extend(5*time.Second))
	must(t, first.Close())
	again, err := OpenLease(path)
	must(t, err)
	defer again.Close()
	if until, err := again.read(); err != nil || until != 5*time.Second {
		t.Errorf("the lease was until %s, %v", until, err)
	}
	other, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	must(t, err)
	defer other.Close()
	must(t, other.Pin(path+"-of-others"))
	if l, err := OpenLease(path + "-of-others"); err == nil {
		t.Error("a map of others was taken for a lease", l.Close())
	}
}

func TestProgramIsPinnedAndTakenOver(t *testing.T) {
	root := newPinRoot(t)
	folder := filepath.Join(root, "tap")
	r := newRig(t)
	if _, err := OpenPinned(folder, r.lease); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("nothing is pinned: %v", err)
	}
	r.configure(func(c *Config) { c.FloodPackets = 0 })
	r.fast(plain(0))
	must(t, os.MkdirAll(filepath.Join(folder, unfinished, "rest"), 0o700))
	if _, err := OpenPinned(folder, r.lease); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("half of it is pinned: %v", err)
	}
	must(t, r.Pin(folder))
	before := r.stats()
	taken, err := OpenPinned(folder, r.lease)
	must(t, err)
	old := r.Program
	r.Program = taken
	if after := r.stats(); after != before {
		t.Errorf("it knew %+v, and now %+v", before, after)
	}
	must(t, old.Close())
	r.wait(100 * us)
	if got := r.send(plain(0), 1); got != r.now+400*us {
		t.Errorf("a packet leaves at %d", got)
	}
	r.configure(func(c *Config) { c.Window = 125 * us })
	r.wait(ms)
	if got := r.send(plain(0), 1); got != r.now+25*us {
		t.Errorf("a packet leaves at %d after another configuration", got)
	}
	otherLease, err := NewLease()
	must(t, err)
	defer otherLease.Close()
	if _, err := OpenPinned(folder, otherLease); !errors.Is(err, ErrOtherVersion) {
		t.Errorf("with another lease: %v", err)
	}
	must(t, os.Rename(filepath.Join(folder, bpf.Version()), filepath.Join(folder, "0123456789abcdef")))
	if _, err := OpenPinned(folder, r.lease); !errors.Is(err, ErrOtherVersion) {
		t.Errorf("another version: %v", err)
	}
	must(t, Unpin(folder))
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", folder, err)
	}
	must(t, Unpin(folder))
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
