//go:build fq

// These run on a kernel that has fq: see test/guest/shaping.

package linux

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/model"
)

// fqHost keeps turns by fq.
func fqHost(t *testing.T) *Host {
	t.Helper()
	h := hostOf(t, Options{ProcRoot: "/proc", SysRoot: "/sys"})
	if err := h.missesFq(); err != nil {
		t.Fatal(err)
	}
	return h
}

func byFq() host.Uplink { return host.Uplink{Owner: host.QueueOurs, Queue: "fq 4a59:", Turns: true} }

func wantQueues(t *testing.T, n *hosttest.Network, before []string) {
	t.Helper()
	if diff := cmp.Diff(before, queues(t, n)); diff != "" {
		t.Errorf("not as it was (-before +after):\n%s", diff)
	}
}

func mustShape(t *testing.T, h *Host, n *hosttest.Network, shaping model.Shaping) {
	t.Helper()
	if err := h.Shape(n.VM.ID(), n.Uplink, shaping); err != nil {
		t.Fatal(err)
	}
}

func mustUnshape(t *testing.T, h *Host, n *hosttest.Network) {
	t.Helper()
	if err := h.Unshape(n.VM.ID(), n.Uplink); err != nil {
		t.Fatal(err)
	}
}

func TestFqShapeAndUnshape(t *testing.T) {
	for name, binding := range map[string]hosttest.Binding{"masquerade": hosttest.Masquerade, "bridge": hosttest.Bridge} {
		t.Run(name, func(t *testing.T) {
			h := fqHost(t)
			n := hosttest.NewOutside(t).NewVM("shop", "web", binding)
			before := queues(t, n)
			both, other := turns(), turns()
			both.Ceiling = 8e6
			other.Turn.Offset++
			for _, step := range []struct {
				shaping model.Shaping
				want    host.Uplink
			}{
				{turns(), byFq()},
				{other, byFq()},
				{both, host.Uplink{Owner: host.QueueOurs, Queue: "htb 4a56:", Ceiling: 8e6, Turns: true}},
				{turns(), byFq()},
				{model.Shaping{Ceiling: 8e6}, host.Uplink{Owner: host.QueueOurs, Queue: "htb 4a56:", Ceiling: 8e6}},
				{turns(), byFq()},
			} {
				for range 2 { // done again it changes nothing
					mustShape(t, h, n, step.shaping)
					wantUplink(t, h, n, step.want)
				}
			}
			if err := errors.Join(h.SetGate(n.VM.ID(), n.Uplink, leastTrickle), h.SetGate(n.VM.ID(), n.Uplink, 0)); err != nil {
				t.Error(err)
			}
			for range 2 {
				mustUnshape(t, h, n)
				wantQueues(t, n, before)
			}
			if len(h.shaper.stampers) > 0 {
				t.Errorf("%d stampers are left", len(h.shaper.stampers))
			}
		})
	}
}

// What one agent shaped the next one takes over, or undoes, whichever it
// prefers.
func TestFqSuccessors(t *testing.T) {
	byHtb := host.Uplink{Owner: host.QueueOurs, Queue: "htb 4a56:", Turns: true}
	for name, test := range map[string]struct {
		first, next  func(*testing.T) *Host
		was, becomes host.Uplink
	}{
		"fq to fq":  {fqHost, fqHost, byFq(), byFq()},
		"fq to htb": {fqHost, func(t *testing.T) *Host { return realHost(t) }, byFq(), byHtb},
		"htb to fq": {func(t *testing.T) *Host { return realHost(t) }, fqHost, byHtb, byFq()},
	} {
		t.Run(name, func(t *testing.T) {
			n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Masquerade)
			before := queues(t, n)
			first, next := test.first(t), test.next(t)
			mustShape(t, first, n, turns())
			wantUplink(t, first, n, test.was)
			test.was.Turns = false // by another agent
			wantUplink(t, next, n, test.was)
			if err := next.SetGate(n.VM.ID(), n.Uplink, 0); err != nil {
				t.Error(err)
			}
			mustShape(t, next, n, turns())
			wantUplink(t, next, n, test.becomes)
			mustUnshape(t, next, n)
			wantQueues(t, n, before)
			mustShape(t, first, n, turns())
			mustUnshape(t, next, n)
			wantQueues(t, n, before)
		})
	}
}

