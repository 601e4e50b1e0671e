package device

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

const (
	realTap     = "tap9"
	ringPackets = 5000
)

// realTaps is a VM's process in a pod with a real tap, of which the test is the VM.
type realTaps struct {
	*testing.T
	network *hosttest.Network
	// card is what the VM reads and writes.
	card *os.File
}

func newRealTaps(t *testing.T) *realTaps {
	r := &realTaps{T: t, network: hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Masquerade)}
	r.network.Pod(func() error {
		// Nothing is sent but by the test.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); err != nil {
			return err
		}
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open /dev/net/tun: %w", err)
		}
		request, err := unix.NewIfreq(realTap)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return err
		}
		r.card = os.NewFile(uintptr(fd), realTap)
		device, err := netlink.LinkByName(realTap)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetTxQLen(device, ringPackets); err != nil {
			return err
		}
		return netlink.LinkSetUp(device)
	})
	t.Cleanup(func() { r.card.Close() })
	return r
}

func (r *realTaps) vm() discover.VM {
	return discover.VM{Process: r.network.VM.ID(), PodUID: "pod", Namespace: "shop", Name: "web"}
}

// has is what the tap has of queueing disciplines and filters, as text.
func (r *realTaps) has() string {
	r.Helper()
	var lines []string
	r.network.Pod(func() error {
		device, err := netlink.LinkByName(realTap)
		if err != nil {
			return err
		}
		queues, err := netlink.QdiscList(device)
		if err != nil {
			return err
		}
		for _, q := range queues {
			lines = append(lines, fmt.Sprintf("%s %x parent %x", q.Type(), q.Attrs().Handle, q.Attrs().Parent))
		}
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			filters, err := netlink.FilterList(device, parent)
			if err != nil {
				return err
			}
			lines = append(lines, fmt.Sprintf("%d filters", len(filters)))
		}
		return nil
	})
	return strings.Join(lines, "\n")
}

// realAgent is the part of an agent that buffers, on the machine's kernel.
type realAgent struct {
	host     *linux.Host
	journal  *journal.Journal
	keeper   *Keeper
	actuator *Actuator[model.Buffering]
}

// start is the start of an agent, which takes over what is on disk and pinned.
func (r *realTaps) start(dir, pins string) *realAgent {
	r.Helper()
	h, err := linux.New(linux.Options{ProcRoot: "/proc", SysRoot: "/sys", Datapath: datapath.Options{PinRoot: pins}})
	if err != nil {
		r.Fatal(err)
	}
	a := &realAgent{host: h}
	if a.journal, err = journal.Open(dir, "boot"); err != nil {
		r.Fatal(err)
	}
	was, err := a.journal.Load()
	if err != nil {
		r.Fatal(err)
	}
	a.keeper = NewKeeper(h, clock.RealClock{}, 0)
	a.actuator = NewBuffering(h, a.keeper, a.journal.SaveTaps, was.Taps)
	r.Cleanup(func() { a.kill(r.T) })
	return a
}

// kill ends the agent without its reverting anything.
func (a *realAgent) kill(t *testing.T) {
	t.Helper()
	if a.host == nil {
		return
	}
	if err := errors.Join(a.journal.Close(), a.host.Close()); err != nil {
		t.Error(err)
	}
	a.host = nil
}

// want follows a plan that has packets of the VM held, or none.
func (r *realTaps) want(a *realAgent, want *model.Buffering, outcome actuate.Outcome) actuate.Result {
	r.Helper()
	results, err := a.actuator.Apply([]sample.VM{{VM: r.vm()}}, planOf(want))
	a.keeper.Beat()
	if err != nil {
		r.Fatal(err)
	}
	if got := results[0]; got.Outcome != outcome {
		r.Fatalf("%s: %s; want %s", got.Outcome, got.Message, outcome)
	}
	return results[0]
}
