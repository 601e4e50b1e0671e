package datapath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

const testID = "42-7-tap0"

// eager has every packet held, from the second one of a second on.
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

func (w *world) observe(d *Datapath, name string) (state State) {
	w.t.Helper()
	w.on(name, func(handle *netlink.Handle, device netlink.Link) (err error) {
		state, err = d.Observe(handle, device, testID)
		return err
	})
	return state
}

// attached returns true if the programs are on the device.
func (w *world) attached(d *Datapath, name string) (is bool) {
	w.t.Helper()
	w.on(name, func(handle *netlink.Handle, device netlink.Link) error {
		at := target{handle, device, testID}
		opened, err := d.find(at)
		if err != nil || opened == nil {
			return err
		}
		is, err = isAttached(at, opened.hooks)
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

// attachOnly are the options of a kernel without fq.
func attachOnly(t *testing.T) Options {
	return Options{PinRoot: hosttest.NewPinRoot(t), WithoutQueue: true}
}

// applyAndEnd applies buffering to tap0 as an agent does that ends without undoing it.
func (w *world) applyAndEnd(opts Options) {
	w.t.Helper()
	d := New(opts)
	w.apply(d, "tap0", eager(time.Millisecond))
	must(w.t, errors.Join(d.Extend(time.Minute), d.Close()))
}

func wantAsBefore(t *testing.T, w *world, before []string) {
	t.Helper()
	if diff := cmp.Diff(before, w.dump()); diff != "" {
		t.Errorf("not as it was (-before +after):\n%s", diff)
	}
}

func TestAttachAndRemove(t *testing.T) {
	opts := attachOnly(t)
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
	wantNoPins(t, opts)
}

func wantNoPins(t *testing.T, opts Options) {
	t.Helper()
	if _, err := os.Stat(opts.PinRoot); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("pins are left: %v", err)
	}
}

// countingFilter adds a program of somebody else, which counts packets and lets what is behind
// it have them too.
func countingFilter(t *testing.T, handle *netlink.Handle, device netlink.Link, parent, number uint32) (seen func() uint64) {
	t.Helper()
	counter, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	must(t, err)
	t.Cleanup(func() { counter.Close() })
	const onKey, next = -8, -1
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, Instructions: asm.Instructions{
		asm.StoreImm(asm.RFP, onKey, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, counter.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, onKey),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "next"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, next).WithSymbol("next"),
		asm.Return(),
	}})
	must(t, err)
	t.Cleanup(func() { program.Close() })
	must(t, handle.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: device.Attrs().Index, Parent: parent, Handle: number, Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Name: "foreign", Fd: program.FD(), DirectAction: true,
	}))
	return func() (count uint64) {
		must(t, counter.Lookup(uint32(0), &count))
		return count
	}
}

func TestOthersProgramsStayAndRun(t *testing.T) {
	w := newWorld(t)
	p := w.newTap("tap0", 1)
	d := newDatapath(t, attachOnly(t))
	var counters []func() uint64
	add := func(number uint32) {
		w.on("tap0", func(handle *netlink.Handle, device netlink.Link) error {
			_ = handle.QdiscAdd(newClsact(device)) // it may be there
			counters = append(counters, countingFilter(t, handle, device, netlink.HANDLE_MIN_EGRESS, number),
				countingFilter(t, handle, device, netlink.HANDLE_MIN_INGRESS, number))
			return nil
		})
	}
	pass := func(what string) {
		t.Helper()
		var before []uint64
		for _, seen := range counters {
			before = append(before, seen())
		}
		p.send(1, 1)
		p.fromVM()
		for i, seen := range counters {
			hosttest.Eventually(t, "a program of others to run "+what, func() bool { return seen() == before[i]+1 })
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
	if dump := strings.Join(w.dump(), "\n"); !strings.Contains(dump, qdiscClsact) || strings.Contains(dump, filterPrefix) {
		t.Errorf("left is\n%s", dump)
	}
}

// A clsact that was there stays, although it is empty. The next agent knows it too.
func TestClsactOfOthersStays(t *testing.T) {
	opts := attachOnly(t)
	w := newWorld(t)
	w.newTap("tap0", 1)
	w.on("tap0", func(handle *netlink.Handle, device netlink.Link) error { return handle.QdiscAdd(newClsact(device)) })
	before := w.dump()
	d := New(opts)
	w.apply(d, "tap0", eager(time.Millisecond))
	must(t, d.Close())
	w.remove(newDatapath(t, opts), "tap0")
	wantAsBefore(t, w, before)
}

// addIngress gives a device an ingress queueing discipline, beside which clsact has no room.
func addIngress(handle *netlink.Handle, device netlink.Link) error {
	return handle.QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: device.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
	}})
}

