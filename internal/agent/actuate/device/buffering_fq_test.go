//go:build fq

// These run on a kernel that has fq: see test/guest/fq.

package device

import (
	"encoding/binary"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

func planned() *model.Buffering {
	return &model.Buffering{Window: time.Millisecond, FloodWindow: model.FloodWindow, OnPackets: 1000}
}

// traffic goes to the VM, numbered, until it is stopped.
type traffic struct {
	t       *testing.T
	stop    chan struct{}
	running sync.WaitGroup
	sent    int
	mu      sync.Mutex
	got     []int
}

const (
	frameBytes = 14 + 20 + 8 + 8
	// burst packets each millisecond: enough to be held, and few enough not to be a
	// bunch already.
	burst = 3
)

func startTraffic(r *realTaps) *traffic {
	r.Helper()
	f := &traffic{t: r.T, stop: make(chan struct{})}
	sender := -1
	r.network.Pod(func() (err error) {
		sender, err = hosttest.OpenSender(realTap)
		return err
	})
	f.running.Go(func() {
		defer unix.Close(sender)
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for {
			for range burst {
				if _, err := unix.Write(sender, frame(f.sent)); err != nil {
					r.Errorf("send: %v", err)
					return
				}
				f.sent++
			}
			select {
			case <-f.stop:
				return
			case <-ticker.C:
			}
		}
	})
	go func() {
		packet := make([]byte, 2048)
		for {
			n, err := r.card.Read(packet)
			if err != nil {
				return // the card is closed at the end of the test
			}
			if n == frameBytes && binary.BigEndian.Uint16(packet[12:]) == unix.ETH_P_IP {
				f.mu.Lock()
				f.got = append(f.got, int(binary.BigEndian.Uint64(packet[42:])))
				f.mu.Unlock()
			}
		}
	}()
	return f
}

// frame is a UDP packet of IPv4 with a number in it.
func frame(number int) []byte {
	b := make([]byte, frameBytes)
	copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0})
	ip := b[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], frameBytes-14)
	copy(ip[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	binary.BigEndian.PutUint16(ip[20:], 4000)
	binary.BigEndian.PutUint16(ip[22:], 4001)
	binary.BigEndian.PutUint16(ip[24:], 16)
	binary.BigEndian.PutUint64(b[42:], uint64(number))
	return b
}

// end checks that all that was sent came, in order.
func (f *traffic) end() {
	f.t.Helper()
	close(f.stop)
	f.running.Wait()
	arrived := func() []int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.got
	}
	hosttest.Eventually(f.t, "all packets to come", func() bool { return len(arrived()) >= f.sent })
	if got := arrived(); len(got) != f.sent || !slices.IsSorted(got) {
		f.t.Errorf("%d packets of %d came, in order: %v", len(got), f.sent, slices.IsSorted(got))
	}
	f.t.Logf("%d packets came, in order", f.sent)
}

func (r *realTaps) sample(a *realAgent) host.BufferSample {
	r.Helper()
	samples, err := a.host.Buffered(r.vm().Process)
	if err != nil || len(samples) != 1 || samples[0].Name != realTap {
		r.Fatalf("samples %+v, %v", samples, err)
	}
	return samples[0]
}

// An agent that is killed holds nothing for longer than its lease; the next one takes
// over what it knew, and at the end the tap is as it was found. No packet is lost.
func TestRealAgentIsKilledAndSucceeded(t *testing.T) {
	r := newRealTaps(t)
	dir, pins, before := t.TempDir(), hosttest.NewPinRoot(t), r.has()
	killed := r.start(dir, pins)
	r.want(killed, planned(), actuate.Applied)
	f := startTraffic(r) // from when the tap has what it takes: to put that on drops packets
	hosttest.Eventually(t, "packets to be held", func() bool {
		r.want(killed, planned(), actuate.Applied)
		return r.sample(killed).Held > 500
	})
	// No more of the lease is left than a test wants to wait for.
	if err := killed.host.ExtendLease(lifetime / 5); err != nil {
		t.Fatal(err)
	}
	killed.kill(t)

	a := r.start(dir, pins)
	if taps := a.journal.Content().Taps; len(taps) != 1 || taps[0].Name != realTap {
		t.Errorf("journal %v", taps)
	}
	taps, err := a.host.Taps(r.vm().Process)
	if err != nil || len(taps) != 1 || !taps[0].Complete {
		t.Fatalf("taps %+v, %v", taps, err)
	}
	last := r.sample(a)
	if last.Held <= 500 || last.Window != planned().Window {
		t.Errorf("what the killed agent knew is lost: %+v", last)
	}
	since := time.Now()
	hosttest.Eventually(t, "packets to pass", func() bool {
		now := r.sample(a)
		if now.Held != last.Held {
			last = now
		}
		return now.Passed > last.Passed+500
	})
	t.Logf("packets passed %v after the kill", time.Since(since).Round(time.Millisecond))
	held := r.sample(a).Held
	if got := r.want(a, planned(), actuate.Applied); got.Changed != 1 {
		t.Errorf("taken over: %+v", got)
	}
	hosttest.Eventually(t, "packets to be held again", func() bool {
		a.keeper.Beat()
		return r.sample(a).Held > held+500
	})
	if got := r.want(a, planned(), actuate.Applied); got.Changed != 0 {
		t.Errorf("again: %+v", got)
	}
	f.end() // as putting it on does, so does taking it off
	if err := a.actuator.Restore(); err != nil {
		t.Error(err)
	}
	if after := r.has(); after != before || len(a.journal.Content().Taps) != 0 {
		t.Errorf("the tap had\n%s\nand has\n%s\njournal %v", before, after, a.journal.Content().Taps)
	}
	left, err := os.ReadDir(pins)
	if err != nil {
		t.Error(err)
	}
	for _, entry := range left {
		if entry.Name() != "lease" {
			t.Errorf("%s is still pinned", entry.Name())
		}
	}
}
