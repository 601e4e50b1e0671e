package sim

import (
	"slices"

	"github.com/joulevirt/joulevirt/internal/host"
)

// Cgroup implements host.Host.
func (h *Host) Cgroup(process host.TaskID) (host.CgroupFacts, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.process(process)
	if err != nil {
		return host.CgroupFacts{}, err
	}
	return host.CgroupFacts{Weight: v.Weight, MemoryBytes: slices.Clone(v.Memory)}, nil
}

// Actors implements host.Host: a simulated host has none.
func (h *Host) Actors() ([]host.Actor, error) { return nil, nil }
