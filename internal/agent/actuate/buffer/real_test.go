package buffer

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/internal/model"
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
	actuator *Actuator
}

// startAgent takes over what is on disk and pinned.
func startAgent(dir, pins string) (*realAgent, error) {
	h, err := linux.New(linux.Options{ProcRoot: "/proc", SysRoot: "/sys", Buffering: datapath.Options{PinRoot: pins}})
	if err != nil {
		return nil, err
	}
	a := &realAgent{host: h}
	if a.journal, err = journal.Open(dir, "boot"); err != nil {
		return nil, err
	}
	if _, err := a.journal.Load(); err != nil {
		return nil, err
	}
	a.keeper = NewKeeper(h, clock.RealClock{}, 0)
	a.actuator = New(h, a.journal, a.journal.Taps(), a.keeper)
	a.actuator.Look = 0
	return a, nil
}

func (r *realTaps) start(dir, pins string) *realAgent {
	r.Helper()
	a, err := startAgent(dir, pins)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := a.journal.Close(); err != nil {
			r.Error(err)
		}
		if err := a.host.Close(); err != nil {
			r.Error(err)
		}
	})
	return a
}

// apply follows a plan that has packets of one VM held, or none.
func (a *realAgent) apply(vm discover.VM, want *model.Buffering) (Result, error) {
	plan := map[string]model.Buffering{}
	if want != nil {
		plan[vm.PodUID] = *want
	}
	results, err := a.actuator.Apply([]discover.VM{vm}, plan)
	a.keeper.Beat()
	if err != nil {
		return Result{}, err
	}
	return results[0], nil
}

func (r *realTaps) want(a *realAgent, want *model.Buffering, outcome Outcome) Result {
	r.Helper()
	got, err := a.apply(r.vm(), want)
	if err != nil || got.Outcome != outcome {
		r.Fatalf("%s: %s, %v; want %s", got.Outcome, got.Message, err, outcome)
	}
	return got
}
