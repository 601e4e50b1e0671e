package datapath

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host/hosttest"
)

// newPair makes a pair of veth devices that are up. What is sent through the first is
// received by the second.
func (w *world) newPair(name, peer string) *tap {
	w.t.Helper()
	p := &tap{w: w, name: name, sender: -1}
	w.t.Cleanup(p.close)
	w.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		pair := &netlink.Veth{LinkAttrs: attrs, PeerName: peer}
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
		other, err := netlink.LinkByName(peer)
		if err := errors.Join(err, netlink.LinkSetUp(pair), netlink.LinkSetUp(other)); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		p.queues = []int{fd}
		const ipv4 = 0x0008 // in network byte order
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: other.Attrs().Index, Protocol: ipv4}); err != nil {
			return err
		}
		p.sender, err = openSender(pair.Index)
		return err
	})
	hosttest.Eventually(w.t, "both devices to be up", func() bool {
		return strings.Count(strings.Join(w.dump(), "\n"), "1500 ") == strings.Count(strings.Join(w.dump(), "\n"), " up")
	})
	return p
}

// A device need not be a tap: the guest's tools use it on cards.
func TestPairOfDevices(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		w := newWorld(t)
		p := w.newPair("one", "two")
		before := w.dump()
		d := newDatapath(t, opts)
		w.apply(d, "one", eager(time.Millisecond))
		if !w.attached(d, "one") {
			t.Error("not attached")
		}
		p.send(1, 1)
		if n := counted(t, d); n != 1 {
			t.Errorf("counted %d packets, want 1", n)
		}
		if got := p.receive(hosttest.Patience); len(got) != 1 {
			t.Errorf("received %v", got)
		}
		w.remove(d, "one")
		wantAsBefore(t, w, before)
	})
}

// A tap that is renamed has another ID: what it has is known under that as under the first.
func TestDeviceIsRenamed(t *testing.T) {
	const renamedID = "42-7-tap1"
	ways(t, func(t *testing.T, opts Options) {
		w := newWorld(t)
		p := w.newTap("tap0", 1)
		before := w.dump()
		d := newDatapath(t, opts)
		w.apply(d, "tap0", eager(time.Millisecond))
		rename := func(from, to string) {
			w.on(from, func(handle *netlink.Handle, device netlink.Link) error {
				return errors.Join(handle.LinkSetDown(device), handle.LinkSetName(device, to), handle.LinkSetUp(device))
			})
		}
		rename("tap0", "tap1")
		if err := d.Forget(testID); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			w.on("tap1", func(handle *netlink.Handle, device netlink.Link) error {
				return d.Apply(handle, device, renamedID, eager(time.Millisecond))
			})
			if names := programNames(w); len(names) != 2 {
				t.Errorf("at work are %v, want two programs", names)
			}
		}
		p.send(1, 1)
		if stats, known, err := d.Stats(renamedID); err != nil || !known || stats.Passed != 1 {
			t.Errorf("counters %+v, %v, %v", stats, known, err)
		}
		w.on("tap1", func(handle *netlink.Handle, device netlink.Link) error { return d.Remove(handle, device, renamedID) })
		rename("tap1", "tap0")
		wantAsBefore(t, w, before)
	})
}

// moveTo moves a device to another namespace, where it is up again.
func (w *world) moveTo(other *world, name string) {
	w.t.Helper()
	to := -1
	other.Do(func() (err error) {
		to, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	defer unix.Close(to)
	w.on(name, func(handle *netlink.Handle, device netlink.Link) error { return handle.LinkSetNsFd(device, to) })
	other.on(name, func(handle *netlink.Handle, device netlink.Link) error { return handle.LinkSetUp(device) })
}

// A device in another namespace is another device. What it took along is removed there by
// whoever looks after it.
func TestDeviceIsMoved(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		w, other := newWorld(t), newWorld(t)
		p := w.newTap("tap0", 1)
		before := w.dump()
		d := newDatapath(t, opts)
		w.apply(d, "tap0", eager(time.Millisecond))
		p.send(1, 1)
		w.moveTo(other, "tap0")
		if err := d.Forget(testID); err != nil {
			t.Fatal(err)
		}
		if names := programNames(other); len(names) > 0 {
			t.Errorf("the device has taken along %v", names)
		}
		other.apply(d, "tap0", eager(time.Millisecond))
		if !other.attached(d, "tap0") {
			t.Error("not attached where it is now")
		}
		other.remove(d, "tap0")
		wantAsBefore(t, other, before)
	})
}

