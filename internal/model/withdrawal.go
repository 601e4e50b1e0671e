package model

import (
	"cmp"
	"strings"
	"time"
)

// ReasonGuardWithdrawn: the manager withdrew the lever because it hurt the VM, or the node's
// VMs.
const ReasonGuardWithdrawn Reason = "GuardWithdrawn"

// GuardSign is a sign of harm that shows over minutes, or off the node only.
type GuardSign string

// The signs that the manager looks for.
const (
	// GuardSteal: vCPUs wait for CPUs for longer than the VM's profile bears.
	GuardSteal GuardSign = "Steal"
	// GuardDrops: more packets towards the VM are lost than its profile bears.
	GuardDrops GuardSign = "Drops"
	// GuardThroughput: the VM waits, and moves less than its profile lets it lose.
	GuardThroughput GuardSign = "Throughput"
	// GuardReadiness: the guest ceased to be ready after the lever came on, again.
	GuardReadiness GuardSign = "Readiness"
	// GuardAlert: an alert of the policy names the VM, or the node.
	GuardAlert GuardSign = "Alert"
)

// Withdrawal is a lever that the manager took from a VM, from all VMs of a node or, lever
// TrafficShare, from a group. It is
// remembered for some time after it ended, for what hurts again is withdrawn for longer.
type Withdrawal struct {
	// PodUID of the VM. Empty: all VMs of the node. Of a group it is the VM that was hurt.
	PodUID string
	Lever  Lever
	Sign   GuardSign
	// Alert is the name of the policy's alert that names the VM or the node. Empty for other
	// signs.
	Alert string
	// Time of the withdrawal, and Until when it lasts. Until is zero while an alert lasts.
	Time, Until time.Time
	// Count of withdrawals of the lever that are remembered, with this one. 0: nothing speaks
	// against the lever: it did not act when the alert came, or it is withdrawn to see how
	// the VM is without.
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

// Lasts tells whether the lever is withdrawn at a time.
func (w *Withdrawal) Lasts(now time.Time) bool { return w.Until.IsZero() || now.Before(w.Until) }

// Words say until when the lever is withdrawn, and why: the same as long as it is.
func (w *Withdrawal) Words() string {
	from := "the VM"
	switch {
	case w.Lever == LeverTrafficShare:
		from = "the group"
	case w.PodUID == "":
		from = "all VMs of the node"
	}
	until := "for as long as the alert is there"
	if !w.Until.IsZero() {
		until = "until " + w.Until.UTC().Format(time.RFC3339)
	}
	return "withdrawn from " + from + " " + until + ": " + w.Message
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
