package linux

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// newTap makes a tap in the VM's pod. It ends with the test, or before.
func newTap(t *testing.T, n *hosttest.Network, name string) (end func()) {
	t.Helper()
	fd := -1
	n.Pod(func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open /dev/net/tun: %w", err)
		}
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return err
		}
		// Nothing is sent but by the test.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0); err != nil {
			return err
		}
		return setLinkUp(name)
	})
	end = func() {
		if fd >= 0 {
			unix.Close(fd)
			fd = -1
		}
	}
	t.Cleanup(end)
	return end
}

func setLinkUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

func buffering(window time.Duration) model.Buffering {
	return model.Buffering{Window: window, FloodWindow: model.FloodWindow, OnPackets: 1000}
}

// tapsOf are the taps without the numbers of their devices.
func tapsOf(t *testing.T, h *Host, id host.TaskID) []host.Device {
	t.Helper()
	taps, err := h.Taps(id)
	if err != nil {
		t.Fatal(err)
	}
	for i := range taps {
		if taps[i].Index <= 0 {
			t.Errorf("number of %s: %d", taps[i].Name, taps[i].Index)
		}
		taps[i].Index = 0
	}
	return taps
}

// kernelsOwn is the queueing discipline that this kernel gives a device by itself.
func kernelsOwn(t *testing.T, n *hosttest.Network, name string) (queue string) {
	t.Helper()
	n.Pod(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		qdiscs, err := netlink.QdiscList(link)
		if err == nil {
			queue = fmt.Sprintf("%s %x:", qdiscs[0].Type(), qdiscs[0].Attrs().Handle>>16)
		}
		return err
	})
	return queue
}

// The device named tap0 that hosttest makes is no tap: it has the name only.
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

// withoutIndex leaves out the devices' numbers, which the kernel chooses.
func withoutIndex(devices []host.Device) []host.Device {
	for i := range devices {
		devices[i].Index = 0
	}
	return devices
}

func TestRealUplinks(t *testing.T) {
	h := realHost(t)
	for name, binding := range map[string]hosttest.Binding{"masquerade": hosttest.Masquerade, "bridge": hosttest.Bridge} {
		n := hosttest.NewOutside(t).NewVM("shop", "web", binding)
		got, err := h.Uplinks(n.VM.ID())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]host.Device{{Name: n.Uplink, Queue: "noqueue 0:"}}, withoutIndex(got)); diff != "" {
			t.Errorf("%s: uplinks (-want +got):\n%s", name, diff)
		}
		n.VM.End()
		if _, err := h.Uplinks(n.VM.ID()); !errors.Is(err, host.ErrGone) {
			t.Errorf("uplinks of a VM that has ended: %v", err)
		}
	}
}

func TestRealTaps(t *testing.T) {
	h := realHost(t)
	n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Masquerade)
	if taps := tapsOf(t, h, n.VM.ID()); len(taps) != 0 {
		t.Errorf("a VM without a tap has %v", taps)
	}
	end := newTap(t, n, "tap2")
	newTap(t, n, "tap1")
	newTap(t, n, "tap3")
	own := kernelsOwn(t, n, "tap1")
	n.Pod(func() error {
		link, err := netlink.LinkByName("tap3")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(link)
	})
	want := []host.Device{{Name: "tap1", Queue: own}, {Name: "tap2", Queue: own}}
	if diff := cmp.Diff(want, tapsOf(t, h, n.VM.ID())); diff != "" {
		t.Errorf("taps (-want +got):\n%s", diff)
	}
	end()
	if diff := cmp.Diff(want[:1], tapsOf(t, h, n.VM.ID())); diff != "" {
		t.Errorf("taps (-want +got):\n%s", diff)
	}
	if samples, err := h.Buffered(n.VM.ID()); err != nil || len(samples) != 0 {
		t.Errorf("counters of taps that are not buffered: %v, %v", samples, err)
	}
	n.VM.End()
	if _, err := h.Taps(n.VM.ID()); !errors.Is(err, host.ErrGone) {
		t.Errorf("taps of a VM that has ended: %v", err)
	}
	if err := h.Unbuffer(n.VM.ID(), "tap1"); !errors.Is(err, host.ErrGone) {
		t.Errorf("unbuffer a VM that has ended: %v", err)
	}
}

