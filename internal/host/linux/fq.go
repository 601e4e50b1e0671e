package linux

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// What the agent gives a device that takes turns and has no ceiling, where the
// kernel has fq:
//
//	fq 4a59:   the root: each packet waits for its stamp
//	clsact     unless the device has one
//	  bpf      the stamper, on what leaves
const (
	fqMajor  = 0x4a59
	fqKind   = "fq"
	fqPasses = 1 << 17 // packets: the stamper bounds what waits, by bytes
	// stampHandle is told from that of others in the same clsact.
	stampName          = "joulevirt-stamp"
	stampHandle uint32 = 0x4a56
	// horizon is longer than the trickle needs for heldBytes.
	horizon = time.Minute
)

// uplinkKey names a device of a pod.
type uplinkKey struct {
	process host.TaskID
	uplink  string
}

// missesFq tells why turns are not kept by fq; nil when they are.
func (h *Host) missesFq() error {
	h.shaper.probe.Do(func() {
		if err := h.probeFq(); err != nil {
			h.shaper.noFq = fmt.Errorf("turns are kept by htb: %w", err)
		}
	})
	return h.shaper.noFq
}

// probeFq has the loopback device of a network namespace that ends with the
// probe take turns.
func (h *Host) probeFq() error {
	if h.shaper.withoutFq {
		return errors.New("fq is not to be used")
	}
	until, err := h.shaper.until()
	if err != nil {
		return err
	}
	s, err := newStamper()
	if err != nil {
		return err
	}
	turn := model.Turn{Period: time.Second, Length: time.Second / 2, Trickle: leastTrickle}
	if s.program, err = s.load(turn, until); err != nil {
		return errors.Join(err, s.close())
	}
	err = inEmptyNetwork(func(d *device) error {
		if err := errors.Join(d.addFq(), d.stampBy(s.program)); err != nil {
			return fmt.Errorf("the kernel's sch_fq, sch_ingress and cls_bpf are needed: %w", err)
		}
		return errors.Join(d.wantHorizon(), d.unstamp())
	})
	return errors.Join(err, s.close())
}

// wantHorizon fails with an fq that does not know what it was told of stamps,
// and may not know stamps at all.
func (d *device) wantHorizon() error {
	qdiscs, err := d.QdiscList(d.link)
	if err != nil {
		return err
	}
	for _, qdisc := range qdiscs {
		if fq, is := qdisc.(*netlink.Fq); is && fq.Horizon == uint32(horizon.Microseconds()) {
			return nil
		}
	}
	return errors.New("the kernel's fq is older than that of Linux 5.8")
}

// stampsTurns tells whether a device is to keep turns by stamps. A ceiling is
// for htb, which divides it between what waits and what passes; a clsact has no
// place beside an ingress.
func (h *Host) stampsTurns(d *device, shaping model.Shaping) (bool, error) {
	byFq := shaping.Turn != nil && shaping.Ceiling == 0 && h.missesFq() == nil
	if !byFq {
		return false, nil
	}
	qdiscs, err := d.QdiscList(d.link)
	if err != nil {
		return false, fmt.Errorf("queueing disciplines of %s: %w", d.link.Attrs().Name, err)
	}
	for _, qdisc := range qdiscs {
		if qdisc.Type() == "ingress" {
			return false, nil
		}
	}
	return true, nil
}

