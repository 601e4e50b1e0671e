//go:build fq

// These run on a kernel that has fq: see test/guest/fq.

package linux

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// bufferingOptions keep programs in a BPF file system of the test's own.
func bufferingOptions(t *testing.T) Options {
	t.Helper()
	return Options{ProcRoot: "/proc", SysRoot: "/sys", Datapath: datapath.Options{PinRoot: hosttest.NewPinRoot(t)}}
}

// sendTo sends packets to the VM through a tap.
func sendTo(t *testing.T, n *hosttest.Network, tap string, packets int) {
	t.Helper()
	n.Pod(func() error {
		fd, err := hosttest.OpenSender(tap)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		frame := append(make([]byte, 12), 0x12, 0x34)
		for range packets {
			if _, err := unix.Write(fd, append(frame, make([]byte, 50)...)); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return err
			}
		}
		return nil
	})
}

func TestBufferedTap(t *testing.T) {
	opts := bufferingOptions(t)
	first := hostOf(t, opts)
	n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Bridge)
	id := n.VM.ID()
	newTap(t, n, "tap1")
	newTap(t, n, "tap2")
	before := queues(t, n)
	own := kernelsOwn(t, n, "tap1")
	buffered := host.Device{Name: "tap1", Owner: host.QueueOurs, Queue: "fq 4a5b:", Complete: true}
	want := []host.Device{buffered, {Name: "tap2", Queue: own}}
	for range 2 {
		if err := errors.Join(first.Buffer(id, "tap1", buffering(time.Millisecond)), first.ExtendLease(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, tapsOf(t, first, id)); diff != "" {
			t.Errorf("taps (-want +got):\n%s", diff)
		}
	}
	sendTo(t, n, "tap1", 3)
	samples, err := first.Buffered(id)
	if err != nil || len(samples) != 1 || samples[0].Name != "tap1" || samples[0].Passed != 3 || samples[0].Window != time.Millisecond {
		t.Errorf("counters %+v, %v", samples, err)
	}
	// Another agent takes over what this one leaves.
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	next := hostOf(t, opts)
	if diff := cmp.Diff(want, tapsOf(t, next, id)); diff != "" {
		t.Errorf("taps of the next agent (-want +got):\n%s", diff)
	}
	sendTo(t, n, "tap1", 1)
	if samples, err = next.Buffered(id); err != nil || len(samples) != 1 || samples[0].Passed != 4 {
		t.Errorf("counters of the next agent %+v, %v", samples, err)
	}
	for range 2 {
		if err := next.Unbuffer(id, "tap1"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, queues(t, n)); diff != "" {
			t.Errorf("not as it was (-before +after):\n%s", diff)
		}
	}
	if err := next.Buffer(id, "eth0-nic", buffering(time.Millisecond)); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("a device that is no tap: %v", err)
	}
}

// Nothing is kept of a VM that has ended, whether an agent saw it or not.
func TestBufferedVMEnds(t *testing.T) {
	opts := bufferingOptions(t)
	h := hostOf(t, opts)
	outside := hosttest.NewOutside(t)
	one, two := outside.NewVM("shop", "one", hosttest.Bridge), outside.NewVM("shop", "two", hosttest.Bridge)
	for _, n := range []*hosttest.Network{one, two} {
		newTap(t, n, "tap1")
		mustProcesses(t, h)
		if err := h.Buffer(n.VM.ID(), "tap1", buffering(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(n *hosttest.Network) bool {
		_, err := os.Stat(opts.Datapath.PinRoot + "/" + deviceID(n.VM.ID(), "tap1"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		return err == nil
	}
	one.VM.End()
	mustProcesses(t, h)
	if kept(one) || !kept(two) {
		t.Errorf("kept of the VM that ended: %v, of the other: %v", kept(one), kept(two))
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if !kept(two) {
		t.Error("nothing is kept of a VM that runs")
	}
	two.VM.End()
	next := hostOf(t, opts)
	if err := next.ExtendLease(time.Second); err != nil {
		t.Fatal(err)
	}
	if kept(two) {
		t.Error("kept of a VM that ended while there was no agent")
	}
}

// Drops of the queue are reported when it was read.
func TestBufferedTapsDrops(t *testing.T) {
	h := hostOf(t, bufferingOptions(t))
	n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Bridge)
	newTap(t, n, "tap1")
	if err := h.Buffer(n.VM.ID(), "tap1", buffering(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	reported := 0
	for range 2 * queueRounds {
		sendTo(t, n, "tap1", 1)
		nextRound(t, h)
		if _, err := h.Sample(n.VM.ID()); err != nil {
			t.Fatal(err)
		}
		samples, err := h.Buffered(n.VM.ID())
		if err != nil || len(samples) != 1 {
			t.Fatalf("%v, %v", samples, err)
		}
		if drops := samples[0].Drops; drops != nil {
			reported++
			if *drops != 0 {
				t.Errorf("%d drops", *drops)
			}
		}
	}
	if reported < 1 || reported > 2 {
		t.Errorf("drops were reported %d times in %d rounds", reported, 2*queueRounds)
	}
}

func TestFqShapeAndUnshape(t *testing.T) {
	for name, binding := range map[string]hosttest.Binding{"masquerade": hosttest.Masquerade, "bridge": hosttest.Bridge} {
		t.Run(name, func(t *testing.T) {
			h := hostOf(t, bufferingOptions(t))
			n := hosttest.NewOutside(t).NewVM("shop", "web", binding)
			id, before := n.VM.ID(), queues(t, n)
			turn := &model.Turn{Period: 10 * time.Second, Length: 5 * time.Second, Trickle: model.LeastRate}
			want := []host.Device{{Name: n.Uplink, Owner: host.QueueOurs, Queue: "fq 4a59:", Complete: true}}
			var shaped []string
			for _, s := range []model.Shaping{{Ceiling: 256_000}, {Ceiling: 1 << 36}, {Turn: turn}, {Ceiling: 1e6, Turn: turn}, {Ceiling: 1e9}} {
				if err := h.Shape(id, n.Uplink, s); err != nil {
					t.Fatal(err)
				}
				got, err := h.Uplinks(id)
				if diff := cmp.Diff(want, withoutIndex(got)); err != nil || diff != "" {
					t.Errorf("%+v: %v, uplinks (-want +got):\n%s", s, err, diff)
				}
				if is := queues(t, n); shaped != nil && !cmp.Equal(shaped, is) {
					t.Errorf("%+v changed the queues from %v to %v", s, shaped, is)
				} else {
					shaped = is
				}
			}
			for range 2 {
				if err := h.Unshape(id, n.Uplink); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(before, queues(t, n)); diff != "" {
					t.Errorf("not as it was (-before +after):\n%s", diff)
				}
			}
		})
	}
}
