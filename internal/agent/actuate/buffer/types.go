package buffer

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/actuate/device"
	"github.com/joulevirt/joulevirt/internal/host"
)

type (
	// Outcome is what became of the buffering of one VM.
	Outcome = device.Outcome
	// Result is what became of one VM.
	Result = device.Result
)

// The outcomes.
const (
	Applied     = device.Applied
	Undone      = device.Undone
	NoTap       = device.None
	Unsupported = device.Unsupported
	Foreign     = device.Foreign
	Contested   = device.Contested
	Failed      = device.Failed
	Gone        = device.Gone
)

// Host is what of a host the package needs.
type Host interface {
	host.Bufferer
	// Monotonic is the node's CLOCK_MONOTONIC.
	Monotonic() (time.Duration, error)
}
