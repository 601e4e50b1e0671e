package shape

import "github.com/joulevirt/joulevirt/internal/agent/actuate/device"

type (
	// Outcome is what became of the shaping of one VM.
	Outcome = device.Outcome
	// Result is what became of one VM.
	Result = device.Result

	// key names an uplink.
	key = device.Key
)

// The outcomes.
const (
	Applied     = device.Applied
	Undone      = device.Undone
	NoUplink    = device.None
	Unsupported = device.Unsupported
	Foreign     = device.Foreign
	Contested   = device.Contested
	Failed      = device.Failed
	Gone        = device.Gone
)
