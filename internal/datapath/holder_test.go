package datapath

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/model"
)

const testID = "42-7-tap0"

// every packet is held, from the second one of a second on.
func eager(window time.Duration) Config {
	return ConfigOf(model.Buffering{Window: window, FloodWindow: model.FloodWindow, OnPackets: 1})
}

func (w *world) apply(d *Datapath, name string, c Config) {
	w.t.Helper()
	w.on(name, func(handle *netlink.Handle, device netlink.Link) error { return d.Apply(handle, device, testID, c) })
}

func (w *world) remove(d *Datapath, name string) {
	w.t.Helper()
	w.on(name, func(handle *netlink.Handle, device netlink.Link) error { return d.Remove(handle, device, testID) })
}

func (w *world) look(d *Datapath, name string) (state State) {
	w.t.Helper()
	w.on(name, func(handle *netlink.Handle, device netlink.Link) (err error) {
		state, err = d.Look(handle, device, testID)
		return err
	})
	return state
}

// attached tells whether the programs are on the device.
func (w *world) attached(d *Datapath, name string) (is bool) {
	w.t.Helper()
	w.on(name, func(handle *netlink.Handle, device netlink.Link) error {
		at := place{handle, device, testID}
		has, err := d.find(at)
		if err != nil || has == nil {
			return err
		}
		is, err = d.isAttached(at, has)
		return err
	})
	return is
}

func counted(t testing.TB, d *Datapath) uint64 {
	t.Helper()
	stats, known, err := d.Stats(testID)
	if err != nil || !known {
		t.Fatalf("stats: %v, %v", known, err)
	}
	return stats.Passed + stats.Held
}

// ways to attach, with pins and without.
func ways(t *testing.T, test func(*testing.T, Options)) {
	for name, opts := range map[string]Options{
		"newest": {withoutQueue: true}, "clsact": {withoutQueue: true, WithoutTCX: true},
	} {
		for _, pinned := range []bool{false, true} {
			suffix := " unpinned"
			if pinned {
				suffix = " pinned"
			}
			t.Run(name+suffix, func(t *testing.T) {
				if pinned {
					opts.PinRoot = newPinRoot(t)
				}
				test(t, opts)
			})
		}
	}
}

func wantAsBefore(t *testing.T, w *world, before []string) {
	t.Helper()
	if diff := cmp.Diff(before, w.dump()); diff != "" {
		t.Errorf("not as it was (-before +after):\n%s", diff)
	}
}

func TestAttachAndRemove(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		w := newWorld(t)
		p := w.newTap("tap0", 1)
		d := newDatapath(t, opts)
		before := w.dump()
		if w.attached(d, "tap0") {
			t.Error("attached before anything was done")
		}
		for range 2 { // done again it changes nothing
			w.apply(d, "tap0", eager(time.Millisecond))
			if !w.attached(d, "tap0") {
				t.Fatal("not attached")
			}
		}
		if cmp.Equal(before, w.dump()) {
			t.Error("the dump does not show what was attached")
		}
		p.send(1, 1)
		if n := counted(t, d); n != 1 {
			t.Errorf("counted %d packets, want 1", n)
		}
		if got := p.receive(hosttest.Patience); len(got) != 1 {
			t.Errorf("received %v", got)
		}
		for range 2 {
			w.remove(d, "tap0")
			wantAsBefore(t, w, before)
		}
		if _, known, _ := d.Stats(testID); known {
			t.Error("its state is still known")
		}
		if ids, err := d.IDs(); err != nil || len(ids) != 0 {
			t.Errorf("kept are %v, %v", ids, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(opts.PinRoot); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the folder of the pins is left: %v", err)
		}
	})
}