func TestRealTapWithAForeignQueue(t *testing.T) {
	h := realHost(t)
	n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Masquerade)
	newTap(t, n, "tap1")
	n.Pod(func() error {
		link, err := netlink.LinkByName("tap1")
		if err != nil {
			return err
		}
		return netlink.QdiscAdd(netlink.NewHtb(netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
		}))
	})
	before := queues(t, n)
	if diff := cmp.Diff([]host.Device{{Name: "tap1", Owner: host.QueueForeign, Queue: "htb 1:"}}, tapsOf(t, h, n.VM.ID())); diff != "" {
		t.Errorf("taps (-want +got):\n%s", diff)
	}
	if err := h.Unbuffer(n.VM.ID(), "tap1"); err != nil {
		t.Errorf("unbuffer: %v", err)
	}
	if diff := cmp.Diff(before, queues(t, n)); diff != "" {
		t.Errorf("not as it was (-before +after):\n%s", diff)
	}
}

// A node whose kernel lacks fq neither shapes nor holds packets, and says why.
func TestRealNodeWithoutFq(t *testing.T) {
	h := hostOf(t, Options{ProcRoot: "/proc", SysRoot: "/sys", Datapath: datapath.Options{WithoutFq: true}})
	n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Masquerade)
	newTap(t, n, "tap1")
	before := queues(t, n)
	if err := h.Buffer(n.VM.ID(), "tap1", buffering(time.Millisecond)); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("buffer without fq: %v", err)
	}
	if err := h.Shape(n.VM.ID(), n.Uplink, model.Shaping{Ceiling: 1e6}); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("shape without fq: %v", err)
	}
	if err := errors.Join(h.ExtendLease(time.Second), h.Unbuffer(n.VM.ID(), "tap1")); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, queues(t, n)); diff != "" {
		t.Errorf("not as it was (-before +after):\n%s", diff)
	}
	facts, err := h.Facts()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{CapabilityShaping, CapabilityBuffering} {
		at := slices.IndexFunc(facts.Capabilities, func(c host.Capability) bool { return c.Name == name })
		if at < 0 || facts.Capabilities[at].Available || !strings.Contains(facts.Capabilities[at].Message, "sch_fq") {
			t.Errorf("capability %s is not missing for sch_fq: %v", name, facts.Capabilities)
		}
	}
}

func TestRealNodesOwnNetworkIsNeverBuffered(t *testing.T) {
	h := realHost(t)
	vm := hosttest.StartVM(t, "shop", "web")
	if taps, err := h.Taps(vm.ID()); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("taps %v, %v", taps, err)
	}
	if err := h.Unbuffer(vm.ID(), "lo"); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("unbuffer: %v", err)
	}
}

func TestTapID(t *testing.T) {
	process := host.TaskID{PID: 7, TID: 7, Start: 42}
	for tap, want := range map[string]string{
		"tap0": "42-7-tap0", "tap37a8eec1ce1": "42-7-tap37a8eec1ce1", "a-b_c": "42-7-a-b_c",
		"a.b": "42-7-a=2eb", "a=b": "42-7-a=3db", "../lease": "42-7-=2e=2e=2flease", "ü": "42-7-=c3=bc", "": "42-7-",
	} {
		if got := deviceID(process, tap); got != want {
			t.Errorf("ID of %q is %q, want %q", tap, got, want)
		}
	}
	for _, id := range []string{"", "lease", "42-7", "-7-a", "42--a", "42-0-a", "a-7-a", "42-7x-a", "99999999999999999999-7-a"} {
		if process, is := processOfDevice(id); is {
			t.Errorf("%q is of process %v", id, process)
		}
	}
}
