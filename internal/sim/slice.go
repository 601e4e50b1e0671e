package sim

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
)

// Slice implements host.Host.
func (h *Host) Slice(host.TaskID) (time.Duration, error) { return 0, host.ErrUnsupported }

// SetSlice implements host.Host.
func (h *Host) SetSlice(host.TaskID, time.Duration) error { return host.ErrUnsupported }

// Cgroup implements host.Host.
func (h *Host) Cgroup(host.TaskID) (host.CgroupFacts, error) { return host.CgroupFacts{}, nil }

// Actors implements host.Host.
func (h *Host) Actors() ([]host.Actor, error) { return nil, nil }
