package linux

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/joulevirt/joulevirt/internal/host"
)

// Buffered implements host.Host.
func (h *Host) Buffered(process host.TaskID) ([]host.BufferSample, error) {
	b := &h.buffers
	b.mu.Lock()
	names := b.taps[process]
	b.mu.Unlock()
	var samples []host.BufferSample
	for _, name := range names {
		stats, known, err := h.datapath().Stats(tapID(process, name))
		if err != nil {
			return nil, fmt.Errorf("tap %s of process %d: %w", name, process.PID, err)
		}
		if !known {
			continue
		}
		b.note(tapKey{process, name}, stats.Held)
		samples = append(samples, host.BufferSample{
			Name: name, Window: stats.Window, Passed: stats.Passed, Held: stats.Held, Bunches: stats.Bunches,
			Active: stats.Active, Drops: b.tell(tapKey{process, name}), Guest: stats.Guest, Flood: stats.Flood,
		})
	}
	return samples, nil
}

// note keeps how many packets of a tap were held.
func (b *buffers) note(key tapKey, packets uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[key] = held{packets: packets, more: packets > b.held[key].packets}
}

// holds tells whether packets of the process's taps are being held.
func (b *buffers) holds(process host.TaskID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.taps[process], func(name string) bool { return b.held[tapKey{process, name}].more })
}

// dropped keeps how many packets a tap's queue dropped, until it is told.
func (b *buffers) dropped(key tapKey, drops uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drops[key] = drops
}

// tell returns what was seen since it was last asked; nil: the queue was not looked at.
func (b *buffers) tell(key tapKey) *uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	drops, seen := b.drops[key]
	if !seen {
		return nil
	}
	delete(b.drops, key)
	return &drops
}

// tapID names a tap of a process for as long as the node is up, in letters, digits and
// "-_=" only. Other bytes of a device's name, which a guest's owner may have chosen, are
// written as "=" and two digits.
func tapID(process host.TaskID, tap string) string {
	var id strings.Builder
	fmt.Fprintf(&id, "%d-%d-", process.Start, process.PID)
	for _, c := range []byte(tap) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			id.WriteByte(c)
		} else {
			fmt.Fprintf(&id, "=%02x", c)
		}
	}
	return id.String()
}

// processOfTap is the process that a tap's ID names.
func processOfTap(id string) (host.TaskID, bool) {
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
