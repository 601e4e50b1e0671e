package model

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
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
	PodUID    string         `json:"podUID"`
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Lever     v1alpha1.Lever `json:"lever"`
	Symptom   Symptom        `json:"symptom"`
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

// Withdrawal is a lever that the manager took from a VM, from all VMs of a node or, lever
// TrafficShare, from a group. It is
// remembered for some time after it ended, for what hurts again is withdrawn for longer.
type Withdrawal struct {
	// PodUID of the VM. Empty: all VMs of the node. Of a group it is the VM that was hurt.
	PodUID string
	Lever  v1alpha1.Lever
	Sign   v1alpha1.GuardSign
	// Time of the withdrawal, and Until when it lasts.
	Time, Until time.Time
	// Count of withdrawals of the lever that are remembered, with this one. 0: nothing speaks
	// against the lever, it is withdrawn to see how the VM is without.
	Count int
	// Message is the evidence in words.
	Message string
}

// MostWithdrawn is how many withdrawals a plan holds.
const MostWithdrawn = 256

// Compare orders withdrawals by PodUID and lever, by which there is one each.
func (w Withdrawal) Compare(o Withdrawal) int {
	return cmp.Or(strings.Compare(w.PodUID, o.PodUID), strings.Compare(string(w.Lever), string(o.Lever)))
}

// Lasts reports whether the lever is withdrawn at a time.
func (w *Withdrawal) Lasts(now time.Time) bool { return now.Before(w.Until) }

// Words say until when the lever is withdrawn, and why: the same as long as it is.
func (w *Withdrawal) Words() string {
	from := "the VM"
	switch {
	case w.Lever == v1alpha1.LeverTrafficShare:
		from = "the group"
	case w.PodUID == "":
		from = "all VMs of the node"
	}
	return "withdrawn from " + from + " until " + w.Until.UTC().Format(time.RFC3339) + ": " + w.Message
}

const (
	// firstCoolDown is how long a lever stays undone after it hurt first, and
	// LongestCoolDown the most that doubling with each time that is remembered makes of it.
	firstCoolDown   = 5 * time.Minute
	LongestCoolDown = 24 * time.Hour
	// MostRemembered times reach the longest.
	MostRemembered = 10
	// forgiven is the time for which a lever is to be let be without hurting so that one of
	// those times is forgotten: what hurts now and then is undone for minutes each time, and
	// what hurts whenever it is tried for ever longer.
	forgiven = time.Hour
)

// CoolDown is how long a lever stays undone that hurt for the count-th time that is
// remembered.
func CoolDown(count int) time.Duration {
	coolDown := firstCoolDown
	for range min(count, MostRemembered) - 1 {
		coolDown = min(LongestCoolDown, 2*coolDown)
	}
	return coolDown
}

// Remembered is how many of so many times that a lever hurt still are, at a time after the
// last cool-down ended: each hour without one forgives one.
func Remembered(count int, since time.Duration) int {
	return max(0, min(MostRemembered, count)-int(max(0, since)/forgiven))
}
