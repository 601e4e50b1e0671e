package linux

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// devices are the network devices of VMs' pods whose packets are shaped or held.
type devices struct {
	opts datapath.Options
	open sync.Once
	path *datapath.Datapath

	probeShaping, probeBuffering sync.Once
	// noShaping and noBuffering say what the kernel lacks.
	noShaping, noBuffering error

	// mu guards what is below.
	mu sync.Mutex
	// known are the devices of each process that were listed, uplinks and taps, in the order of
	// their names.
	uplinks, taps map[host.TaskID][]string
	// drops of taps whose queue was read since they were last reported.
	drops map[deviceKey]uint64
	// held is how many packets taps had held when they were last reported.
	held map[deviceKey]held
}

func newDevices(opts datapath.Options) devices {
	return devices{
		opts: opts, uplinks: map[host.TaskID][]string{}, taps: map[host.TaskID][]string{},
		drops: map[deviceKey]uint64{}, held: map[deviceKey]held{},
	}
}

// held counts packets of a tap; more: there are more than before.
type held struct {
	packets uint64
	more    bool
}

// deviceKey names a device of a pod.
type deviceKey struct {
	process host.TaskID
	name    string
}

// datapath that works on the devices. What an earlier agent left of VMs that have ended is
// dropped when it is first asked for.
func (h *Host) datapath() *datapath.Datapath {
	d := &h.devices
	d.open.Do(func() {
		d.path = datapath.New(d.opts)
		ids, _ := d.path.IDs() // without any list there is nothing to drop
		for _, id := range ids {
			process, is := processOfDevice(id)
			if is && errors.Is(h.check(process), host.ErrGone) {
				_ = d.path.Forget(id) // in memory and files of a kernel's own file system
			}
		}
	})
	return d.path
}

func (d *devices) close() error {
	if d.path == nil {
		return nil
	}
	return d.path.Close()
}

// missesShaping returns why what VMs send cannot be shaped; nil if it can.
func (h *Host) missesShaping() error {
	h.devices.probeShaping.Do(func() {
		turn := &model.Turn{Period: time.Second, Length: time.Second / 2, Trickle: model.LeastRate}
		if err := h.probe(datapath.Shaping{Shaping: model.Shaping{Turn: turn, Ceiling: model.LeastRate}}); err != nil {
			h.devices.noShaping = fmt.Errorf("VMs' traffic is not shaped: %w", err)
		}
	})
	return h.devices.noShaping
}

// missesBuffering returns why no packets of taps can be held; nil if they can.
func (h *Host) missesBuffering() error {
	h.devices.probeBuffering.Do(func() {
		if err := h.probe(datapath.ConfigOf(model.Buffering{Window: model.ShortestWindow, OnPackets: 1})); err != nil {
			h.devices.noBuffering = fmt.Errorf("packets of taps are not held: %w", err)
		}
	})
	return h.devices.noBuffering
}

// probe applies settings to the loopback device of a network namespace that ends with it.
func (h *Host) probe(settings datapath.Settings) error {
	enter := func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("network namespaces cannot be entered without CAP_SYS_ADMIN: %w", err)
		}
		return nil
	}
	err := elsewhere(enter, func() error {
		return withNetlink(func(handle *netlink.Handle) error {
			lo, err := handle.LinkByName("lo")
			if err != nil {
				return err
			}
			return datapath.Probe(handle, lo, h.devices.opts, settings)
		})
	})
	if err != nil {
		return err
	}
	return h.datapath().CheckPins()
}

// Monotonic implements host.Host.
func (h *Host) Monotonic() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("monotonic time: %w", err)
	}
	return time.Duration(now.Nano()), nil
}

// ExtendLease implements host.Host.
func (h *Host) ExtendLease(valid time.Duration) error {
	if err := h.datapath().Extend(valid); err != nil {
		return fmt.Errorf("lease of held packets: %w", err)
	}
	return nil
}

// Uplinks implements host.Host.
func (h *Host) Uplinks(process host.TaskID) ([]host.Device, error) {
	return h.observeDevices(process, h.devices.uplinks, leadsOut)
}

// Taps implements host.Host.
func (h *Host) Taps(process host.TaskID) ([]host.Device, error) {
	return h.observeDevices(process, h.devices.taps, isTapDevice)
}

// observeDevices lists devices of a process and records them.
func (h *Host) observeDevices(process host.TaskID, known map[host.TaskID][]string, wanted func(netlink.Link) bool) ([]host.Device, error) {
	list, err := h.listDevices(process, wanted)
	if errors.Is(err, host.ErrGone) {
		h.forgetDevices(process)
	}
	if err != nil {
		return nil, err
	}
	h.recordDevices(known, process, list)
	return list, nil
}

