package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hook is a place on a device where a program sees its packets, before all programs that
// are there already: one of those might end the walk.
type hook struct {
	name    string
	program *ebpf.Program
	// tcx is the place since Linux 6.6, parent that before.
	tcx    ebpf.AttachType
	parent uint32
}

// What makes our filters known among those of others in the same clsact.
const (
	filterPrefix          = "joulevirt-"
	filterHandle   uint32 = queueMajor
	filterPriority uint16 = 1
)

const hookHold, hookHear = "hold", "hear"

// hooks of a program; without one they serve to find what is there.
func (d *Datapath) hooks(p *Program) []hook {
	hold := hook{name: hookHold, tcx: ebpf.AttachTCXEgress, parent: netlink.HANDLE_MIN_EGRESS}
	hear := hook{name: hookHear, tcx: ebpf.AttachTCXIngress, parent: netlink.HANDLE_MIN_INGRESS}
	if p != nil {
		hold.program, hear.program = p.Hold(), p.Hear()
	}
	if d.opts.HoldOnly {
		return []hook{hold}
	}
	return []hook{hold, hear}
}

// hasTCX tells whether the kernel has tcx.
func (d *Datapath) hasTCX(index int) (bool, error) {
	if d.opts.WithoutTCX {
		return false, nil
	}
	_, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXEgress})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, ebpf.ErrNotSupported) {
		return false, nil
	}
	return err == nil, err
}

// attach has the device's packets go through the program. What is attached already stays;
// an earlier program is replaced in one step.
func (d *Datapath) attach(at place, has *held, q queue) error {
	tcx, err := d.hasTCX(at.index())
	if err != nil {
		return fmt.Errorf("tcx of %s: %w", at.name(), err)
	}
	for _, hook := range d.hooks(has.program) {
		if tcx {
			err = d.attachTCX(at, has, hook)
		} else {
			err = d.attachFilter(at, has, hook, q)
		}
		if err != nil {
			return fmt.Errorf("eBPF program %s of %s: %w", hook.name, at.name(), err)
		}
	}
	return nil
}

func (d *Datapath) attachTCX(at place, has *held, hook hook) error {
	if known := has.links[hook.name]; known != nil {
		info, err := known.Info()
		if err != nil {
			return err
		}
		switch tcx := info.TCX(); {
		case tcx != nil && int(tcx.Ifindex) == at.index() && info.Program == has.ids[hook.name]:
			return nil
		case tcx != nil && int(tcx.Ifindex) == at.index():
			return known.Update(hook.program)
		}
		delete(has.links, hook.name)
		if err := errors.Join(d.pins.unpinLink(at.id, hook.name), known.Close()); err != nil {
			return err
		}
	}
	attached, err := link.AttachTCX(link.TCXOptions{
		Interface: at.index(), Program: hook.program, Attach: hook.tcx, Anchor: link.Head(),
	})
	if err != nil {
		return err
	}
	has.links[hook.name] = attached
	return d.pins.pinLink(at.id, hook.name, attached)
}

func (d *Datapath) attachFilter(at place, has *held, hook hook, q queue) error {
	if q.ingress {
		return fmt.Errorf("an ingress queueing discipline, beside which clsact has no place: %w", ErrForeign)
	}
	is, err := filterOf(at, hook)
	if err != nil || is == has.ids[hook.name] {
		return err
	}
	err = at.handle.QdiscAdd(newClsact(at.device))
	switch {
	case err == nil:
	case !errors.Is(err, unix.EEXIST):
		return fmt.Errorf("clsact: %w", err)
	case is == 0 && q.clsact:
		if err := d.pins.markClsact(at.id); err != nil {
			return err
		}
	}
	filter := newFilter(at.device, hook)
	filter.Fd = hook.program.FD()
	return at.handle.FilterReplace(filter)
}

// isAttached tells whether the device's packets go through the program.
func (d *Datapath) isAttached(at place, has *held) (bool, error) {
	tcx, err := d.hasTCX(at.index())
	if err != nil {
		return false, fmt.Errorf("tcx of %s: %w", at.name(), err)
	}
	for _, hook := range d.hooks(has.program) {
		if !tcx {
			is, err := filterOf(at, hook)
			if err != nil || is != has.ids[hook.name] {
				return false, err
			}
			continue
		}
		known := has.links[hook.name]
		if known == nil {
			return false, nil
		}
		info, err := known.Info()
		if err != nil {
			return false, fmt.Errorf("link %s of %s: %w", hook.name, at.name(), err)
		}
		if tcx := info.TCX(); tcx == nil || int(tcx.Ifindex) != at.index() || info.Program != has.ids[hook.name] {
			return false, nil
		}
	}
	return true, nil
}

// detach takes from the device the programs that this or an earlier life attached.
func (d *Datapath) detach(at place, links map[string]link.Link) error {
	var failures []error
	for _, hook := range d.hooks(nil) {
		if known := links[hook.name]; known != nil {
			delete(links, hook.name)
			if err := known.Detach(); err != nil && !isAbsent(err) && !errors.Is(err, unix.ENOLINK) {
				failures = append(failures, fmt.Errorf("program %s of %s: %w", hook.name, at.name(), err))
			}
			failures = append(failures, d.pins.unpinLink(at.id, hook.name), known.Close())
		}
		is, err := filterOf(at, hook)
		if err != nil {
			failures = append(failures, err)
		}
		if is == 0 {
			continue
		}
		if err := at.handle.FilterDel(newFilter(at.device, hook)); err != nil && !isAbsent(err) {
			failures = append(failures, fmt.Errorf("filter %s of %s: %w", hook.name, at.name(), err))
		}
		failures = append(failures, d.tidyClsact(at))
	}
	return errors.Join(failures...)
}

// tidyClsact removes a clsact that came with our filters and has no others.
func (d *Datapath) tidyClsact(at place) error {
	if d.pins.clsactWasThere(at.id) {
		return nil
	}
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

// filterOf is the program of our filter at a hook; 0: there is none.
func filterOf(at place, hook hook) (ebpf.ProgramID, error) {
	filters, err := at.handle.FilterList(at.device, hook.parent)
	if err != nil && !isAbsent(err) {
		return 0, fmt.Errorf("filters of %s: %w", at.name(), err)
	}
	for _, filter := range filters {
		if bpf, is := filter.(*netlink.BpfFilter); is && bpf.Name == filterPrefix+hook.name {
			return ebpf.ProgramID(bpf.Id), nil
		}
	}
	return 0, nil
}

// programID is 0 of a program that cannot be asked.
func programID(program *ebpf.Program) ebpf.ProgramID {
	info, err := program.Info()
	if err != nil {
		return 0
	}
	id, _ := info.ID()
	return id
}
