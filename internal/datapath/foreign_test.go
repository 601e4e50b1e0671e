package datapath

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// foreign is a program of somebody else, which counts packets and lets what is behind it
// have them too.
type foreign struct {
	t       testing.TB
	counter *ebpf.Map
	program *ebpf.Program
}

func newForeign(t testing.TB) *foreign {
	t.Helper()
	counter, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return &foreign{t, counter, program}
}

// seen packets.
func (f *foreign) seen() (count uint64) {
	f.t.Helper()
	if err := f.counter.Lookup(uint32(0), &count); err != nil {
		f.t.Fatal(err)
	}
	return count
}

// byTCX attaches the program behind all others.
func (f *foreign) byTCX(device netlink.Link, hook ebpf.AttachType) error {
	l, err := link.AttachTCX(link.TCXOptions{
		Interface: device.Attrs().Index, Program: f.program, Attach: hook, Anchor: link.Tail(),
	})
	if err == nil {
		f.t.Cleanup(func() { l.Close() })
	}
	return err
}

// byFilter attaches the program in a clsact, which may be there.
func (f *foreign) byFilter(handle *netlink.Handle, device netlink.Link, parent uint32, number uint32) error {
	_ = handle.QdiscAdd(newClsact(device)) // the filter tells
	return f.addFilter(handle, device, parent, number)
}

func (f *foreign) addFilter(handle *netlink.Handle, device netlink.Link, parent uint32, number uint32) error {
	return handle.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: device.Attrs().Index, Parent: parent, Handle: number, Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Name: "foreign", Fd: f.program.FD(), DirectAction: true,
	})
}
