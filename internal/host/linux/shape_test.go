package linux

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/model"
)

// queues are all queueing disciplines of the pod, as text.
func queues(t *testing.T, n *hosttest.Network) []string {
	t.Helper()
	var list []string
	n.Pod(func() error {
		qdiscs, err := netlink.QdiscList(nil)
		for _, qdisc := range qdiscs {
			list = append(list, qdisc.Type()+" "+qdisc.Attrs().String())
		}
		return err
	})
	return list
}

func wantUplink(t *testing.T, h *Host, n *hosttest.Network, want host.Uplink) {
	t.Helper()
	want.Name = n.Uplink
	got, err := h.Uplinks(n.VM.ID())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]host.Uplink{want}, got); diff != "" {
		t.Errorf("uplinks (-want +got):\n%s", diff)
	}
}

func turns() model.Shaping {
	return model.Shaping{Turn: &model.Turn{Period: 10 * time.Second, Length: 5 * time.Second, Trickle: leastTrickle}}
}

func TestRealShapeAndUnshape(t *testing.T) {
	for name, binding := range map[string]hosttest.Binding{"masquerade": hosttest.Masquerade, "bridge": hosttest.Bridge} {
		t.Run(name, func(t *testing.T) {
			h := realHost(t)
			n := hosttest.NewOutside(t).NewVM("shop", "web", binding)
			id := n.VM.ID()
			before := queues(t, n)
			kernels := host.Uplink{Queue: "noqueue 0:"}
			wantUplink(t, h, n, kernels)
			both := turns()
			both.Ceiling = 12_345_672
			for _, step := range []struct {
				shaping model.Shaping
				want    host.Uplink
			}{
				{model.Shaping{Ceiling: 256_000}, host.Uplink{Ceiling: 256_000}},
				{model.Shaping{Ceiling: 100e9}, host.Uplink{Ceiling: 100e9}},
				// 64 Gi, a multiple of 4 GiB/s as is its half.
				{model.Shaping{Ceiling: 1 << 36}, host.Uplink{Ceiling: 1<<36 - 8}},
				{turns(), host.Uplink{Turns: true}},
				{both, host.Uplink{Ceiling: 12_345_672, Turns: true}},
				{model.Shaping{Ceiling: 1e9}, host.Uplink{Ceiling: 1e9}},
			} {
				for range 2 { // done again it changes nothing
					if err := h.Shape(id, n.Uplink, step.shaping); err != nil {
						t.Fatal(err)
					}
					step.want.Owner, step.want.Queue = host.QueueOurs, "htb 4a56:"
					wantUplink(t, h, n, step.want)
				}
			}
			for range 2 {
				if err := h.Unshape(id, n.Uplink); err != nil {
					t.Fatal(err)
				}
				wantUplink(t, h, n, kernels)
			}
			if diff := cmp.Diff(before, queues(t, n)); diff != "" {
				t.Errorf("not as it was (-before +after):\n%s", diff)
			}
			if err := h.SetGate(id, n.Uplink, leastTrickle); err != nil {
				t.Errorf("gate of a device that is not shaped: %v", err)
			}
		})
	}
}

func TestRealPodOfManyDevicesIsLeftAlone(t *testing.T) {
	h := realHost(t)
	n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Masquerade)
	n.Pod(func() error {
		for i := range maxUplinks / 2 {
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.Flags = fmt.Sprintf("a%d", i), net.FlagUp
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: fmt.Sprintf("b%d", i)}); err != nil {
				return err
			}
			peer, err := netlink.LinkByName(fmt.Sprintf("b%d", i))
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(peer); err != nil {
				return err
			}
		}
		return nil
	})
	if uplinks, err := h.Uplinks(n.VM.ID()); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("%d uplinks, %v", len(uplinks), err)
	}
}

func TestRealForeignQueueIsLeftAlone(t *testing.T) {
	h := realHost(t)
	n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Masquerade)
	n.Pod(func() error {
		link, err := netlink.LinkByName(n.Uplink)
		if err != nil {
			return err
		}
		return netlink.QdiscAdd(netlink.NewHtb(netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
		}))
	})
	before := queues(t, n)
	wantUplink(t, h, n, host.Uplink{Owner: host.QueueForeign, Queue: "htb 1:"})
	if err := h.Shape(n.VM.ID(), n.Uplink, turns()); !errors.Is(err, host.ErrForeign) {
		t.Errorf("shaping: %v", err)
	}
	if err := errors.Join(h.SetGate(n.VM.ID(), n.Uplink, leastTrickle), h.SetGate(n.VM.ID(), n.Uplink, 0)); err != nil {
		t.Errorf("its gate: %v", err)
	}
	if err := h.Unshape(n.VM.ID(), n.Uplink); err != nil {
		t.Errorf("unshaping: %v", err)
	}
	if diff := cmp.Diff(before, queues(t, n)); diff != "" {
		t.Errorf("not as it was (-before +after):\n%s", diff)
	}
}