// stampTurns has a device keep turns by stamps.
func (s *shaper) stampTurns(d *device, key uplinkKey, shaping model.Shaping, is host.Uplink, by ebpf.ProgramID) error {
	until, err := s.until()
	if err != nil {
		return err
	}
	var open error
	if is.Queue == htbQueue {
		open = s.open(d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.stampers[key]
	if is.Queue == fqQueue && known != nil && known.shaping.Equal(shaping) && known.loaded(by) {
		return nil
	}
	if is.Queue == htbQueue {
		if err := errors.Join(open, d.unshape()); err != nil {
			return err
		}
	}
	if known == nil {
		if known, err = newStamper(); err != nil {
			return err
		}
	}
	err = known.install(d, shaping, until, is.Queue == fqQueue)
	if known.program == nil {
		return errors.Join(err, known.close())
	}
	s.stampers[key] = known
	return err
}

// install gives the device fq, unless it has it, and the program.
func (s *stamper) install(d *device, shaping model.Shaping, until *ebpf.Map, hasFq bool) error {
	program, err := s.load(*shaping.Turn, until)
	if err != nil {
		return err
	}
	if !hasFq {
		if err := d.addFq(); err != nil {
			return errors.Join(err, program.Close())
		}
	}
	if err := d.stampBy(program); err != nil {
		return errors.Join(err, program.Close())
	}
	old := s.program
	s.program, s.shaping = program, shaping
	turn := *shaping.Turn
	s.shaping.Turn = &turn
	if old != nil {
		return old.Close()
	}
	return nil
}

// loaded tells whether a program is the stamper's.
func (s *stamper) loaded(id ebpf.ProgramID) bool { return s.program != nil && isProgram(s.program, id) }

func isProgram(program *ebpf.Program, id ebpf.ProgramID) bool {
	info, err := program.Info()
	if err != nil {
		return false
	}
	own, known := info.ID()
	return known && own == id
}

// stamps tells whether this agent's stamper keeps the turns of an uplink.
func (s *shaper) stamps(key uplinkKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stampers[key] != nil
}

// forget lets go of the stampers of a process's uplinks; of one, or of all
// when uplink is empty.
func (s *shaper) forget(process host.TaskID, uplink string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, stamper := range s.stampers {
		if key.process == process && (uplink == "" || key.uplink == uplink) {
			// Nothing of it can fail but to be closed twice.
			_ = stamper.close()
			delete(s.stampers, key)
		}
	}
}

func (d *device) fq() *netlink.Fq {
	fq := netlink.NewFq(netlink.QdiscAttrs{
		LinkIndex: d.index(), Handle: netlink.MakeHandle(fqMajor, 0), Parent: netlink.HANDLE_ROOT,
	})
	// What is sent from the pod itself is not to be paced.
	fq.Pacing = 0
	fq.PacketLimit, fq.FlowPacketLimit = fqPasses, fqPasses
	fq.Horizon, fq.HorizonDropPolicy = uint32(horizon.Microseconds()), netlink.HORIZON_DROP_POLICY_CAP
	return fq
}

// addFq gives the device its root, in place of the kernel's.
func (d *device) addFq() error {
	if err := d.QdiscAdd(d.fq()); err != nil {
		if errors.Is(err, unix.EEXIST) {
			err = host.ErrForeign
		}
		return fmt.Errorf("fq on %s: %w", d.link.Attrs().Name, err)
	}
	return nil
}

func (d *device) clsact() netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: d.index(), Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

func (d *device) stampFilter() *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: d.index(), Parent: netlink.HANDLE_MIN_EGRESS,
			Handle: stampHandle, Priority: uint16(filterPriority), Protocol: unix.ETH_P_ALL,
		},
		Name: stampName, Fd: -1,
	}
}

// stampBy has a program stamp the packets, in one step with the end of what
// stamped them before.
func (d *device) stampBy(program *ebpf.Program) error {
	if err := d.QdiscAdd(d.clsact()); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("clsact on %s: %w", d.link.Attrs().Name, err)
	}
	filter := d.stampFilter()
	filter.Fd, filter.DirectAction = program.FD(), true
	if err := d.FilterReplace(filter); err != nil {
		return fmt.Errorf("stamper of %s: %w", d.link.Attrs().Name, err)
	}
	return nil
}

// unstamp takes all that is the agent's from the device. What waits in fq is
// lost: no stamp can be changed, and the senders send it again.
func (d *device) unstamp() error {
	err := d.removeStamper()
	if failed := d.QdiscDel(d.fq()); failed != nil && !absent(failed) {
		err = errors.Join(err, fmt.Errorf("remove fq from %s: %w", d.link.Attrs().Name, failed))
	}
	return err
}

// removeStamper has packets leave without a stamp.
func (d *device) removeStamper() error {
	program, err := d.programOf(netlink.HANDLE_MIN_EGRESS, stampName)
	if err != nil || program == 0 {
		return err
	}
	if err := d.FilterDel(d.stampFilter()); err != nil && !absent(err) {
		return fmt.Errorf("remove the stamper from %s: %w", d.link.Attrs().Name, err)
	}
	return d.removeClsact()
}

func absent(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) }

// removeClsact removes a clsact that has no filters left.
func (d *device) removeClsact() error {
	qdiscs, err := d.QdiscList(d.link)
	if err != nil {
		return fmt.Errorf("queueing disciplines of %s: %w", d.link.Attrs().Name, err)
	}
	for _, qdisc := range qdiscs {
		if qdisc.Type() != "clsact" {
			continue
		}
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			filters, err := d.FilterList(d.link, parent)
			if err != nil {
				return fmt.Errorf("filters of %s: %w", d.link.Attrs().Name, err)
			}
			if len(filters) > 0 {
				return nil
			}
		}
		if err := d.QdiscDel(d.clsact()); err != nil && !absent(err) {
			return fmt.Errorf("remove clsact from %s: %w", d.link.Attrs().Name, err)
		}
	}
	return nil
}
