package linux

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
)

// Slice implements host.Host.
func (h *Host) Slice(host.TaskID) (time.Duration, error) { return 0, host.ErrUnsupported }

// SetSlice implements host.Host.
func (h *Host) SetSlice(host.TaskID, time.Duration) error { return host.ErrUnsupported }
