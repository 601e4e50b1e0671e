package linux

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Taps implements host.Host.
func (h *Host) Taps(host.TaskID) ([]host.Tap, error) { return nil, host.ErrUnsupported }

// Buffer implements host.Host.
func (h *Host) Buffer(host.TaskID, string, model.Buffering) error { return host.ErrUnsupported }

// Unbuffer implements host.Host.
func (h *Host) Unbuffer(host.TaskID, string) error { return nil }

// KeepBuffering implements host.Host.
func (h *Host) KeepBuffering(time.Duration) error { return nil }

// Buffered implements host.Host.
func (h *Host) Buffered(host.TaskID) ([]host.BufferSample, error) { return nil, nil }