func TestOthersProgramsStayAndRun(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		w := newWorld(t)
		p := w.newTap("tap0", 1)
		d := newDatapath(t, opts)
		var out, in []*foreign
		add := func(number uint32) {
			w.on("tap0", func(handle *netlink.Handle, device netlink.Link) error {
				one, two := newForeign(t), newForeign(t)
				out, in = append(out, one), append(in, two)
				err := errors.Join(
					one.byFilter(handle, device, netlink.HANDLE_MIN_EGRESS, number),
					two.byFilter(handle, device, netlink.HANDLE_MIN_INGRESS, number))
				tcx, hasErr := New(Options{}).hasTCX(device.Attrs().Index)
				if !tcx {
					return errors.Join(err, hasErr)
				}
				one, two = newForeign(t), newForeign(t)
				out, in = append(out, one), append(in, two)
				return errors.Join(err, one.byTCX(device, ebpf.AttachTCXEgress), two.byTCX(device, ebpf.AttachTCXIngress))
			})
		}
		pass := func(what string) {
			t.Helper()
			before := map[*foreign]uint64{}
			for _, f := range append(out, in...) {
				before[f] = f.seen()
			}
			p.send(1, 1)
			p.fromVM()
			for f, n := range before {
				hosttest.Eventually(t, "a program of others to run "+what, func() bool { return f.seen() == n+1 })
			}
		}
		add(1)
		pass("before ours")
		w.apply(d, "tap0", eager(time.Millisecond))
		pass("beside ours")
		add(2)
		pass("added behind ours")
		if n := counted(t, d); n != 2 {
			t.Errorf("ours saw %d packets, want 2", n)
		}
		if !w.attached(d, "tap0") {
			t.Error("ours is no longer attached")
		}
		w.remove(d, "tap0")
		pass("after ours")
		if dump := strings.Join(w.dump(), "\n"); !strings.Contains(dump, kindClsact) || strings.Contains(dump, filterPrefix) {
			t.Errorf("left is\n%s", dump)
		}
	})
}

// A clsact that was there stays, although it is empty.
func TestClsactOfOthersStays(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		w := newWorld(t)
		w.newTap("tap0", 1)
		w.on("tap0", func(handle *netlink.Handle, device netlink.Link) error { return handle.QdiscAdd(newClsact(device)) })
		before := w.dump()
		d := newDatapath(t, opts)
		w.apply(d, "tap0", eager(time.Millisecond))
		if opts.PinRoot != "" { // the next agent knows it too
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			d = newDatapath(t, opts)
		}
		w.remove(d, "tap0")
		wantAsBefore(t, w, before)
	})
}

func TestForeignQueueIsLeftAlone(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		opts.withoutQueue = false
		w := newWorld(t)
		w.newTap("tap0", 1)
		w.on("tap0", func(handle *netlink.Handle, device netlink.Link) error {
			return handle.QdiscAdd(&netlink.Tbf{
				QdiscAttrs: netlink.QdiscAttrs{
					LinkIndex: device.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
				},
				Rate: 1e9, Limit: 1 << 20, Buffer: netlink.Xmittime(1e9, 1<<16),
			})
		})
		before := w.dump()
		d := newDatapath(t, opts)
		if diff := cmp.Diff(State{Owner: OwnerOther, Queue: "tbf 1:"}, w.look(d, "tap0")); diff != "" {
			t.Errorf("state (-want +got):\n%s", diff)
		}
		w.on("tap0", func(handle *netlink.Handle, device netlink.Link) error {
			if err := d.Apply(handle, device, testID, eager(time.Millisecond)); !errors.Is(err, ErrForeign) {
				t.Errorf("apply: %v", err)
			}
			return d.Remove(handle, device, testID)
		})
		wantAsBefore(t, w, before)
	})
}

func TestBadID(t *testing.T) {
	d := newDatapath(t, Options{withoutQueue: true})
	w := newWorld(t)
	for _, id := range []string{"", "lease", "..", "a/b", "a.b", "a b", strings.Repeat("a", 201)} {
		w.on("lo", func(handle *netlink.Handle, device netlink.Link) error {
			if err := d.Apply(handle, device, id, eager(time.Millisecond)); err == nil {
				t.Errorf("ID %q is taken", id)
			}
			return nil
		})
		if err := d.Forget(id); err == nil {
			t.Errorf("ID %q is forgotten", id)
		}
	}
}
