package model

import (
	"fmt"
	"time"
)

// Symptom is a sign that a lever hurts a VM, which only that lever, or else little, can
// cause.
type Symptom string

// The symptoms that agents look for.
const (
	// SymptomRunDelay: a bound thread waits for a CPU, in percent of one CPU, while one
	// that its container may use idles.
	SymptomRunDelay Symptom = "RunDelay"
	// SymptomQueueDrops: packets that were held were dropped by the queue that held them,
	// per million of those towards the VM.
	SymptomQueueDrops Symptom = "QueueDrops"
	// SymptomRingOverrun: packets that were released in a bunch did not fit into the ring
	// of the VM's card, per million of those towards the VM.
	SymptomRingOverrun Symptom = "RingOverrun"
	// SymptomBacklog: more waits in front of the tap than windows explain, in bytes.
	SymptomBacklog Symptom = "Backlog"
)

// Trip is a lever that an agent undid for a VM because it hurt.
type Trip struct {
	// PodUID of the VM, Namespace and Name. Empty: all VMs of the node, several of which
	// the lever hurt.
	PodUID    string  `json:"podUID"`
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	Lever     Lever   `json:"lever"`
	Symptom   Symptom `json:"symptom"`
	// Value that was seen, and Limit from which it counts, in the symptom's unit.
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	// Time of the trip, and Until when the lever stays undone for the VM.
	Time  time.Time `json:"time"`
	Until time.Time `json:"until"`
	// Count of trips of the lever and VM that are remembered, with this one.
	Count int `json:"count"`
}

// Evidence says in words what was seen.
func (t *Trip) Evidence() string {
	switch t.Symptom {
	case SymptomRunDelay:
		return fmt.Sprintf("a bound thread waited for %.0f %% of a CPU (limit %.0f %%) while a CPU idled that its container may use", t.Value, t.Limit)
	case SymptomQueueDrops:
		return fmt.Sprintf("the queue that holds packets dropped %.0f of a million (limit %.0f)", t.Value, t.Limit)
	case SymptomRingOverrun:
		return fmt.Sprintf("of a million packets released in bunches %.0f found no room in the VM's card (limit %.0f)", t.Value, t.Limit)
	case SymptomBacklog:
		return fmt.Sprintf("%.0f bytes waited in front of the taps (limit %.0f)", t.Value, t.Limit)
	default:
		return fmt.Sprintf("%s of %.4g (limit %.4g)", t.Symptom, t.Value, t.Limit)
	}
}
