//go:build fq

// These run on a kernel that has fq: see test/guest/buffering.

package buffer

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/model"
)

// agentVariable makes the test binary an agent that buffers. Its value is life, in JSON.
const agentVariable = "JOULEVIRT_TEST_BUFFERING_AGENT"

// life is what an agent of another process is told.
type life struct {
	VM        discover.VM
	Dir, Pins string
}

func TestMain(m *testing.M) {
	if text := os.Getenv(agentVariable); text != "" {
		fmt.Println("failed:", beAgent(text))
		return
	}
	hosttest.Main(m)
}

func planned() *model.Buffering {
	return &model.Buffering{Window: time.Millisecond, FloodWindow: model.FloodWindow, OnPackets: 1000}
}

// beAgent buffers until it is killed, and says once that the tap has what it takes, and
// once that packets were held.
func beAgent(text string) error {
	var l life
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return err
	}
	a, err := startAgent(l.Dir, l.Pins)
	if err != nil {
		return err
	}
	for applied := false; ; {
		r, err := a.apply(l.VM, planned())
		if err != nil || r.Outcome != Applied {
			return errors.Join(fmt.Errorf("%s: %s", r.Outcome, r.Message), err)
		}
		if !applied {
			applied = true
			fmt.Println("applied")
		}
		samples, err := a.host.Buffered(l.VM.Process)
		if err != nil {
			return err
		}
		if len(samples) == 1 && samples[0].Held > 500 {
			// No more of the lease is left than a test wants to wait for.
			if err := a.host.KeepBuffering(lifetime / 5); err != nil {
				return err
			}
			fmt.Println("held")
			<-time.After(hosttest.Patience) // it is killed before
		}
		<-time.After(100 * time.Millisecond)
	}
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
	r.network.Pod(func() error {
		device, err := netlink.LinkByName(realTap)
		if err != nil {
			return err
		}
		if sender, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.Bind(sender, &unix.SockaddrLinklayer{Ifindex: device.Attrs().Index})
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

// end looks that all that was sent came, in order.
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

// killAgent has an agent of another process buffer, and kills it once packets were held. It
// returns the packets, which come from when the tap has what it takes: to put that on drops
// those that come meanwhile.
func (r *realTaps) killAgent(dir, pins string) *traffic {
	r.Helper()
	text, err := json.Marshal(life{VM: r.vm(), Dir: dir, Pins: pins})
	if err != nil {
		r.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		r.Fatal(err)
	}
	agent := exec.Command(self)
	agent.Env = append(os.Environ(), agentVariable+"="+string(text))
	agent.Stderr = os.Stderr
	out, err := agent.StdoutPipe()
	if err == nil {
		err = agent.Start()
	}
	if err != nil {
		r.Fatal(err)
	}
	defer func() {
		_ = agent.Process.Kill() // it may have ended by itself
		_ = agent.Wait()
	}()
	// It is killed too when it does not hold anything: its output ends.
	tooLate := time.AfterFunc(hosttest.Patience, func() { _ = agent.Process.Kill() })
	defer tooLate.Stop()
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "applied" {
		r.Fatalf("the agent said %q", lines.Text())
	}
	f := startTraffic(r)
	if !lines.Scan() || lines.Text() != "held" {
		r.Fatalf("the agent said %q", lines.Text())
	}
	return f
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
	f := r.killAgent(dir, pins)

	a := r.start(dir, pins)
	if taps := a.journal.Taps(); len(taps) != 1 || taps[0].Name != realTap {
		t.Errorf("journal %v", taps)
	}
	taps, err := a.host.Taps(r.vm().Process)
	if err != nil || len(taps) != 1 || !taps[0].Buffered {
		t.Fatalf("taps %+v, %v", taps, err)
	}
	last := r.sample(a)
	if last.Held <= 500 || last.Window != planned().Window {
		t.Errorf("what the killed agent knew is lost: %+v", last)
	}
	killed := time.Now()
	hosttest.Eventually(t, "packets to pass", func() bool {
		now := r.sample(a)
		if now.Held != last.Held {
			last = now
		}
		return now.Passed > last.Passed+500
	})
	t.Logf("packets passed %v after the kill", time.Since(killed).Round(time.Millisecond))
	held := r.sample(a).Held
	if got := r.want(a, planned(), Applied); got.Changed != 1 {
		t.Errorf("taken over: %+v", got)
	}
	hosttest.Eventually(t, "packets to be held again", func() bool {
		a.keeper.Beat()
		return r.sample(a).Held > held+500
	})
	if got := r.want(a, planned(), Applied); got.Changed != 0 {
		t.Errorf("again: %+v", got)
	}
	f.end() // as putting it on does, so does taking it off
	if err := a.actuator.Restore(); err != nil {
		t.Error(err)
	}
	if after := r.has(); after != before || len(a.journal.Taps()) != 0 {
		t.Errorf("the tap had\n%s\nand has\n%s\njournal %v", before, after, a.journal.Taps())
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

// An agent that finds no journal knows at its first look what another left.
func TestRealLostJournal(t *testing.T) {
	r := newRealTaps(t)
	pins, before := hosttest.NewPinRoot(t), r.has()
	f := r.killAgent(t.TempDir(), pins)
	a := r.start(t.TempDir(), pins)
	f.end()
	r.want(a, nil, Undone)
	if after := r.has(); after != before || len(a.journal.Taps()) != 0 {
		t.Errorf("the tap had\n%s\nand has\n%s\njournal %v", before, after, a.journal.Taps())
	}
}

// Who takes the agent's queueing discipline away twice is left in peace.
func TestRealContested(t *testing.T) {
	r := newRealTaps(t)
	a, before := r.start(t.TempDir(), hosttest.NewPinRoot(t)), r.has()
	for _, outcome := range []Outcome{Applied, Applied, Contested, Contested} {
		r.want(a, planned(), outcome)
		r.network.Pod(func() error {
			device, err := netlink.LinkByName(realTap)
			if err != nil {
				return err
			}
			queues, err := netlink.QdiscList(device)
			for _, q := range queues {
				if q.Attrs().Parent == netlink.HANDLE_ROOT && q.Attrs().Handle != 0 {
					err = errors.Join(err, netlink.QdiscDel(q))
				}
			}
			return err
		})
	}
	if after := r.has(); after != before || a.actuator.Pods() != 0 {
		t.Errorf("the tap had\n%s\nand has\n%s, %d VMs", before, after, a.actuator.Pods())
	}
}
