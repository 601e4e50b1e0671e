//go:build fq

// These run on a kernel that has fq: see test/guest/buffering.

package linux

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
)

// bufferingOptions keep programs in a BPF file system of the test's own.
func bufferingOptions(t *testing.T) Options {
	t.Helper()
	return Options{ProcRoot: "/proc", SysRoot: "/sys", WithoutFq: true, Buffering: datapath.Options{PinRoot: hosttest.NewPinRoot(t)}}
}

// sendTo sends packets to the VM through a tap.
func sendTo(t *testing.T, n *hosttest.Network, tap string, packets int) {
	t.Helper()
	n.Pod(func() error {
		link, err := netlink.LinkByName(tap)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		frame := append(make([]byte, 12), 0x12, 0x34)
		to := &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index}
		for range packets {
			if err := unix.Sendto(fd, append(frame, make([]byte, 50)...), 0, to); err != nil && !errors.Is(err, unix.ENOBUFS) {
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
	buffered := host.Tap{Name: "tap1", Owner: host.QueueOurs, Queue: "fq 4a5b:", Buffered: true}
	want := []host.Tap{buffered, {Name: "tap2", Queue: own}}
	for range 2 {
		if err := errors.Join(first.Buffer(id, "tap1", buffering(time.Millisecond)), first.KeepBuffering(time.Minute)); err != nil {
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
		_, err := os.Stat(opts.Buffering.PinRoot + "/" + tapID(n.VM.ID(), "tap1"))
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
	if err := next.KeepBuffering(time.Second); err != nil {
		t.Fatal(err)
	}
	if kept(two) {
		t.Error("kept of a VM that ended while there was no agent")
	}
}

// Drops of the queue are told when it was looked at.
func TestBufferedTapsDrops(t *testing.T) {
	h := hostOf(t, bufferingOptions(t))
	n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Bridge)
	newTap(t, n, "tap1")
	if err := h.Buffer(n.VM.ID(), "tap1", buffering(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	told := 0
	for range 2 * lookRounds {
		sendTo(t, n, "tap1", 1)
		mustProcesses(t, h)
		if _, err := h.Sample(n.VM.ID()); err != nil {
			t.Fatal(err)
		}
		samples, err := h.Buffered(n.VM.ID())
		if err != nil || len(samples) != 1 {
			t.Fatalf("%v, %v", samples, err)
		}
		if drops := samples[0].Drops; drops != nil {
			told++
			if *drops != 0 {
				t.Errorf("%d drops", *drops)
			}
		}
	}
	if told < 1 || told > 2 {
		t.Errorf("drops were told %d times in %d rounds", told, 2*lookRounds)
	}
}