func TestRealSuccessorTakesOver(t *testing.T) {
	n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Masquerade)
	first, err := New(Options{ProcRoot: "/proc", SysRoot: "/sys", WithoutFq: true})
	if err != nil {
		t.Fatal(err)
	}
	before := queues(t, n)
	if err := errors.Join(first.Shape(n.VM.ID(), n.Uplink, turns()), first.Close()); err != nil {
		t.Fatal(err)
	}
	next := realHost(t)
	ours := host.Uplink{Owner: host.QueueOurs, Queue: "htb 4a56:"}
	wantUplink(t, next, n, ours) // sorted by a program that nobody keeps alive
	if err := next.Shape(n.VM.ID(), n.Uplink, turns()); err != nil {
		t.Fatal(err)
	}
	ours.Turns = true
	wantUplink(t, next, n, ours)
	if err := next.Unshape(n.VM.ID(), n.Uplink); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, queues(t, n)); diff != "" {
		t.Errorf("not as it was (-before +after):\n%s", diff)
	}
}

func TestRealNodesOwnNetworkIsNeverShaped(t *testing.T) {
	h := realHost(t)
	vm := hosttest.StartVM(t, "shop", "web") // without a network of its own
	if uplinks, err := h.Uplinks(vm.ID()); !errors.Is(err, host.ErrUnsupported) || uplinks != nil {
		t.Errorf("uplinks %v, %v", uplinks, err)
	}
	if err := h.Shape(vm.ID(), "lo", turns()); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("shaping: %v", err)
	}
}

func TestRealUplinkOfAProcessThatEnded(t *testing.T) {
	h := realHost(t)
	n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Masquerade)
	if err := h.Shape(n.VM.ID(), "eth7", turns()); !errors.Is(err, host.ErrGone) {
		t.Errorf("a device that is not there: %v", err)
	}
	n.VM.End()
	_, err := h.Uplinks(n.VM.ID())
	for what, err := range map[string]error{
		"uplinks": err, "shaping": h.Shape(n.VM.ID(), n.Uplink, turns()),
		"unshaping": h.Unshape(n.VM.ID(), n.Uplink), "gate": h.SetGate(n.VM.ID(), n.Uplink, 0),
	} {
		if !errors.Is(err, host.ErrGone) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestMonotonicIsTheKernels(t *testing.T) {
	before, err := (&Host{}).Monotonic()
	if err != nil {
		t.Fatal(err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	if later := time.Duration(now.Nano()); later < before || later > before+time.Minute {
		t.Errorf("%v, then %v", before, later)
	}
}

// Opening a gate makes the kernel look at the queue, by a packet that goes
// nowhere.
func TestRealOpenedGateIsKicked(t *testing.T) {
	h := realHost(t)
	outside := hosttest.NewOutside(t)
	n := outside.NewVM("shop", "web", hosttest.Bridge)
	listener := -1
	outside.Do(func() (err error) {
		listener, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(networkOrder(kickProto)))
		return err
	})
	defer unix.Close(listener)
	for _, test := range []struct {
		shaping model.Shaping
		dropped uint32
	}{
		{model.Shaping{Ceiling: 1e9}, 0},
		{turns(), 3},
		{model.Shaping{Ceiling: 1e9}, 1}, // which opens the gate before it goes
	} {
		before := dropped(t, n)
		if err := h.Shape(n.VM.ID(), n.Uplink, test.shaping); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := h.SetGate(n.VM.ID(), n.Uplink, 0); err != nil {
				t.Fatal(err)
			}
		}
		if got := dropped(t, n) - before; got != test.dropped {
			t.Errorf("%+v: %d packets were dropped by the classifier, want %d", test.shaping, got, test.dropped)
		}
	}
	if size, _, err := unix.Recvfrom(listener, make([]byte, 2000), 0); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a packet of %d bytes went out: %v", size, err)
	}
}

// dropped counts what the agent's queueing discipline did not take.
func dropped(t *testing.T, n *hosttest.Network) (count uint32) {
	t.Helper()
	n.Pod(func() error {
		qdiscs, err := netlink.QdiscList(nil)
		for _, qdisc := range qdiscs {
			if attrs := qdisc.Attrs(); attrs.Handle == netlink.MakeHandle(rootMajor, 0) && attrs.Statistics != nil {
				count = attrs.Statistics.Queue.Drops
			}
		}
		return err
	})
	return count
}
