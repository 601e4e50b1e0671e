package linux

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// buffers holds what all buffered taps share.
type buffers struct {
	opts datapath.Options
	open sync.Once
	path *datapath.Datapath

	probe sync.Once
	// missing is why no packets are held.
	missing error

	// mu guards what is below.
	mu sync.Mutex
	// taps of each process that were seen, in the order of their names.
	taps map[host.TaskID][]string
	// drops of taps that were looked at since they were last told.
	drops map[tapKey]uint64
	// held is how many packets taps had held when they were last told of.
	held map[tapKey]held
}

// held counts packets of a tap, and tells whether there are more than before.
type held struct {
	packets uint64
	more    bool
}

// tapKey names a tap of a pod.
type tapKey struct {
	process host.TaskID
	tap     string
}

// datapath that works on the taps. What an earlier agent left of VMs that have ended is
// dropped when it is first asked for.
func (h *Host) datapath() *datapath.Datapath {
	b := &h.buffers
	b.open.Do(func() {
		b.path = datapath.New(b.opts)
		ids, _ := b.path.IDs() // without any list there is nothing to drop
		for _, id := range ids {
			process, is := processOfTap(id)
			if is && errors.Is(h.check(process), host.ErrGone) {
				_ = b.path.Forget(id) // in memory and files of a kernel's own file system
			}
		}
	})
	return b.path
}

func (b *buffers) close() error {
	if b.path == nil {
		return nil
	}
	return b.path.Close()
}

// missesBuffering tells why no packets of taps are held; nil when they are.
func (h *Host) missesBuffering() error {
	h.buffers.probe.Do(func() {
		err := inEmptyNetwork(func(d *device) error { return datapath.Probe(d.Handle, d.link, h.buffers.opts) })
		if err != nil {
			h.buffers.missing = fmt.Errorf("packets of taps are not held: %w", err)
		}
	})
	return h.buffers.missing
}

// missesPins tells why programs of taps end with the agent; nil when they do not.
func (h *Host) missesPins() error {
	if err := h.missesBuffering(); err != nil {
		return err
	}
	return h.datapath().MissesPins()
}

// Taps implements host.Host.
func (h *Host) Taps(process host.TaskID) ([]host.Tap, error) {
	var taps []host.Tap
	err := h.inNetwork(process, func(handle *netlink.Handle) error {
		links, err := handle.LinkList()
		if err != nil {
			return fmt.Errorf("devices of process %d: %w", process.PID, err)
		}
		for _, link := range links {
			if !isTapDevice(link) {
				continue
			}
			if len(taps) == maxTaps {
				return fmt.Errorf("process %d has more than %d taps: %w", process.PID, maxTaps, host.ErrUnsupported)
			}
			name := link.Attrs().Name
			is, err := h.datapath().Look(handle, link, tapID(process, name))
			if err != nil {
				return fmt.Errorf("tap %s of process %d: %w", name, process.PID, err)
			}
			taps = append(taps, host.Tap{
				Name: name, Index: link.Attrs().Index, Owner: ownerOf(is.Owner), Queue: is.Queue, Buffered: is.Complete,
			})
		}
		return nil
	})
	if errors.Is(err, host.ErrGone) {
		h.forgetTaps(process)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(taps, func(a, b host.Tap) int { return cmp.Compare(a.Name, b.Name) })
	h.saw(process, taps)
	return taps, nil
}

// isTapDevice tells whether a pod's device is one that a VM gets its packets through.
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

// saw keeps which taps a process has, for Buffered, and drops what is known of others.
func (h *Host) saw(process host.TaskID, taps []host.Tap) {
	b := &h.buffers
	names := make([]string, 0, len(taps))
	for _, tap := range taps {
		names = append(names, tap.Name)
	}
	b.mu.Lock()
	gone := b.taps[process]
	b.taps[process] = names
	b.mu.Unlock()
	for _, name := range gone {
		if !slices.Contains(names, name) {
			h.forgetTap(tapKey{process, name})
		}
	}
}

func (h *Host) forgetTap(key tapKey) {
	b := &h.buffers
	b.mu.Lock()
	delete(b.drops, key)
	delete(b.held, key)
	b.mu.Unlock()
	_ = h.datapath().Forget(tapID(key.process, key.tap)) // the device is gone, or a next Buffer repairs it
}

// forgetTaps lets go of what is kept of a process that has ended.
func (h *Host) forgetTaps(process host.TaskID) {
	b := &h.buffers
	b.mu.Lock()
	names := b.taps[process]
	delete(b.taps, process)
	b.mu.Unlock()
	for _, name := range names {
		h.forgetTap(tapKey{process, name})
	}
}

// Buffer implements host.Host.
func (h *Host) Buffer(process host.TaskID, tap string, as model.Buffering) error {
	if err := h.missesBuffering(); err != nil {
		return fmt.Errorf("%w: %w", host.ErrUnsupported, err)
	}
	err := h.onTap(process, tap, func(d *device, id string) error {
		return h.datapath().Apply(d.Handle, d.link, id, datapath.ConfigOf(as))
	})
	if err != nil {
		return fmt.Errorf("buffer %s of process %d: %w", tap, process.PID, err)
	}
	h.buffers.add(process, tap)
	return nil
}

func (b *buffers) add(process host.TaskID, tap string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, found := slices.BinarySearch(b.taps[process], tap)
	if !found {
		b.taps[process] = slices.Insert(slices.Clone(b.taps[process]), at, tap)
	}
}

// Unbuffer implements host.Host.
func (h *Host) Unbuffer(process host.TaskID, tap string) error {
	err := h.onTap(process, tap, func(d *device, id string) error {
		return h.datapath().Remove(d.Handle, d.link, id)
	})
	if errors.Is(err, host.ErrGone) {
		h.forgetTap(tapKey{process, tap})
	}
	if err != nil {
		return fmt.Errorf("unbuffer %s of process %d: %w", tap, process.PID, err)
	}
	return nil
}

// onTap works on one tap of a process's pod.
func (h *Host) onTap(process host.TaskID, name string, do func(*device, string) error) error {
	err := h.onDevice(process, name, func(d *device) error {
		if _, is := d.link.(*netlink.Tuntap); !is {
			return fmt.Errorf("%s is no tap: %w", name, host.ErrUnsupported)
		}
		return do(d, tapID(process, name))
	})
	switch {
	case errors.Is(err, datapath.ErrForeign):
		return fmt.Errorf("%w: %w", host.ErrForeign, err)
	case errors.Is(err, datapath.ErrUnsupported):
		return fmt.Errorf("%w: %w", host.ErrUnsupported, err)
	}
	return err
}

// KeepBuffering implements host.Host.
func (h *Host) KeepBuffering(valid time.Duration) error {
	if err := h.datapath().Extend(valid); err != nil {
		return fmt.Errorf("lease of buffering: %w", err)
	}
	return nil
}
