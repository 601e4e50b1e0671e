package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hook is where a program receives a device's packets: a filter of the device's clsact.
type hook struct {
	name   string
	parent uint32
	// program and its ID. nil serves to find what is there.
	program *ebpf.Program
	id      ebpf.ProgramID
}

// What identifies our filters among those of others in the same clsact. They come first:
// another program might end the walk.
const (
	filterPrefix          = "joulevirt-"
	filterHandle   uint32 = 0x4a5b
	filterPriority uint16 = 1
)

// hooks of a program, or all that there may be.
func (d *Datapath) hooks(p *program) []hook {
	egress := hook{name: "egress", parent: netlink.HANDLE_MIN_EGRESS}
	ingress := hook{name: "ingress", parent: netlink.HANDLE_MIN_INGRESS}
	if p != nil {
		egress.program, egress.id = p.egress, programID(p.egress)
		ingress.program, ingress.id = p.ingress, programID(p.ingress)
	}
	if d.opts.EgressOnly || p != nil && p.ingress == nil {
		return []hook{egress}
	}
	return []hook{egress, ingress}
}

// programID is 0 of a program that cannot be asked.
func programID(program *ebpf.Program) ebpf.ProgramID {
	if program == nil {
		return 0
	}
	info, err := program.Info()
	if err != nil {
		return 0
	}
	id, _ := info.ID()
	return id
}

// attach has the device's packets go through the programs. What is attached already stays;
// an earlier program is replaced in one step. q is what the device had before, and
// markClsact records that a clsact was among it.
func attach(at target, hooks []hook, q queue, markClsact func() error) error {
	for _, hook := range hooks {
		if err := attachHook(at, hook, q, markClsact); err != nil {
			return fmt.Errorf("eBPF program %s of %s: %w", hook.name, at.name(), err)
		}
	}
	return nil
}

func attachHook(at target, hook hook, q queue, markClsact func() error) error {
	if q.ingress {
		return fmt.Errorf("an ingress queueing discipline, beside which clsact has no room: %w", ErrForeign)
	}
	attached, err := filterOf(at, hook)
	if err != nil || attached == hook.id {
		return err
	}
	err = at.handle.QdiscAdd(newClsact(at.device))
	switch {
	case err == nil:
	case !errors.Is(err, unix.EEXIST):
		return fmt.Errorf("clsact: %w", err)
	case attached == 0 && q.clsact:
		if err := markClsact(); err != nil {
			return err
		}
	}
	filter := newFilter(at.device, hook)
	filter.Fd = hook.program.FD()
	return at.handle.FilterReplace(filter)
}

// isAttached returns true if the device's packets go through the programs.
func isAttached(at target, hooks []hook) (bool, error) {
	for _, hook := range hooks {
		if id, err := filterOf(at, hook); err != nil || id != hook.id {
			return false, err
		}
	}
	return true, nil
}

// detach removes from the device the programs that this or an earlier process attached, and
// the clsact if it came with them and has no others.
func detach(at target, hooks []hook, keepClsact bool) error {
	var failures []error
	ours := false
	for _, hook := range hooks {
		attached, err := filterOf(at, hook)
		if err != nil {
			failures = append(failures, err)
		}
		if attached == 0 {
			continue
		}
		ours = true
		if err := at.handle.FilterDel(newFilter(at.device, hook)); err != nil && !isAbsent(err) {
			failures = append(failures, fmt.Errorf("filter %s of %s: %w", hook.name, at.name(), err))
		}
	}
	if ours && !keepClsact {
		failures = append(failures, removeEmptyClsact(at))
	}
	return errors.Join(failures...)
}

func removeEmptyClsact(at target) error {
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		filters, err := at.handle.FilterList(at.device, parent)
		if err != nil {
			return fmt.Errorf("filters of %s: %w", at.name(), err)
		}
		if len(filters) > 0 {
			return nil
		}
	}
	if err := at.handle.QdiscDel(newClsact(at.device)); err != nil && !isAbsent(err) {
		return fmt.Errorf("remove clsact from %s: %w", at.name(), err)
	}
	return nil
}

func newClsact(device netlink.Link) netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: device.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

func newFilter(device netlink.Link, hook hook) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: device.Attrs().Index, Parent: hook.parent,
			Handle: filterHandle, Priority: filterPriority, Protocol: unix.ETH_P_ALL,
		},
		Name: filterPrefix + hook.name, Fd: -1, DirectAction: true,
	}
}

// filterOf is the program of our filter at a hook; 0 if absent.
func filterOf(at target, hook hook) (ebpf.ProgramID, error) {
	filters, err := at.handle.FilterList(at.device, hook.parent)
	if err != nil && !isAbsent(err) {
		return 0, fmt.Errorf("filters of %s: %w", at.name(), err)
	}
	for _, filter := range filters {
		if bpf, ok := filter.(*netlink.BpfFilter); ok && bpf.Name == filterPrefix+hook.name {
			return ebpf.ProgramID(bpf.Id), nil
		}
	}
	return 0, nil
}