func TestForeignQueueIsLeftAlone(t *testing.T) {
	for name, add := range map[string]func(*netlink.Handle, netlink.Link) error{
		"a root": func(handle *netlink.Handle, device netlink.Link) error {
			return handle.QdiscAdd(&netlink.Tbf{
				QdiscAttrs: netlink.QdiscAttrs{
					LinkIndex: device.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
				},
				Rate: 1e9, Limit: 1 << 20, Buffer: netlink.Xmittime(1e9, 1<<16),
			})
		},
		"an ingress": addIngress,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.newTap("tap0", 1)
			w.on("tap0", add)
			before := w.dump()
			d := newDatapath(t, attachOnly(t))
			if state := w.observe(d, "tap0"); name == "a root" && (state.Owner != OwnerOther || state.Queue != "tbf 1:") {
				t.Errorf("state %+v", state)
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
}

func TestBadID(t *testing.T) {
	d := newDatapath(t, attachOnly(t))
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

// An ended agent's programs are taken over with what they counted, and a successor that only
// removes need not have applied anything.
func TestProgramsAreTakenOver(t *testing.T) {
	opts := attachOnly(t)
	w := newWorld(t)
	p := w.newTap("tap0", 1)
	before := w.dump()
	w.applyAndEnd(opts)
	p.send(1, 1)
	held := w.dump()
	p.send(1, 2)
	d := newDatapath(t, opts)
	if !w.attached(d, "tap0") || counted(t, d) != 2 {
		t.Fatal("not taken over")
	}
	w.apply(d, "tap0", eager(time.Millisecond))
	p.send(1, 3)
	if diff := cmp.Diff(held, w.dump()); diff != "" {
		t.Errorf("taking over changed the device (-before +after):\n%s", diff)
	}
	if n := counted(t, d); n != 3 {
		t.Errorf("counted %d packets, want 3", n)
	}
	must(t, d.Close())
	w.remove(newDatapath(t, opts), "tap0")
	wantAsBefore(t, w, before)
}

// What another version of the programs left is replaced, or removed.
func TestOtherVersionIsReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		left    string
		replace bool
	}{
		"by another program": {"buffering-0123456789abcdef", true}, "by nothing": {"buffering-0123456789abcdef", false},
		"one that is half pinned": {unfinished, true},
	} {
		t.Run(name, func(t *testing.T) {
			opts := attachOnly(t)
			w := newWorld(t)
			p := w.newTap("tap0", 1)
			before := w.dump()
			w.applyAndEnd(opts)
			versions := filepath.Join(opts.PinRoot, testID, pinProgram)
			must(t, os.Rename(filepath.Join(versions, buffering.folder()), filepath.Join(versions, test.left)))
			d := New(opts)
			if w.attached(d, "tap0") {
				t.Error("another version's is taken over")
			}
			if test.replace {
				w.apply(d, "tap0", eager(time.Millisecond))
				p.send(1, 1)
				if n := counted(t, d); n != 1 || !w.attached(d, "tap0") {
					t.Errorf("the new program is not at work: counted %d", n)
				}
				if names := programNames(w); len(names) != 2 {
					t.Errorf("at work are %v, want two programs", names)
				}
			}
			w.remove(d, "tap0")
			wantAsBefore(t, w, before)
			must(t, d.Close())
			wantNoPins(t, opts)
		})
	}
}

// programNames are the lines of a dump about attached programs.
func programNames(w *world) (names []string) {
	for _, line := range w.dump() {
		if strings.Contains(line, "  bpf ") {
			names = append(names, line)
		}
	}
	return names
}

// A tap that was created again has the same name, and nothing of what the one before had.
func TestDeviceIsCreatedAgain(t *testing.T) {
	for name, restart := range map[string]bool{"seen": false, "while no agent ran": true} {
		t.Run(name, func(t *testing.T) {
			opts := attachOnly(t)
			w := newWorld(t)
			p := w.newTap("tap0", 1)
			before := w.dump()
			d := newDatapath(t, opts)
			w.apply(d, "tap0", eager(time.Millisecond))
			p.send(1, 1)
			if restart {
				must(t, d.Close())
				d = newDatapath(t, opts)
			}
			p.close()
			p = w.newTap("tap0", 1)
			if w.attached(d, "tap0") {
				t.Error("attached to a device that was created again")
			}
			if ids, err := d.IDs(); err != nil || len(ids) > 0 {
				t.Errorf("kept of the old device: %v, %v", ids, err)
			}
			w.apply(d, "tap0", eager(time.Millisecond))
			p.send(1, 1)
			if n := counted(t, d); n != 1 || !w.attached(d, "tap0") {
				t.Errorf("counted %d packets of the new device, want 1", n)
			}
			w.remove(d, "tap0")
			wantAsBefore(t, w, before)
		})
	}
}

// A successor has packets held before it has observed any device, and where nothing is kept
// it makes no lease.
func TestSuccessorExtendsTheLeaseAtOnce(t *testing.T) {
	opts := attachOnly(t)
	d := newDatapath(t, opts)
	if err := d.Extend(time.Hour); err != nil || d.pins.haveLease() {
		t.Errorf("with nothing to hold: %v, a lease: %v", err, d.pins.haveLease())
	}
	w := newWorld(t)
	w.newTap("tap0", 1)
	w.applyAndEnd(opts)
	now, err := monotonic()
	must(t, err)
	must(t, d.Extend(time.Hour))
	var until uint64
	pinned, err := openPinnedLease(d.pins.path(pinLease))
	must(t, err)
	defer pinned.close()
	must(t, pinned.until.Lookup(uint32(0), &until))
	if time.Duration(until) < now+time.Hour {
		t.Errorf("the lease lasts until %v; now it is %v", time.Duration(until), now)
	}
	w.remove(d, "tap0")
}

func TestDeviceThatIsGoneIsForgotten(t *testing.T) {
	opts := attachOnly(t)
	w := newWorld(t)
	p := w.newTap("tap0", 1)
	w.applyAndEnd(opts)
	p.close()
	d := New(opts)
	if ids, err := d.IDs(); err != nil || !cmp.Equal(ids, []string{testID}) {
		t.Errorf("kept are %v, %v", ids, err)
	}
	must(t, errors.Join(d.Forget(testID), d.Forget(testID), d.Close()))
	wantNoPins(t, opts)
}

// Without a BPF file system nothing is put on a device; with it again all is as ever.
func TestPinsNeedABPFFileSystem(t *testing.T) {
	w := newWorld(t)
	w.newTap("tap0", 1)
	before := w.dump()
	refused := func(d *Datapath, want string) {
		t.Helper()
		w.on("tap0", func(handle *netlink.Handle, device netlink.Link) error {
			err := d.Apply(handle, device, testID, eager(time.Millisecond))
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			return d.Remove(handle, device, testID)
		})
		wantAsBefore(t, w, before)
	}
	for root, want := range map[string]string{
		"": "no BPF file system is given", "/proc/nowhere": "programs cannot be kept",
	} {
		refused(newDatapath(t, Options{PinRoot: root, WithoutQueue: true}), want)
	}
	opts := attachOnly(t)
	d := newDatapath(t, opts)
	dir := filepath.Dir(opts.PinRoot)
	must(t, unix.Unmount(dir, 0))
	refused(d, "is not in a BPF file system: mount one there")
	must(t, unix.Mount("bpf", dir, "bpf", 0, "mode=0700"))
	w.apply(d, "tap0", eager(time.Millisecond))
	if !w.attached(d, "tap0") {
		t.Error("not attached")
	}
	w.remove(d, "tap0")
	wantAsBefore(t, w, before)
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
		"the kernel has no fq (module sch_fq)":  {opts: Options{WithoutFq: true}},
		"the kernel has no clsact with cls_bpf": {opts: Options{WithoutQueue: true}, prepare: addIngress},
		"the kernel refuses the eBPF programs":  {opts: Options{WithoutQueue: true}, as: withoutCapabilities},
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
					err := Probe(handle, device, test.opts, eager(time.Millisecond))
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

// Devices come and go by the hundred in the life of an agent.
func TestNoFileStaysOpen(t *testing.T) {
	w := newWorld(t)
	d := newDatapath(t, attachOnly(t))
	openFiles := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(entries)
	}
	once := func() {
		p := w.newTap("tap0", 1)
		w.apply(d, "tap0", eager(time.Millisecond))
		w.remove(d, "tap0")
		w.apply(d, "tap0", eager(time.Millisecond))
		p.close()
		must(t, d.Forget(testID))
	}
	once() // what is kept for all devices is open now
	before := openFiles()
	for range 3 {
		once()
	}
	if after := openFiles(); after != before {
		t.Errorf("%d files are open, and were %d before three devices came and went", after, before)
	}
}
