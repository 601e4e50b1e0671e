package model

import (
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
)

// maxWord is the length of the longest word, with room for those to come.
const maxWord = 64

// IsWord reports whether a text may be one of the API's CamelCase words, such as a
// source or a reason: agents of other versions have words that this one does not
// know.
func IsWord(text string) bool {
	isLetter := func(r rune) bool { return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' }
	return text != "" && len(text) <= maxWord && strings.TrimFunc(text, isLetter) == ""
}

// Power is the power that a node draws, with where that is known from, when it
// was so, and over how long. It is a mean over the interval that ends at Time.
type Power struct {
	Source v1alpha1.PowerSource `json:"source"`
	Scope  v1alpha1.PowerScope  `json:"scope"`
	Watts  units.Watts          `json:"watts"`
	// Time is when the interval ended, by the clock of who measured.
	Time time.Time `json:"time"`
	// IntervalSeconds is the time that Watts is the mean over. 0: an instant.
	IntervalSeconds float64 `json:"intervalSeconds"`
}

// Totals count since an agent started, so that who reads them twice knows the
// means over the time between exactly, however long it was.
type Totals struct {
	// Since is when counting started: with another value, everything started
	// over.
	Since time.Time `json:"since"`
	// Seconds that were counted.
	Seconds float64 `json:"seconds"`
	// BusyCoreSeconds is CPU time used by everything on the node.
	BusyCoreSeconds float64 `json:"busyCoreSeconds"`
	// AwakeCoreSeconds is the time that physical cores were kept from deep
	// sleep, see power.AwakeCores.
	AwakeCoreSeconds float64 `json:"awakeCoreSeconds"`
	// WakeUps is how often threads of VMs were switched in.
	WakeUps float64 `json:"wakeUps"`
	// Joules are those of Power's source and scope, and MeteredSeconds the time
	// over which they were counted: less than Seconds when readings failed.
	Joules         units.Joules `json:"joules"`
	MeteredSeconds float64      `json:"meteredSeconds"`
	// Bytes of VMs' traffic, both directions of all taps.
	Bytes float64 `json:"bytes"`
	// SentBytes are those of them that VMs sent.
	SentBytes float64 `json:"sentBytes"`
	// SentPackets that VMs sent. Segments that the device is to cut are one.
	SentPackets float64 `json:"sentPackets"`
	// AgentSeconds is CPU time that the agent's process has used since it started, which
	// may be before Since. 0: it does not tell.
	AgentSeconds float64 `json:"agentSeconds,omitempty"`
}
