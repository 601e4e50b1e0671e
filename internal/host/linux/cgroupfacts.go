package linux

import "github.com/joulevirt/joulevirt/internal/host"

// Cgroup implements host.Host.
func (h *Host) Cgroup(host.TaskID) (host.CgroupFacts, error) { return host.CgroupFacts{}, nil }