// addIngress gives a device an ingress queueing discipline.
func addIngress(handle *netlink.Handle, device netlink.Link) error {
	return handle.QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: device.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
	}})
}

// Programs by tcx have a place beside an ingress, and those by clsact have none.
func TestIngressOfOthers(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		w := newWorld(t)
		p := w.newTap("tap0", 1)
		f := newForeign(t)
		w.on("tap0", func(handle *netlink.Handle, device netlink.Link) error {
			return errors.Join(addIngress(handle, device), f.addFilter(handle, device, netlink.MakeHandle(0xffff, 0), 1))
		})
		before := w.dump()
		d := newDatapath(t, opts)
		tcx := false
		w.on("tap0", func(handle *netlink.Handle, device netlink.Link) (err error) {
			tcx, err = d.hasTCX(device.Attrs().Index)
			if err == nil && !tcx {
				if err := d.Apply(handle, device, testID, eager(time.Millisecond)); !errors.Is(err, ErrForeign) {
					t.Errorf("clsact beside an ingress: %v", err)
				}
			}
			return err
		})
		if tcx {
			w.apply(d, "tap0", eager(time.Millisecond))
			if !w.attached(d, "tap0") {
				t.Error("not attached beside an ingress")
			}
			p.send(1, 1)
			p.fromVM()
			hosttest.Eventually(t, "the filter of others to run", func() bool { return f.seen() == 1 })
			if n := counted(t, d); n != 1 {
				t.Errorf("counted %d packets, want 1", n)
			}
			w.remove(d, "tap0")
		}
		wantAsBefore(t, w, before)
	})
}

// withoutCapabilities runs as a process that may do nothing beyond what anybody may. The
// thread is the caller's own.
func withoutCapabilities(do func() error) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	if err := unix.Capget(&header, &all[0]); err != nil {
		return err
	}
	none := all
	none[0].Effective, none[1].Effective = 0, 0
	if err := unix.Capset(&header, &none[0]); err != nil {
		return err
	}
	return errors.Join(do(), unix.Capset(&header, &all[0]))
}

func TestProbeNamesWhatIsMissing(t *testing.T) {
	for want, test := range map[string]struct {
		opts    Options
		prepare func(*netlink.Handle, netlink.Link) error
		as      func(func() error) error
	}{
		"the kernel has no fq (module sch_fq)": {opts: Options{WithoutFq: true}},
		"the kernel has neither tcx (Linux 6.6) nor clsact": {
			opts: Options{WithoutTCX: true, withoutQueue: true}, prepare: addIngress,
		},
		"the kernel refuses the eBPF programs": {opts: Options{withoutQueue: true}, as: withoutCapabilities},
	} {
		t.Run(want, func(t *testing.T) {
			w := newWorld(t)
			if test.prepare != nil {
				w.on("lo", test.prepare)
			}
			before := w.dump()
			w.on("lo", func(handle *netlink.Handle, device netlink.Link) error {
				as := test.as
				if as == nil {
					as = func(do func() error) error { return do() }
				}
				return as(func() error {
					err := Probe(handle, device, test.opts)
					if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), want) {
						t.Errorf("got %v, want %s", err, want)
					}
					return nil
				})
			})
			wantAsBefore(t, w, before)
		})
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Devices come and go by the hundred in the life of an agent.
func TestNoFileStaysOpen(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		w := newWorld(t)
		d := newDatapath(t, opts)
		once := func() {
			p := w.newTap("tap0", 1)
			w.apply(d, "tap0", eager(time.Millisecond))
			w.remove(d, "tap0")
			w.apply(d, "tap0", eager(time.Millisecond))
			p.close()
			if err := d.Forget(testID); err != nil {
				t.Error(err)
			}
		}
		once() // what is kept for all devices is open now
		before := openFiles(t)
		for range 3 {
			once()
		}
		if after := openFiles(t); after != before {
			t.Errorf("%d files are open, and were %d before three devices came and went", after, before)
		}
	})
}