// addForeign gives the device a clsact with somebody else's filter.
func addForeign(t *testing.T, n *hosttest.Network) {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R0, -1), asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	onUplink(t, n, func(d *device) error {
		filter := d.stampFilter()
		filter.Handle, filter.Name, filter.Fd, filter.DirectAction = 1, "foreign", program.FD(), true
		return errors.Join(d.QdiscAdd(d.clsact()), d.FilterReplace(filter))
	})
}

func TestFqLeavesOthersFilters(t *testing.T) {
	h := fqHost(t)
	n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Masquerade)
	addForeign(t, n)
	before := queues(t, n)
	mustShape(t, h, n, turns())
	wantUplink(t, h, n, byFq())
	mustUnshape(t, h, n)
	wantQueues(t, n, before)
	onUplink(t, n, func(d *device) error {
		if id, err := d.programOf(netlink.HANDLE_MIN_EGRESS, "foreign"); err != nil || id == 0 {
			t.Errorf("the foreign filter is gone: %v", err)
		}
		return nil
	})
}

// An ingress is no clsact, and there is place for one of them only.
func TestFqIsNotUsedBesideAnIngress(t *testing.T) {
	h := fqHost(t)
	n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Masquerade)
	onUplink(t, n, func(d *device) error {
		return d.QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: d.index(), Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
		}})
	})
	before := queues(t, n)
	mustShape(t, h, n, turns())
	wantUplink(t, h, n, host.Uplink{Owner: host.QueueOurs, Queue: "htb 4a56:", Turns: true})
	mustUnshape(t, h, n)
	wantQueues(t, n, before)
}

// Without its fq the stamper would drop what is to wait.
func TestStamperGoesWithItsFq(t *testing.T) {
	for _, kind := range []string{"", "htb 1:"} {
		h := fqHost(t)
		n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Masquerade)
		mustShape(t, h, n, turns())
		want := host.Uplink{Queue: "noqueue 0:"}
		onUplink(t, n, func(d *device) error { return d.QdiscDel(d.fq()) })
		if kind != "" {
			want = host.Uplink{Owner: host.QueueForeign, Queue: kind}
			onUplink(t, n, func(d *device) error {
				return d.QdiscAdd(netlink.NewHtb(netlink.QdiscAttrs{
					LinkIndex: d.index(), Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
				}))
			})
			if err := h.Shape(n.VM.ID(), n.Uplink, turns()); !errors.Is(err, host.ErrForeign) {
				t.Errorf("shaping: %v", err)
			}
		}
		wantUplink(t, h, n, want)
		onUplink(t, n, func(d *device) error {
			if id, err := d.programOf(netlink.HANDLE_MIN_EGRESS, stampName); err != nil || id != 0 {
				t.Errorf("the stamper is still there: %d, %v", id, err)
			}
			return nil
		})
	}
}

// onUplink works on the VM's device.
func onUplink(t *testing.T, n *hosttest.Network, do func(*device) error) {
	t.Helper()
	n.Pod(func() error {
		return withNetlink(func(handle *netlink.Handle) error {
			d, err := openDevice(handle, n.Uplink)
			if err != nil {
				return err
			}
			return do(d)
		})
	})
}

func TestFqOfAProcessThatEnded(t *testing.T) {
	h := fqHost(t)
	n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Masquerade)
	mustShape(t, h, n, turns())
	n.VM.End()
	if _, err := h.Uplinks(n.VM.ID()); !errors.Is(err, host.ErrGone) {
		t.Errorf("uplinks: %v", err)
	}
	if len(h.shaper.stampers) > 0 {
		t.Errorf("%d stampers are left", len(h.shaper.stampers))
	}
}