// listDevices of a process's pod, in the order of their names.
func (h *Host) listDevices(process host.TaskID, wanted func(netlink.Link) bool) ([]host.Device, error) {
	var list []host.Device
	err := h.inNetwork(process, func(handle *netlink.Handle) error {
		links, err := handle.LinkList()
		if err != nil {
			return fmt.Errorf("devices of process %d: %w", process.PID, err)
		}
		for _, link := range links {
			if !wanted(link) {
				continue
			}
			attrs := link.Attrs()
			is, err := h.datapath().Observe(handle, link, deviceID(process, attrs.Name))
			if err != nil {
				return fmt.Errorf("%s of process %d: %w", attrs.Name, process.PID, err)
			}
			list = append(list, host.Device{
				Name: attrs.Name, Index: attrs.Index, Owner: ownerOf(is.Owner), Queue: is.Queue, Complete: is.Complete,
			})
		}
		return nil
	})
	slices.SortFunc(list, func(a, b host.Device) int { return cmp.Compare(a.Name, b.Name) })
	return list, err
}

// leadsOut returns true if a pod's device leads to the network: not to the VM,
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

// isTapDevice returns true if a pod's device is one that a VM gets its packets through.
func isTapDevice(link netlink.Link) bool {
	tap, is := link.(*netlink.Tuntap)
	return is && tap.Mode == netlink.TUNTAP_MODE_TAP && tap.RawFlags&unix.IFF_UP != 0
}

func ownerOf(owner datapath.Owner) host.QueueOwner {
	switch owner {
	case datapath.OwnerUs:
		return host.QueueOurs
	case datapath.OwnerOther:
		return host.QueueForeign
	default:
		return host.QueueDefault
	}
}

// forgetDevices drops what is kept of a process that has ended.
func (h *Host) forgetDevices(process host.TaskID) {
	h.recordDevices(h.devices.uplinks, process, nil)
	h.recordDevices(h.devices.taps, process, nil)
}

// recordDevices records which devices a process has, and drops what is known of those that it had.
func (h *Host) recordDevices(known map[host.TaskID][]string, process host.TaskID, list []host.Device) {
	var names []string
	for i := range list {
		names = append(names, list[i].Name)
	}
	d := &h.devices
	d.mu.Lock()
	before := known[process]
	if known[process] = names; names == nil {
		delete(known, process)
	}
	d.mu.Unlock()
	for _, name := range before {
		if !slices.Contains(names, name) {
			h.forgetDevice(deviceKey{process, name})
		}
	}
}

func (h *Host) forgetDevice(key deviceKey) {
	d := &h.devices
	d.mu.Lock()
	delete(d.drops, key)
	delete(d.held, key)
	d.mu.Unlock()
	_ = h.datapath().Forget(deviceID(key.process, key.name)) // the device is gone, or the next change repairs it
}

// Shape implements host.Host.
func (h *Host) Shape(process host.TaskID, uplink string, as model.Shaping) error {
	if err := h.missesShaping(); err != nil {
		return fmt.Errorf("%w: %w", host.ErrUnsupported, err)
	}
	return h.applySettings(process, uplink, datapath.Shaping{Shaping: as})
}

// Unshape implements host.Host.
func (h *Host) Unshape(process host.TaskID, uplink string) error {
	return h.removeSettings(process, uplink)
}

// Buffer implements host.Host.
func (h *Host) Buffer(process host.TaskID, tap string, as model.Buffering) error {
	if err := h.missesBuffering(); err != nil {
		return fmt.Errorf("%w: %w", host.ErrUnsupported, err)
	}
	if err := h.applySettings(process, tap, datapath.ConfigOf(as)); err != nil {
		return err
	}
	h.devices.addTap(process, tap)
	return nil
}

func (d *devices) addTap(process host.TaskID, tap string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, found := slices.BinarySearch(d.taps[process], tap)
	if !found {
		d.taps[process] = slices.Insert(slices.Clone(d.taps[process]), at, tap)
	}
}

// Unbuffer implements host.Host.
func (h *Host) Unbuffer(process host.TaskID, tap string) error {
	if err := h.removeSettings(process, tap); err != nil {
		return err
	}
	h.devices.recordHeld(deviceKey{process, tap}, 0)
	return nil
}

