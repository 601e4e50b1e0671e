// Package interference tells from a VM's rates over some minutes whether anything
// keeps it from its network work: other work on the same cores, or its own computing.
package interference

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// Sample is one reading of a VM.
type Sample struct {
	// Time when the reading's interval ended, and Seconds that it is the mean over.
	Time    time.Time
	Seconds float64
	Rates   *model.VMRates
	// Nested is true on nodes that are VMs themselves, where steal is not trusted.
	Nested bool
	// MaxSteal is the share of one CPU from which on a VM counts as affected: from 0
	// to 1. 0: the default of 5 %.
	MaxSteal float64
}
