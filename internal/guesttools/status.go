package guesttools

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// State of one half: of what a card sends, or receives.
type State string

// The states.
const (
	// InForce: packets are held when they come fast.
	InForce State = "InForce"
	// NoAnswer: the host did not answer lately.
	NoAnswer State = "NoAnswer"
	// NotAllowed: the host allows no window now.
	NotAllowed State = "NotAllowed"
	// Declined: the guest tolerates no window.
	Declined State = "Declined"
	// Foreign: somebody else uses what it takes.
	Foreign State = "Foreign"
	// Unsupported: the guest's kernel lacks what it takes.
	Unsupported State = "Unsupported"
	// Failed: it was tried and is tried again.
	Failed State = "Failed"
)

// Half of a card's packets.
type Half struct {
	State State `json:"state"`
	// Message says more when something is in the way.
	Message string `json:"message,omitempty"`
}

// CardStatus is the status of one card.
type CardStatus struct {
	Card string `json:"card"`
	// WindowMicroseconds in which packets may be held. 0: none are.
	WindowMicroseconds int `json:"windowMicroseconds"`
	// OnPacketsPerSecond is the rate from which they are.
	OnPacketsPerSecond int  `json:"onPacketsPerSecond,omitempty"`
	Receive            Half `json:"receive"`
	Transmit           Half `json:"transmit"`
	// Deferring is true while receive interrupts are deferred.
	Deferring bool `json:"deferring"`
}

// Status is what the tools do in a guest.
type Status struct {
	Running bool `json:"running"`
	// ToleratedMicroseconds that the guest declares.
	ToleratedMicroseconds int          `json:"toleratedMicroseconds"`
	Cards                 []CardStatus `json:"cards"`
}

// ReadStatus reads what tools that run with a state folder wrote last. Running is false
// when there are none.
func ReadStatus(dir string) (Status, error) {
	running, err := isLocked(dir)
	if err != nil || !running {
		return Status{Cards: []CardStatus{}}, err
	}
	path := filepath.Join(dir, statusName)
	text, err := os.ReadFile(path)
	if err != nil {
		return Status{}, fmt.Errorf("read the status: %w", err)
	}
	var s Status
	if err := json.Unmarshal(text, &s); err != nil {
		return Status{}, fmt.Errorf("status %s: %w", path, err)
	}
	s.Running = true
	return s, nil
}

// String is the status for people.
func (s Status) String() string {
	if !s.Running {
		return "joulevirt-guest does not run: nothing is held.\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The guest tolerates windows of %d us.\n", s.ToleratedMicroseconds)
	if len(s.Cards) == 0 {
		b.WriteString("It has no card of virtio.\n")
	}
	for _, c := range s.Cards {
		fmt.Fprintf(&b, "%s: window %d us", c.Card, c.WindowMicroseconds)
		if c.WindowMicroseconds > 0 {
			fmt.Fprintf(&b, ", from %d packets/s on", c.OnPacketsPerSecond)
		}
		fmt.Fprintf(&b, "\n  receive:  %v", c.Receive)
		if c.Deferring {
			b.WriteString(", deferring now")
		}
		fmt.Fprintf(&b, "\n  transmit: %v\n", c.Transmit)
	}
	return b.String()
}

// String is the half for people.
func (h Half) String() string {
	if h.Message == "" {
		return string(h.State)
	}
	return string(h.State) + ": " + h.Message
}
