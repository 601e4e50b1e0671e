package linux

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// shaper holds what all shaped devices share.
type shaper struct {
	mu sync.Mutex
	// classifier and kicker are nil until the first device is shaped.
	classifier *classifier
	kicker     *kicker
	// stampers of the uplinks that keep turns by stamps.
	stampers map[uplinkKey]*stamper

	// withoutFq has turns kept by htb also where the kernel has fq.
	withoutFq bool
	probe     sync.Once
	// noFq is why fq is not used.
	noFq error
}

func (s *shaper) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.classifier == nil {
		return nil
	}
	failures := []error{s.classifier.close(), s.kicker.close()}
	for _, stamper := range s.stampers {
		failures = append(failures, stamper.close())
	}
	clear(s.stampers)
	return errors.Join(failures...)
}

// load makes the programs, once.
func (s *shaper) load() error {
	if s.classifier != nil {
		return nil
	}
	kicker, err := newKicker()
	if err != nil {
		return err
	}
	classifier, err := newClassifier()
	if err != nil {
		return errors.Join(err, kicker.close())
	}
	s.classifier, s.kicker, s.stampers = classifier, kicker, map[uplinkKey]*stamper{}
	return nil
}

// until is the map that holds the time from which on nothing waits.
func (s *shaper) until() (*ebpf.Map, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return nil, err
	}
	return s.classifier.until, nil
}

// program that sorts packets for turns of a period.
func (s *shaper) program(period time.Duration) (*ebpf.Program, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return nil, err
	}
	return s.classifier.program(period)
}

// open lets out what waits at a device's gate.
func (s *shaper) open(d *device) error {
	if found, err := d.setGate(0); err != nil || !found {
		return err
	}
	// Without a classifier nothing waits, and a kick would go out.
	if sorted, err := d.sortedBy(); err != nil || sorted == 0 {
		return err
	}
	s.mu.Lock()
	err := s.load()
	kicker := s.kicker
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return kicker.kick(d.index())
}

// has tells whether a program is one of this agent's.
func (s *shaper) has(id ebpf.ProgramID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.classifier == nil || id == 0 {
		return false
	}
	for _, program := range s.classifier.programs {
		if isProgram(program, id) {
			return true
		}
	}
	for _, stamper := range s.stampers {
		if stamper.loaded(id) {
			return true
		}
	}
	return false
}

// Monotonic implements host.Host.
func (h *Host) Monotonic() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("monotonic time: %w", err)
	}
	return time.Duration(now.Nano()), nil
}

// KeepTurns implements host.Host.
func (h *Host) KeepTurns(valid time.Duration) error {
	now, err := h.Monotonic()
	if err != nil {
		return err
	}
	h.shaper.mu.Lock()
	defer h.shaper.mu.Unlock()
	if h.shaper.classifier == nil {
		return nil
	}
	return h.shaper.classifier.keep(now + valid)
}

// Uplinks implements host.Host.
func (h *Host) Uplinks(process host.TaskID) ([]host.Uplink, error) {
	var uplinks []host.Uplink
	err := h.inNetwork(process, func(handle *netlink.Handle) error {
		links, err := handle.LinkList()
		if err != nil {
			return fmt.Errorf("devices of process %d: %w", process.PID, err)
		}
		for _, link := range links {
			if !leadsOut(link) {
				continue
			}
			if len(uplinks) == maxUplinks {
				return fmt.Errorf("process %d has more than %d devices that lead out: %w", process.PID, maxUplinks, host.ErrUnsupported)
			}
			d := &device{handle, link}
			uplink, program, err := d.read()
			if err != nil {
				return fmt.Errorf("process %d: %w", process.PID, err)
			}
			if uplink.Owner != host.QueueOurs {
				// Without its fq the stamper would only drop what is to wait.
				if err := h.shaper.clear(d, uplinkKey{process, uplink.Name}); err != nil {
					return fmt.Errorf("process %d: %w", process.PID, err)
				}
			}
			uplink.Turns = h.shaper.has(program)
			uplinks = append(uplinks, uplink)
		}
		return nil
	})
	if errors.Is(err, host.ErrGone) {
		h.shaper.forget(process, "")
	}
	slices.SortFunc(uplinks, func(a, b host.Uplink) int { return cmp.Compare(a.Name, b.Name) })
	return uplinks, err
}

// maxUplinks is far above what a VM has: whoever makes more wants the agent to
// be busy.
const maxUplinks = 64

// leadsOut tells whether a pod's device leads to the network: not to the VM,
// whose taps KubeVirt names so, nor to other devices of the pod.
func leadsOut(link netlink.Link) bool {
	attrs := link.Attrs()
	if attrs.RawFlags&unix.IFF_UP == 0 || attrs.RawFlags&unix.IFF_LOOPBACK != 0 || strings.HasPrefix(attrs.Name, "tap") {
		return false
	}
	switch link.Type() {
	case "veth", "macvlan", "ipvlan", "vlan", "netkit", "device":
		return true
	default:
		return false
	}
}