func (h *Host) applySettings(process host.TaskID, name string, settings datapath.Settings) error {
	err := h.onDevice(process, name, func(handle *netlink.Handle, link netlink.Link) error {
		_, tap := link.(*netlink.Tuntap)
		if _, isShaping := settings.(datapath.Shaping); isShaping == tap {
			return fmt.Errorf("a device of the other kind: %w", host.ErrUnsupported)
		}
		return h.datapath().Apply(handle, link, deviceID(process, name), settings)
	})
	if err != nil {
		return fmt.Errorf("change %s of process %d: %w", name, process.PID, err)
	}
	return nil
}

func (h *Host) removeSettings(process host.TaskID, name string) error {
	err := h.onDevice(process, name, func(handle *netlink.Handle, link netlink.Link) error {
		return h.datapath().Remove(handle, link, deviceID(process, name))
	})
	if errors.Is(err, host.ErrGone) {
		h.forgetDevice(deviceKey{process, name})
	}
	if err != nil {
		return fmt.Errorf("restore %s of process %d: %w", name, process.PID, err)
	}
	return nil
}

// onDevice works on one device of a process's pod.
func (h *Host) onDevice(process host.TaskID, name string, do func(*netlink.Handle, netlink.Link) error) error {
	err := h.inNetwork(process, func(handle *netlink.Handle) error {
		link, err := handle.LinkByName(name)
		var absent netlink.LinkNotFoundError
		if errors.As(err, &absent) {
			err = fmt.Errorf("%w: %w", host.ErrGone, err)
		}
		if err != nil {
			return err
		}
		return do(handle, link)
	})
	switch {
	case errors.Is(err, datapath.ErrForeign):
		return fmt.Errorf("%w: %w", host.ErrForeign, err)
	case errors.Is(err, datapath.ErrUnsupported):
		return fmt.Errorf("%w: %w", host.ErrUnsupported, err)
	}
	return err
}

// Buffered implements host.Host.
func (h *Host) Buffered(process host.TaskID) ([]host.BufferSample, error) {
	d := &h.devices
	d.mu.Lock()
	names := d.taps[process]
	d.mu.Unlock()
	var samples []host.BufferSample
	for _, name := range names {
		stats, known, err := h.datapath().Stats(deviceID(process, name))
		if err != nil {
			return nil, fmt.Errorf("tap %s of process %d: %w", name, process.PID, err)
		}
		if !known {
			continue
		}
		d.recordHeld(deviceKey{process, name}, stats.Held)
		samples = append(samples, host.BufferSample{
			Name: name, Window: stats.Window, Passed: stats.Passed, Held: stats.Held,
			Active: stats.Active, Drops: d.takeDrops(deviceKey{process, name}), Guest: stats.Guest, Flood: stats.Flood,
		})
	}
	return samples, nil
}

// recordHeld records how many packets of a tap were held.
func (d *devices) recordHeld(key deviceKey, packets uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[key] = held{packets: packets, more: packets > d.held[key].packets}
}

// holding counts the processes of whose taps packets are being held. 0 if those of this one
// are not.
func (d *devices) holding(process host.TaskID) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.held) == 0 {
		return 0
	}
	all := map[host.TaskID]bool{}
	for key, held := range d.held {
		if held.more {
			all[key.process] = true
		}
	}
	if !all[process] {
		return 0
	}
	return len(all)
}

// recordDrops records how many packets a tap's queue dropped, until it is reported.
func (d *devices) recordDrops(key deviceKey, drops uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drops[key] = drops
}

// takeDrops returns what was recorded since the last call; nil: the queue was not read.
func (d *devices) takeDrops(key deviceKey) *uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	drops, seen := d.drops[key]
	if !seen {
		return nil
	}
	delete(d.drops, key)
	return &drops
}

// deviceID names a device of a process for as long as the node is up, in letters, digits and
// "-_=" only. Other bytes of a device's name, which a guest's owner may have chosen, are
// written as "=" and two digits.
func deviceID(process host.TaskID, device string) string {
	var id strings.Builder
	fmt.Fprintf(&id, "%d-%d-", process.Start, process.PID)
	for _, c := range []byte(device) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			id.WriteByte(c)
		} else {
			fmt.Fprintf(&id, "=%02x", c)
		}
	}
	return id.String()
}

// processOfDevice is the process that a device's ID names.
func processOfDevice(id string) (host.TaskID, bool) {
	parts := strings.SplitN(id, "-", 3)
	if len(parts) != 3 {
		return host.TaskID{}, false
	}
	start, err := strconv.ParseUint(parts[0], 10, 64)
	if err != nil {
		return host.TaskID{}, false
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil || pid <= 0 {
		return host.TaskID{}, false
	}
	return host.TaskID{PID: pid, TID: pid, Start: start}, true
}