// Shape implements host.Host.
func (h *Host) Shape(process host.TaskID, uplink string, shaping model.Shaping) error {
	err := h.onDevice(process, uplink, func(d *device) error {
		is, by, err := d.read()
		if err != nil {
			return err
		}
		if is.Owner == host.QueueForeign {
			return fmt.Errorf("%s has %s: %w", uplink, is.Queue, host.ErrForeign)
		}
		stamps, err := h.stampsTurns(d, shaping)
		switch {
		case err != nil:
			return err
		case stamps:
			err = h.shaper.stampTurns(d, uplinkKey{process, uplink}, shaping, is, by)
		default:
			err = h.shaper.sortTurns(d, uplinkKey{process, uplink}, shaping, is)
		}
		if err != nil && is.Owner == host.QueueDefault && !errors.Is(err, host.ErrForeign) {
			// Half of it would be worse than nothing.
			err = errors.Join(err, h.shaper.clear(d, uplinkKey{process, uplink}))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("shape process %d: %w", process.PID, err)
	}
	return nil
}

// sortTurns shapes a device by htb.
func (s *shaper) sortTurns(d *device, key uplinkKey, shaping model.Shaping, is host.Uplink) error {
	var program *ebpf.Program
	if shaping.Turn != nil {
		var err error
		if program, err = s.program(shaping.Turn.Period); err != nil {
			return err
		}
	}
	if is.Queue == fqQueue {
		if err := s.clear(d, key); err != nil {
			return err
		}
		is.Owner = host.QueueDefault
	}
	return s.shape(d, shaping, is.Owner, program)
}

// clear takes from a device whatever of the agent's it has.
func (s *shaper) clear(d *device, key uplinkKey) error {
	s.forget(key.process, key.uplink)
	is, _, err := d.read()
	switch {
	case err != nil:
		return err
	case is.Queue == fqQueue:
		return d.unstamp()
	case is.Queue == htbQueue:
		return errors.Join(s.open(d), d.unshape())
	}
	return d.removeStamper()
}

func (s *shaper) shape(d *device, shaping model.Shaping, owner host.QueueOwner, program *ebpf.Program) error {
	if err := d.build(shaping, owner); err != nil {
		return err
	}
	if err := d.addGate(); err != nil {
		return err
	}
	if program != nil {
		return d.sort(program)
	}
	// Opened first, so that what waits is not overtaken for long.
	return errors.Join(s.open(d), d.unsort())
}

// SetGate implements host.Host. The gate of a device that keeps turns by stamps
// is in its program.
func (h *Host) SetGate(process host.TaskID, uplink string, trickle units.BitsPerSecond) error {
	if h.shaper.stamps(uplinkKey{process, uplink}) {
		return nil
	}
	err := h.onDevice(process, uplink, func(d *device) error {
		if trickle <= 0 {
			return h.shaper.open(d)
		}
		_, err := d.setGate(trickle)
		return err
	})
	if err != nil {
		return fmt.Errorf("gate of %s of process %d: %w", uplink, process.PID, err)
	}
	return nil
}

// setGate changes the gate, when there is one.
func (d *device) setGate(trickle units.BitsPerSecond) (found bool, err error) {
	err = d.QdiscChange(d.gate(trickle))
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// Unshape implements host.Host.
func (h *Host) Unshape(process host.TaskID, uplink string) error {
	err := h.onDevice(process, uplink, func(d *device) error {
		return h.shaper.clear(d, uplinkKey{process, uplink})
	})
	if err != nil {
		return fmt.Errorf("unshape %s of process %d: %w", uplink, process.PID, err)
	}
	return nil
}

func (d *device) unshape() error {
	root := netlink.NewHtb(netlink.QdiscAttrs{
		LinkIndex: d.index(), Handle: netlink.MakeHandle(rootMajor, 0), Parent: netlink.HANDLE_ROOT,
	})
	if err := d.QdiscDel(root); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove htb from %s: %w", d.link.Attrs().Name, err)
	}
	return nil
}

// onDevice works on one device of a process's pod.
func (h *Host) onDevice(process host.TaskID, name string, do func(*device) error) error {
	return h.inNetwork(process, func(handle *netlink.Handle) error {
		d, err := openDevice(handle, name)
		if err != nil {
			return err
		}
		return do(d)
	})
}

// probeShaping shapes the loopback device of a network namespace that ends with
// the probe.
func (h *Host) probeShaping() error {
	program, err := h.shaper.program(time.Second)
	if err != nil {
		return fmt.Errorf("VMs' traffic is not shaped: %w", err)
	}
	return inEmptyNetwork(func(d *device) error {
		turn := &model.Turn{Period: time.Second, Length: time.Second / 2, Trickle: leastTrickle}
		if err := h.shaper.shape(d, model.Shaping{Turn: turn}, host.QueueDefault, program); err != nil {
			return fmt.Errorf("the kernel's sch_htb, sch_tbf and cls_bpf are needed: %w", err)
		}
		_, err := d.setGate(turn.Trickle)
		return errors.Join(err, h.shaper.open(d), d.unshape())
	})
}

// inEmptyNetwork works on the loopback device of a network namespace that ends
// with it.
func inEmptyNetwork(do func(*device) error) error {
	enter := func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("network namespaces cannot be entered without CAP_SYS_ADMIN: %w", err)
		}
		return nil
	}
	return elsewhere(enter, func() error {
		return withNetlink(func(handle *netlink.Handle) error {
			d, err := openDevice(handle, "lo")
			if err != nil {
				return err
			}
			return do(d)
		})
	})
}
